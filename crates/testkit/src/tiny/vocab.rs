//! The two vocabularies of the tiny models: every byte, the control tokens of their families, and a few dozen words.

use crate::gguf::Builder;

/// Types of tokens in `tokenizer.ggml.token_type`.
const NORMAL: i32 = 1;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const BYTE: i32 = 6;

/// A chat template in the ChatML manner.
pub const CHAT_TEMPLATE: &str = "\
{%- for message in messages -%}
{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|im_start|>assistant\n' }}
{%- endif -%}
";

/// The same for the turns of Gemma, whose assistant is called `model`.
const GEMMA_CHAT_TEMPLATE: &str = "\
{{- bos_token -}}
{%- for message in messages -%}
{%- set role = 'model' if message['role'] == 'assistant' else message['role'] -%}
{{ '<start_of_turn>' + role + '\n' + message['content'] + '<end_of_turn>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<start_of_turn>model\n' }}
{%- endif -%}
";

/// Pairs in the order they merge. `_` is a space. Each side is a byte or made by an earlier line.
const MERGES: &str = "\
_ t
_ a
h e
i n
_t he
r e
o n
_ s
_ w
e r
_ o
a t
n d
i t
_ c
e s
_a nd
o r
_o f
_ b
_ f
in g
o u
_ in
_ m
_ p
a n
e n
_t o
i s
_w or
l e
_ d
_ h
a l
_ is
a r
_ y
_y ou
e d
_ l
l l
_h e
he ll
hell o
l d
_wor ld
_wor d
_t h
_th at
i on
1 2
_ _
__ __
";

/// Byte-level BPE in the manner of GPT-2.
pub(super) struct Bpe {
    pub(super) tokens: Vec<String>,
    merges: Vec<String>,
}

impl Bpe {
    pub(super) fn new() -> Bpe {
        let mut tokens: Vec<String> = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
            .map(str::to_owned)
            .to_vec();
        let letters = byte_letters();
        tokens.extend(letters.iter().map(|letter| letter.to_string()));
        let space = letters[usize::from(b' ')].to_string();
        let mut merges = Vec::new();
        for line in MERGES.lines() {
            let (left, right) = line.split_once(' ').expect("a merge is a pair");
            let [left, right] = [left, right].map(|side| side.replace('_', &space));
            for side in [&left, &right] {
                assert!(
                    tokens.contains(side),
                    "{side} of merge {line:?} is no token yet"
                );
            }
            let merged = format!("{left}{right}");
            if !tokens.contains(&merged) {
                tokens.push(merged);
                merges.push(format!("{left} {right}"));
            }
        }
        Bpe { tokens, merges }
    }

    pub(super) fn add_to(self, builder: Builder) -> Builder {
        let types: Vec<i32> = self
            .tokens
            .iter()
            .map(|token| {
                if token.starts_with("<|") {
                    CONTROL
                } else {
                    NORMAL
                }
            })
            .collect();
        builder
            .with("tokenizer.ggml.model", "gpt2")
            .with("tokenizer.ggml.pre", "smollm")
            .with("tokenizer.ggml.add_bos_token", false)
            .with("tokenizer.ggml.add_space_prefix", false)
            .with("tokenizer.ggml.tokens", self.tokens)
            .with("tokenizer.ggml.token_type", types)
            .with("tokenizer.ggml.merges", self.merges)
            .with("tokenizer.ggml.bos_token_id", 1u32)
            .with("tokenizer.ggml.eos_token_id", 2u32)
            .with("tokenizer.ggml.unknown_token_id", 0u32)
            .with("tokenizer.ggml.padding_token_id", 2u32)
            .with("tokenizer.chat_template", CHAT_TEMPLATE)
    }
}

/// The letter that stands for each byte: itself if it is printable in Latin-1, else the next free one from 256 up.
fn byte_letters() -> Vec<char> {
    let mut next = 256u32;
    (0..=255u8)
        .map(|byte| match byte {
            b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff => char::from(byte),
            _ => {
                next += 1;
                char::from_u32(next - 1).expect("these are assigned letters")
            }
        })
        .collect()
}

/// SentencePiece with scores and byte fallback, in the manner of Gemma.
pub(super) struct Spm {
    pub(super) tokens: Vec<String>,
    scores: Vec<f32>,
    types: Vec<i32>,
}

impl Spm {
    pub(super) fn new() -> Spm {
        let mut vocab = Spm {
            tokens: Vec::new(),
            scores: Vec::new(),
            types: Vec::new(),
        };
        for control in [
            "<pad>",
            "<eos>",
            "<bos>",
            "<unk>",
            "<start_of_turn>",
            "<end_of_turn>",
        ] {
            vocab.push(control, -1000.0, CONTROL);
        }
        for user_defined in ["\n", "\n\n", "  ", "<table>"] {
            vocab.push(user_defined, -1000.0, USER_DEFINED);
        }
        for byte in 0..=255u8 {
            vocab.push(&format!("<0x{byte:02X}>"), 0.0, BYTE);
        }
        // A piece's score is the negative of its rank: earlier merges win.
        let mut score = 0.0;
        for line in MERGES.lines() {
            let piece = line.replace(' ', "").replace('_', "\u{2581}");
            if !vocab.tokens.contains(&piece) {
                vocab.push(&piece, score, NORMAL);
                score -= 1.0;
            }
        }
        let letters = (b'!'..=b'~')
            .map(char::from)
            .chain("\u{2581}\u{e9}\u{fc}\u{df}\u{4f60}".chars());
        for letter in letters {
            vocab.push(&letter.to_string(), score, NORMAL);
            score -= 1.0;
        }
        vocab
    }

    fn push(&mut self, token: &str, score: f32, token_type: i32) {
        self.tokens.push(token.to_owned());
        self.scores.push(score);
        self.types.push(token_type);
    }

    pub(super) fn add_to(self, builder: Builder) -> Builder {
        builder
            .with("tokenizer.ggml.model", "llama")
            .with("tokenizer.ggml.pre", "default")
            .with("tokenizer.ggml.tokens", self.tokens)
            .with("tokenizer.ggml.scores", self.scores)
            .with("tokenizer.ggml.token_type", self.types)
            .with("tokenizer.ggml.bos_token_id", 2u32)
            .with("tokenizer.ggml.eos_token_id", 1u32)
            .with("tokenizer.ggml.unknown_token_id", 3u32)
            .with("tokenizer.ggml.padding_token_id", 0u32)
            .with("tokenizer.ggml.add_bos_token", true)
            .with("tokenizer.ggml.add_eos_token", false)
            .with("tokenizer.ggml.add_space_prefix", false)
            .with("tokenizer.chat_template", GEMMA_CHAT_TEMPLATE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_token_appears_twice() {
        let [bpe, spm] = [Bpe::new().tokens, Spm::new().tokens];
        for tokens in [bpe, spm] {
            let distinct: HashSet<&String> = tokens.iter().collect();
            assert_eq!(distinct.len(), tokens.len());
            assert!(tokens.len() > 300, "{}", tokens.len());
        }
    }
}
