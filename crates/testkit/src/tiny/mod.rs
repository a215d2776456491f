//! Complete models with random weights, small enough to build in every test.
//!
//! They say nothing sensible, but everything is there: tokenizer, template, every weight under its real name, odd
//! sizes where code might assume round ones. The same call gives the same bytes on every machine. Deviations are
//! chosen so that the answer depends on the whole prompt and its tokens differ: a model that repeats one token
//! would hide mistakes.
//!
//! [`mixtral`] is [`llama`] with experts; [`gpt2`] has what neither family has: LayerNorm, biases, learned positions, no
//! gate, one fused projection.
//!
//! | | [`llama`] | [`gemma3`] |
//! |---|---|---|
//! | layers, width, FFN | 2, 64, 128 | 6, 64, 128 |
//! | heads (keys) of length | 4 (2) of 16 | 4 (2) of 32 |
//! | window | none | 24 positions in 5 of 6 layers |
//! | output matrix | its own | the embeddings |
//! | tokenizer | byte-level BPE (`smollm`) | SentencePiece with byte fallback |
//! | BOS | not added | added |

mod vocab;

pub use vocab::CHAT_TEMPLATE;

use crate::encode::Encoding;
use crate::gguf::Builder;
use crate::random::Random;

/// Positions the tiny models claim to know.
pub const CONTEXT_LEN: u32 = 2048;

/// Experts of [`mixtral`], of which each token uses two.
pub const NUM_EXPERTS: u32 = 4;

const SEED: u64 = 0x00f0_1c80;
const WIDTH: u64 = 64;
const FFN: u64 = 128;
const HEADS: u64 = 4;
const KV_HEADS: u64 = 2;

/// A llama-family model whose matrices are stored as `encoding`; norms are F32 as everywhere.
pub fn llama(encoding: Encoding) -> Builder {
    let vocab = vocab::Bpe::new();
    let head_len = 16;
    let num_layers = 2;
    let mut model = Weights {
        builder: Builder::new(),
        encoding,
    };
    model.builder = common_keys(model.builder, "llama", num_layers)
        .with("llama.vocab_size", vocab.tokens.len() as u32)
        .with("llama.rope.dimension_count", head_len as u32)
        .with("llama.rope.freq_base", 10_000.0f32)
        .with("llama.attention.layer_norm_rms_epsilon", 1e-5f32);
    let num_tokens = vocab.tokens.len() as u64;
    model.builder = vocab.add_to(model.builder);

    model.matrix("token_embd.weight", [WIDTH, num_tokens], 0.5);
    for layer in 0..num_layers {
        model.attention(layer, head_len);
        model.feed_forward(layer);
    }
    model.norm("output_norm.weight", WIDTH, 1.0);
    model.matrix("output.weight", [WIDTH, num_tokens], 0.4);
    model.builder
}

/// A [`llama`] with experts, stacked as converters do.
pub fn mixtral(encoding: Encoding) -> Builder {
    let mut model = Weights {
        builder: llama(encoding)
            .with("llama.expert_count", NUM_EXPERTS)
            .with("llama.expert_used_count", 2u32),
        encoding,
    };
    for layer in 0..2 {
        let name = |part: &str| format!("blk.{layer}.ffn_{part}.weight");
        for dense in ["gate", "up", "down"] {
            model.builder = model.builder.without_tensor(&name(dense));
        }
        // Routers are stored in full precision; a wide spread makes choices that differ from token to token.
        let num_experts = u64::from(NUM_EXPERTS);
        let router =
            Random::named(SEED, &name("gate_inp")).normals((WIDTH * num_experts) as usize, 0.5);
        model.push(
            &name("gate_inp"),
            &[WIDTH, num_experts],
            Encoding::F32,
            &router,
        );
        for (part, inputs, outputs) in [
            ("gate", WIDTH, FFN),
            ("up", WIDTH, FFN),
            ("down", FFN, WIDTH),
        ] {
            let name = name(&format!("{part}_exps"));
            let num_values = (inputs * outputs * num_experts) as usize;
            let values =
                Random::named(SEED, &name).normals(num_values, 1.5 / (inputs as f32).sqrt());
            model.push(&name, &[inputs, outputs, num_experts], encoding, &values);
        }
    }
    model.builder
}

/// A GPT-2 model whose matrices are stored as `encoding`; norms, biases and positions are F32.
pub fn gpt2(encoding: Encoding) -> Builder {
    let vocab = vocab::Bpe::new();
    let num_layers = 2;
    let mut model = Weights {
        builder: Builder::new(),
        encoding,
    };
    model.builder = common_keys(model.builder, "gpt2", num_layers)
        .without("gpt2.attention.head_count_kv")
        .with("gpt2.attention.layer_norm_epsilon", 1e-5f32);
    let num_tokens = vocab.tokens.len() as u64;
    model.builder = vocab.add_to(model.builder);

    model.matrix("token_embd.weight", [WIDTH, num_tokens], 0.5);
    model.vector(
        "position_embd.weight",
        &[WIDTH, u64::from(CONTEXT_LEN)],
        0.5,
    );
    for layer in 0..num_layers {
        let name = |part: &str| format!("blk.{layer}.{part}");
        for norm in ["attn_norm", "ffn_norm"] {
            model.norm(&name(&format!("{norm}.weight")), WIDTH, 1.0);
            model.vector(&name(&format!("{norm}.bias")), &[WIDTH], 0.2);
        }
        for (part, inputs, outputs) in [
            ("attn_qkv", WIDTH, 3 * WIDTH),
            ("attn_output", WIDTH, WIDTH),
            ("ffn_up", WIDTH, FFN),
            ("ffn_down", FFN, WIDTH),
        ] {
            model.projection(&name(&format!("{part}.weight")), [inputs, outputs]);
            model.vector(&name(&format!("{part}.bias")), &[outputs], 0.2);
        }
    }
    model.norm("output_norm.weight", WIDTH, 1.0);
    model.vector("output_norm.bias", &[WIDTH], 0.2);
    model.builder
}

