//! `/v1/embeddings`: texts, or token ids, to vectors.
//!
//! Source: the OpenAI API reference, "Embeddings".

use serde::Serialize;
use utoipa::ToSchema;

use crate::completion::{Bos, Prompt, read_prompts};
use crate::error::RequestError;
use crate::fields::{Endpoint, Fields};
use crate::urgency::Urgency;
use crate::{Limits, json};

/// An embedding request, read and checked as far as its text goes.
#[derive(Clone, Debug)]
pub struct EmbeddingRequest {
    /// The served name asked for.
    pub model: Option<String>,
    /// At least one; each becomes a vector of the same index.
    pub inputs: Vec<Prompt>,
    /// Whether text gets the model's BOS.
    pub bos: Bos,
    /// Leading values that are kept of a vector, at least 1; all if absent.
    pub dimensions: Option<u32>,
    /// How vectors are written.
    pub encoding: Encoding,
    /// How urgent it is; there is no tier.
    pub urgency: Urgency,
    /// Keys nobody knows, for the log.
    pub unknown: Vec<String>,
}

/// How a vector is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// As a list of numbers.
    Float,
    /// As the Base64 text of its 32-bit floats, little-endian.
    Base64,
}

impl EmbeddingRequest {
    /// Reads a request body.
    ///
    /// # Errors
    ///
    /// [`RequestError`], naming the field.
    pub fn parse(body: &[u8], limits: &Limits) -> Result<EmbeddingRequest, RequestError> {
        let mut fields = Fields::read(json::object(body)?, Endpoint::Embeddings)?;
        let input = fields.take("input").ok_or_else(|| RequestError::Missing {
            param: "input".to_owned(),
            expected: "a string, a list of strings, a list of token ids, or a list of such lists"
                .to_owned(),
        })?;
        let limits = Limits {
            num_prompts_max: limits.num_inputs_max,
            ..*limits
        };
        Ok(EmbeddingRequest {
            model: fields.text("model").map(str::to_owned),
            urgency: Urgency {
                service_tier: None,
                ..Urgency::read(&fields)
            },
            inputs: read_prompts("input", input, &limits)?,
            bos: match fields.flag("add_special_tokens") {
                Some(false) => Bos::Never,
                _ => Bos::ModelRule,
            },
            // The table bounds it.
            dimensions: fields
                .integer("dimensions")
                .and_then(|kept| u32::try_from(kept).ok()),
            encoding: match fields.text("encoding_format") {
                Some("base64") => Encoding::Base64,
                _ => Encoding::Float,
            },
            unknown: fields.unknown,
        })
    }
}

/// The answer.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct EmbeddingList<'a> {
    /// `list`.
    pub object: &'static str,
    /// One per input, in order.
    pub data: Vec<Embedding>,
    /// The served name.
    pub model: &'a str,
    /// Token counts.
    pub usage: EmbeddingUsage,
}

/// One vector.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Embedding {
    /// `embedding`.
    pub object: &'static str,
    /// Which input.
    pub index: usize,
    /// Its values, of length 1 as a whole.
    pub embedding: Vector,
}

/// A vector as it is written.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub enum Vector {
    /// Numbers.
    Float(Vec<f32>),
    /// Base64 of 32-bit floats, little-endian.
    Base64(String),
}

/// Token counts.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub struct EmbeddingUsage {
    /// Of all inputs.
    pub prompt_tokens: u64,
    /// The same.
    pub total_tokens: u64,
}

impl Vector {
    /// Writes a vector as asked.
    pub fn new(values: Vec<f32>, encoding: Encoding) -> Vector {
        match encoding {
            Encoding::Float => Vector::Float(values),
            Encoding::Base64 => {
                let bytes: Vec<u8> = values
                    .iter()
                    .flat_map(|value| value.to_le_bytes())
                    .collect();
                Vector::Base64(base64(&bytes))
            }
        }
    }
}

/// Base64 with padding (RFC 4648, section 4).
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |idx: usize| u32::from(group.get(idx).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * place)) as usize & 63];
            text.push(if place <= group.len() {
                char::from(letter)
            } else {
                '='
            });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 4648, section 10.
    #[test]
    fn base64_is_as_its_standard_has_it() {
        let pairs = [
            "", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy",
        ];
        for (len, expected) in pairs.into_iter().enumerate() {
            assert_eq!(base64(&b"foobar"[..len]), expected);
        }
    }

    #[test]
    fn a_vector_in_base64_is_little_endian() {
        let Vector::Base64(text) = Vector::new(vec![1.0, -2.0], Encoding::Base64) else {
            panic!("asked for base64")
        };
        assert_eq!(text, base64(&[0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0]));
    }
}
