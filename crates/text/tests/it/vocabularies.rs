//! Small vocabularies, written as GGUF files in memory.

use formats::gguf::Gguf;
use testkit::gguf::Builder;
use text::Tokenizer;

pub const NORMAL: i32 = 1;
pub const UNKNOWN: i32 = 2;
pub const CONTROL: i32 = 3;
pub const USER_DEFINED: i32 = 4;
pub const BYTE: i32 = 6;

/// Tokens with their types, in the order of their ids.
#[derive(Clone, Default)]
pub struct Tokens {
    pub texts: Vec<String>,
    pub types: Vec<i32>,
}

impl Tokens {
    pub fn push(&mut self, text: &str, token_type: i32) {
        self.texts.push(text.to_owned());
        self.types.push(token_type);
    }

    fn add_to(&self, builder: Builder) -> Builder {
        builder
            .with("tokenizer.ggml.tokens", self.texts.clone())
            .with("tokenizer.ggml.token_type", self.types.clone())
    }
}

/// GPT-2's alphabet: the character that stands for each byte.
pub fn byte_letters() -> Vec<char> {
    let mut spare = 0x100..;
    (0..=255_u8)
        .map(|byte| match byte {
            0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => byte.into(),
            _ => char::from_u32(spare.next().unwrap()).unwrap(),
        })
        .collect()
}

/// A byte-level vocabulary: `specials`, every byte, and what `merges` (pairs with `_` for a space) make.
pub fn bpe(pre: &str, specials: &[(&str, i32)], merges: &[(String, String)]) -> Builder {
    let mut tokens = Tokens::default();
    for (text, token_type) in specials {
        tokens.push(text, *token_type);
    }
    for letter in byte_letters() {
        tokens.push(&letter.to_string(), NORMAL);
    }
    for (left, right) in merges {
        tokens.push(&format!("{left}{right}"), NORMAL);
    }
    let lines: Vec<String> = merges.iter().map(|(l, r)| format!("{l} {r}")).collect();
    tokens
        .add_to(Builder::new())
        .with("tokenizer.ggml.model", "gpt2")
        .with("tokenizer.ggml.pre", pre)
        .with("tokenizer.ggml.merges", lines)
}

/// A SentencePiece vocabulary: `<unk>`, `<s>`, `</s>`, every byte, then `pieces`, the better the earlier.
pub fn spm(pieces: &[&str]) -> Builder {
    let mut tokens = Tokens::default();
    tokens.push("<unk>", UNKNOWN);
    tokens.push("<s>", CONTROL);
    tokens.push("</s>", CONTROL);
    for byte in 0..=255 {
        tokens.push(&format!("<0x{byte:02X}>"), BYTE);
    }
    for piece in pieces {
        tokens.push(piece, NORMAL);
    }
    let scores: Vec<f32> = (0..tokens.texts.len()).map(|idx| -(idx as f32)).collect();
    tokens
        .add_to(Builder::new())
        .with("tokenizer.ggml.model", "llama")
        .with("tokenizer.ggml.scores", scores)
        .with("tokenizer.ggml.bos_token_id", 1_u32)
        .with("tokenizer.ggml.eos_token_id", 2_u32)
        .with("tokenizer.ggml.unknown_token_id", 0_u32)
}

pub fn tokenizer(builder: &Builder) -> Tokenizer {
    try_tokenizer(builder).unwrap()
}

pub fn try_tokenizer(builder: &Builder) -> Result<Tokenizer, text::TokenizerError> {
    Tokenizer::from_gguf(&Gguf::parse(builder.build().bytes).unwrap())
}

/// The tokens' own texts, for drawing: `a|b`.
pub fn drawn(tokenizer: &Tokenizer, tokens: &[text::TokenId]) -> String {
    let texts: Vec<&str> = tokens
        .iter()
        .map(|&token| tokenizer.token_text(token).unwrap())
        .collect();
    texts.join("|")
}