/// A Gemma 3 model whose matrices are stored as `encoding`; norms are F32 as everywhere.
pub fn gemma3(encoding: Encoding) -> Builder {
    let vocab = vocab::Spm::new();
    let head_len = 32;
    let num_layers = 6;
    let mut model = Weights {
        builder: Builder::new(),
        encoding,
    };
    model.builder = common_keys(model.builder, "gemma3", num_layers)
        .with("gemma3.attention.key_length", head_len as u32)
        .with("gemma3.attention.value_length", head_len as u32)
        .with("gemma3.attention.sliding_window", 24u32)
        .with("gemma3.rope.freq_base", 1_000_000.0f32)
        .with("gemma3.attention.layer_norm_rms_epsilon", 1e-6f32);
    let num_tokens = vocab.tokens.len() as u64;
    model.builder = vocab.add_to(model.builder);

    // Small, because Gemma multiplies embeddings by sqrt(width) and reuses them at the output: larger ones
    // would make every token predict itself.
    model.matrix("token_embd.weight", [WIDTH, num_tokens], 0.03);
    for layer in 0..num_layers {
        let name = |part: &str| format!("blk.{layer}.{part}.weight");
        model.attention(layer, head_len);
        model.norm(&name("attn_q_norm"), head_len, 1.0);
        model.norm(&name("attn_k_norm"), head_len, 1.0);
        // Attention averages; at full size its part would soon be the same at every position.
        model.norm(&name("post_attention_norm"), WIDTH, 0.4);
        model.feed_forward(layer);
        model.norm(&name("post_ffw_norm"), WIDTH, 1.0);
    }
    model.norm("output_norm.weight", WIDTH, 12.0);
    model.builder
}

fn common_keys(builder: Builder, family: &str, num_layers: u64) -> Builder {
    builder
        .with("general.architecture", family)
        .with("general.type", "model")
        .with("general.name", format!("Tiny {family}").as_str())
        .with("general.quantization_version", 2u32)
        .with(&format!("{family}.context_length"), CONTEXT_LEN)
        .with(&format!("{family}.embedding_length"), WIDTH as u32)
        .with(&format!("{family}.block_count"), num_layers as u32)
        .with(&format!("{family}.feed_forward_length"), FFN as u32)
        .with(&format!("{family}.attention.head_count"), HEADS as u32)
        .with(
            &format!("{family}.attention.head_count_kv"),
            KV_HEADS as u32,
        )
}

/// A model under construction.
struct Weights {
    builder: Builder,
    encoding: Encoding,
}

impl Weights {
    fn attention(&mut self, layer: u64, head_len: u64) {
        let name = |part: &str| format!("blk.{layer}.attn_{part}.weight");
        self.norm(&name("norm"), WIDTH, 1.0);
        self.projection(&name("q"), [WIDTH, HEADS * head_len]);
        self.projection(&name("k"), [WIDTH, KV_HEADS * head_len]);
        self.projection(&name("v"), [WIDTH, KV_HEADS * head_len]);
        self.projection(&name("output"), [HEADS * head_len, WIDTH]);
    }

    fn feed_forward(&mut self, layer: u64) {
        let name = |part: &str| format!("blk.{layer}.ffn_{part}.weight");
        self.norm(&name("norm"), WIDTH, 1.0);
        self.projection(&name("gate"), [WIDTH, FFN]);
        self.projection(&name("up"), [WIDTH, FFN]);
        self.projection(&name("down"), [FFN, WIDTH]);
    }

    /// A matrix that somewhat more than keeps the size of its input.
    fn projection(&mut self, name: &str, dims: [u64; 2]) {
        self.matrix(name, dims, 1.5 / (dims[0] as f32).sqrt());
    }

    fn matrix(&mut self, name: &str, dims: [u64; 2], deviation: f32) {
        let values = Random::named(SEED, name).normals((dims[0] * dims[1]) as usize, deviation);
        self.push(name, &dims, self.encoding, &values);
    }

    /// Values around zero in full precision.
    fn vector(&mut self, name: &str, dims: &[u64], deviation: f32) {
        let num_values = dims.iter().product::<u64>() as usize;
        let values = Random::named(SEED, name).normals(num_values, deviation);
        self.push(name, dims, Encoding::F32, &values);
    }

    /// Norm weights scattered around `mean`.
    fn norm(&mut self, name: &str, len: u64, mean: f32) {
        let mut values = Random::named(SEED, name).normals(len as usize, 0.2);
        for value in &mut values {
            *value = mean * (1.0 + *value);
        }
        self.push(name, &[len], Encoding::F32, &values);
    }

    fn push(&mut self, name: &str, dims: &[u64], encoding: Encoding, values: &[f32]) {
        let builder = std::mem::take(&mut self.builder);
        self.builder = builder.tensor(name, dims, encoding.type_id(), encoding.encode(values));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FNV-1a, to say "these bytes" in one number.
    fn fingerprint(bytes: &[u8]) -> u64 {
        bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        })
    }

    /// Tests elsewhere rely on what these models answer: who changes them on purpose changes these numbers too.
    #[test]
    fn the_models_are_the_same_bytes_on_every_machine() {
        assert_eq!(
            fingerprint(&llama(Encoding::F32).build().bytes),
            7_524_452_415_928_023_121
        );
        assert_eq!(
            fingerprint(&gemma3(Encoding::Q4_0).build().bytes),
            14_124_901_385_331_253_102
        );
    }
}
