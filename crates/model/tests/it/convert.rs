//! Checkpoints of `shared/fixtures/arch` as GGUF files, as the format's converters write them.
//!
//! The one idea: a table of names. Every tensor of a checkpoint must be in it, so none is forgotten; what converters do
//! besides renaming is a line each: query and key rows of some families permuted so that a rotating pair is
//! adjacent, the 1 of gemma's `1 + weight` added, experts stacked, matrices of GPT-2 turned.
//!
//! Not here: anything of ours. Key and tensor names are those of the GGUF specification and of its converters.

use std::collections::BTreeMap;
use std::f64::consts::TAU;
use std::path::Path;

use half::bf16;
use safetensors::SafeTensors;
use serde_json::Value;
use testkit::gguf::Builder;

const F32: u32 = 0;
const BF16: u32 = 30;

/// How the experts of a layer are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Experts {
    /// `ffn_gate_exps.weight`, all in one tensor.
    Stacked,
    /// `ffn_gate.0.weight`, as files of early Mixtral conversions have them.
    Split,
}

/// A checkpoint on its way to GGUF.
pub struct Checkpoint {
    pub config: Value,
    architecture: &'static str,
    pub builder: Builder,
    /// Of the frequencies of the rotation, as a Llama 3 file brings them.
    pub divisors: Vec<f32>,
    /// By the names of the checkpoint, slowest axis first.
    tensors: BTreeMap<String, Tensor>,
}

#[derive(Clone)]
struct Tensor {
    shape: Vec<usize>,
    values: Vec<f32>,
}

/// Names in a layer, of all families but GPT-2; `post_attention_layernorm` depends on the family.
const LAYER_NAMES: &[(&str, &str)] = &[
    ("input_layernorm", "attn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.qkv_proj", "attn_qkv"),
    ("self_attn.o_proj", "attn_output"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("pre_feedforward_layernorm", "ffn_norm"),
    ("post_feedforward_layernorm", "post_ffw_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.gate_up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
    ("mlp.c_fc", "ffn_up"),
    ("mlp.c_proj", "ffn_down"),
    ("mlp.gate", "ffn_gate_inp"),
    ("block_sparse_moe.gate", "ffn_gate_inp"),
    // GPT-2.
    ("ln_1", "attn_norm"),
    ("ln_2", "ffn_norm"),
    ("attn.c_attn", "attn_qkv"),
    ("attn.c_proj", "attn_output"),
];

/// Names outside of layers.
const OUTER_NAMES: &[(&str, &str)] = &[
    ("model.embed_tokens", "token_embd"),
    ("model.norm", "output_norm"),
    ("lm_head", "output"),
    ("transformer.wte", "token_embd"),
    ("transformer.wpe", "position_embd"),
    ("transformer.ln_f", "output_norm"),
];

const EXPERT_NAMES: &[(&str, &str)] = &[
    ("w1", "gate"),
    ("w2", "down"),
    ("w3", "up"),
    ("gate_proj", "gate"),
    ("down_proj", "down"),
    ("up_proj", "up"),
];

/// Whole numbers of `config.json` and their keys; the first name that is there counts.
const COUNTS: &[(&[&str], &str)] = &[
    (&["vocab_size"], "vocab_size"),
    (&["hidden_size", "n_embd"], "embedding_length"),
    (&["num_hidden_layers", "n_layer"], "block_count"),
    (&["intermediate_size"], "feed_forward_length"),
    (
        &["max_position_embeddings", "n_positions"],
        "context_length",
    ),
    (&["num_attention_heads", "n_head"], "attention.head_count"),
    (&["num_key_value_heads"], "attention.head_count_kv"),
    (&["head_dim"], "attention.key_length"),
    (&["head_dim"], "attention.value_length"),
    (&["sliding_window"], "attention.sliding_window"),
    (&["num_local_experts"], "expert_count"),
    (&["num_experts_per_tok"], "expert_used_count"),
    (&["moe_intermediate_size"], "expert_feed_forward_length"),
];

/// Other numbers.
const NUMBERS: &[(&[&str], &str)] = &[
    (&["rms_norm_eps"], "attention.layer_norm_rms_epsilon"),
    (
        &["layer_norm_eps", "norm_epsilon", "layer_norm_epsilon"],
        "attention.layer_norm_epsilon",
    ),
    (&["attn_logit_softcapping"], "attn_logit_softcapping"),
    (&["final_logit_softcapping"], "final_logit_softcapping"),
    (&["embedding_multiplier"], "embedding_scale"),
    (&["residual_multiplier"], "residual_scale"),
    (&["logits_scaling"], "logit_scale"),
    (&["attention_multiplier"], "attention.scale"),
];

impl Checkpoint {
    /// Reads a fixture and converts it, except for rounded frequencies.
    pub fn convert(folder: &Path, architecture: &'static str, experts: Experts) -> Checkpoint {
        let bytes = std::fs::read(folder.join("model.safetensors")).unwrap();
        let config = std::fs::read(folder.join("config.json")).unwrap();
        let mut checkpoint = Checkpoint {
            config: serde_json::from_slice(&config).unwrap(),
            architecture,
            builder: Builder::new().with("general.architecture", architecture),
            divisors: Vec::new(),
            tensors: read_tensors(&SafeTensors::deserialize(&bytes).unwrap()),
        };
        checkpoint.convert_keys();
        checkpoint.convert_rope();
        checkpoint.change_values();
        checkpoint.convert_tensors(experts);
        checkpoint
    }

    fn number(&self, names: &[&str]) -> Option<f64> {
        names.iter().find_map(|name| self.config[name].as_f64())
    }

    fn count(&self, names: &[&str]) -> Option<usize> {
        self.number(names).map(|number| number as usize)
    }

    pub fn head_dim(&self) -> usize {
        self.count(&["head_dim"]).unwrap_or_else(|| {
            let heads = self.count(&["num_attention_heads", "n_head"]).unwrap();
            self.count(&["hidden_size", "n_embd"]).unwrap() / heads
        })
    }

    fn set(&mut self, key: &str, value: impl Into<testkit::gguf::Value>) {
        let builder = std::mem::take(&mut self.builder);
        self.builder = builder.with(&format!("{}.{key}", self.architecture), value);
    }

    /// `shape` is that of the checkpoint, slowest axis first.
    pub fn add(&mut self, name: &str, shape: &[usize], values: &[f32]) {
        let dims: Vec<u64> = shape.iter().rev().map(|&dim| dim as u64).collect();
        let is_half = |value: &f32| bf16::from_f32(*value).to_f32() == *value;
        let (type_id, bytes) = match shape.len() > 1 && values.iter().all(is_half) {
            true => {
                let halves = values.iter().map(|&value| bf16::from_f32(value));
                (BF16, halves.flat_map(|value| value.to_le_bytes()).collect())
            }
            false => (
                F32,
                values
                    .iter()
                    .flat_map(|value| value.to_le_bytes())
                    .collect(),
            ),
        };
        self.builder = std::mem::take(&mut self.builder).tensor(name, &dims, type_id, bytes);
    }

    fn convert_keys(&mut self) {
        for (names, key) in COUNTS {
            if let Some(number) = self.count(names) {
                self.set(key, number as u32);
            }
        }
        for (names, key) in NUMBERS {
            if let Some(number) = self.number(names) {
                self.set(key, number as f32);
            }
        }
        match self.architecture {
            "gpt2" => self.set(
                "feed_forward_length",
                4 * self.count(&["n_embd"]).unwrap() as u32,
            ),
            // The converter says zero where there is no window.
            "phi3" => self.set("attention.sliding_window", 0u32),
            // The converter's default, whatever the tensors say.
            "stablelm" => self.set("use_parallel_residual", true),
            // Converters leave it to the family, whose interval this small checkpoint does not have.
            "smollm3" => self.set("no_rope_layer_interval", 3u32),
            _ => (),
        }
    }

    fn convert_rope(&mut self) {
        if self.architecture == "gpt2" {
            return;
        }
        if self.architecture == "gemma3" {
            self.set("rope.freq_base", 1_000_000.0f32);
            return;
        }
        let rope = self.config["rope_parameters"].clone();
        let number = |key: &str| rope[key].as_f64().unwrap();
        self.set("rope.freq_base", number("rope_theta") as f32);
        let partial = rope["partial_rotary_factor"].as_f64().unwrap_or(1.0);
        let num_dims = (self.head_dim() as f64 * partial) as usize;
        self.set("rope.dimension_count", num_dims as u32);
        self.divisors = vec![1.0; num_dims / 2];
        match rope["rope_type"].as_str().unwrap() {
            "default" => (),
            kind @ ("linear" | "yarn") => {
                self.set("rope.scaling.type", kind);
                self.set("rope.scaling.factor", number("factor") as f32);
                if kind == "yarn" {
                    let original = number("original_max_position_embeddings") as u32;
                    self.set("rope.scaling.original_context_length", original);
                }
            }
            "llama3" => self.divisors = llama3_divisors(num_dims, &number),
            other => panic!("rope {other}"),
        }
    }

    /// What converters do to values, and what stands in for keys that the format does not have.
    fn change_values(&mut self) {
        let head_dim = self.head_dim();
        let is_gemma = self.architecture.starts_with("gemma");
        let is_paired = matches!(self.architecture, "llama" | "granite" | "smollm3");
        // The real models' scale is `1 / sqrt(head_dim)`, so the format has no key for it.
        let scalar = self
            .number(&["query_pre_attn_scalar"])
            .unwrap_or(head_dim as f64);
        let query_scale = (head_dim as f64 / scalar).sqrt() as f32;
        let scaled = match self.architecture {
            "gemma2" => "self_attn.q_proj.weight",
            _ => "self_attn.q_norm.weight",
        };
        for (name, tensor) in &mut self.tensors {
            if is_gemma && name.ends_with("norm.weight") {
                tensor.values.iter_mut().for_each(|value| *value += 1.0);
            }
            if is_gemma && name.ends_with(scaled) {
                tensor
                    .values
                    .iter_mut()
                    .for_each(|value| *value *= query_scale);
            }
            if is_paired && (name.contains("q_proj") || name.contains("k_proj")) {
                *tensor = tensor.paired(head_dim);
            }
            let is_matrix = name.starts_with("transformer.h.") && tensor.shape.len() == 2;
            if is_matrix {
                *tensor = tensor.turned();
            }
        }
    }

    fn convert_tensors(&mut self, experts: Experts) {
        let tensors = std::mem::take(&mut self.tensors);
        // Families with a norm after the feed-forward layer have one after attention too.
        let has_post_norms =
            tensors.contains_key("model.layers.0.post_feedforward_layernorm.weight");
        let attention_post = match has_post_norms {
            true => "post_attention_norm",
            false => "ffn_norm",
        };
        let mut stacks: BTreeMap<String, Vec<Tensor>> = BTreeMap::new();
        for (name, tensor) in tensors {
            let (stem, kind) = name.rsplit_once('.').unwrap();
            let in_layer = ["model.layers.", "transformer.h."]
                .iter()
                .find_map(|prefix| stem.strip_prefix(prefix)?.split_once('.'));
            let Some((layer, stem)) = in_layer else {
                self.add(
                    &format!("{}.{kind}", find(OUTER_NAMES, stem)),
                    &tensor.shape,
                    &tensor.values,
                );
                continue;
            };
            if let Some((_, expert)) = stem.split_once("experts.") {
                let (idx, own) = expert.split_once('.').unwrap();
                let own = find(EXPERT_NAMES, own);
                match experts {
                    Experts::Split => {
                        let name = format!("blk.{layer}.ffn_{own}.{idx}.weight");
                        self.add(&name, &tensor.shape, &tensor.values);
                    }
                    // Names sort as numbers: there are fewer than ten.
                    Experts::Stacked => {
                        let name = format!("blk.{layer}.ffn_{own}_exps.weight");
                        stacks.entry(name).or_default().push(tensor);
                    }
                }
                continue;
            }
            let own = match stem {
                "post_attention_layernorm" => attention_post,
                _ => find(LAYER_NAMES, stem),
            };
            self.add(
                &format!("blk.{layer}.{own}.{kind}"),
                &tensor.shape,
                &tensor.values,
            );
        }
        for (name, stack) in stacks {
            let shape = [&[stack.len()][..], &stack[0].shape].concat();
            let values: Vec<f32> = stack.into_iter().flat_map(|tensor| tensor.values).collect();
            self.add(&name, &shape, &values);
        }
    }
}

fn find(names: &[(&'static str, &'static str)], stem: &str) -> &'static str {
    let row = names.iter().find(|(from, _)| *from == stem);
    row.unwrap_or_else(|| panic!("no converter knows {stem}")).1
}

fn read_tensors(file: &SafeTensors<'_>) -> BTreeMap<String, Tensor> {
    file.tensors()
        .into_iter()
        .map(|(name, view)| {
            let halves = view.data().as_chunks().0.iter();
            let values = halves
                .map(|&bytes| bf16::from_le_bytes(bytes).to_f32())
                .collect();
            let shape = view.shape().to_vec();
            (name, Tensor { shape, values })
        })
        .collect()
}

impl Tensor {
    fn row_len(&self) -> usize {
        self.shape[1..].iter().product()
    }

    /// Rows of each head from `first half, second half` to pairs.
    fn paired(&self, head_dim: usize) -> Tensor {
        let rows: Vec<&[f32]> = self.values.chunks_exact(self.row_len()).collect();
        let from = |row_idx: usize| {
            let (head, within) = (row_idx / head_dim, row_idx % head_dim);
            rows[head * head_dim + within / 2 + within % 2 * head_dim / 2]
        };
        Tensor {
            shape: self.shape.clone(),
            values: (0..rows.len())
                .flat_map(|row_idx| from(row_idx).iter().copied())
                .collect(),
        }
    }

    /// Transposed.
    fn turned(&self) -> Tensor {
        let (num_rows, row_len) = (self.shape[0], self.row_len());
        let column = |col: usize| (0..num_rows).map(move |row| self.values[row * row_len + col]);
        Tensor {
            shape: vec![row_len, num_rows],
            values: (0..row_len).flat_map(column).collect(),
        }
    }
}

/// As converters compute them: long waves are divided by `factor`, short ones kept.
fn llama3_divisors(num_dims: usize, number: &dyn Fn(&str) -> f64) -> Vec<f32> {
    let (low, high) = (number("low_freq_factor"), number("high_freq_factor"));
    let (factor, original) = (number("factor"), number("original_max_position_embeddings"));
    let divisor = |pair_idx: usize| {
        let exponent = (2 * pair_idx) as f64 / num_dims as f64;
        let turns = original / (TAU * number("rope_theta").powf(exponent));
        match turns {
            turns if turns > high => 1.0,
            turns if turns < low => factor,
            turns => {
                let kept = (turns - low) / (high - low);
                1.0 / ((1.0 - kept) / factor + kept)
            }
        }
    };
    (0..num_dims / 2)
        .map(|pair_idx| divisor(pair_idx) as f32)
        .collect()
}
