//! Log-probabilities on the wire: chat's list of objects, completions' parallel lists, and
//! vLLM's list of a prompt.

use std::collections::BTreeMap;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::answer::Never;

/// JSON has no infinities; what is impossible is told as vLLM tells it.
const LOGPROB_MIN: f32 = -9999.0;

/// A natural logarithm of a probability, finite.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, ToSchema)]
pub struct Logprob(f32);

impl Logprob {
    /// Anything below -9999 becomes -9999.
    pub fn new(value: f32) -> Logprob {
        Logprob(value.max(LOGPROB_MIN))
    }
}

/// `logprobs` of a chat choice.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ChatLogprobs {
    /// One per token, the end token included.
    pub content: Vec<ChatToken>,
    /// `null`.
    pub refusal: Never,
}

/// A token of a chat answer.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ChatToken {
    /// Its text; bytes that are no text are written `\xf0`.
    pub token: String,
    /// How likely it was.
    pub logprob: Logprob,
    /// Its bytes, which may be a part of a character.
    pub bytes: Vec<u8>,
    /// The likeliest in its place.
    pub top_logprobs: Vec<TopToken>,
}

/// One of the likeliest tokens in a place.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct TopToken {
    /// As in [`ChatToken`].
    pub token: String,
    /// How likely it was.
    pub logprob: Logprob,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// `logprobs` of a completion choice: four lists of one length.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct CompletionLogprobs {
    /// Texts; bytes that are no text are written `bytes:\xf0`.
    pub tokens: Vec<String>,
    /// `null` for the first token of a prompt: nothing precedes it.
    pub token_logprobs: Vec<Option<Logprob>>,
    /// The likeliest in each place, and the token that stands there.
    pub top_logprobs: Vec<Option<TopMap>>,
    /// Where each token begins, in characters of the choice's text.
    pub text_offset: Vec<usize>,
}

/// Token names to log-probabilities, in order, each name once: of tokens with equal names
/// the first counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TopMap(Vec<(String, Logprob)>);

impl TopMap {
    /// Adds an entry unless its name is there.
    pub fn add(&mut self, name: String, logprob: Logprob) {
        if self.0.iter().all(|(other, _)| *other != name) {
            self.0.push((name, logprob));
        }
    }
}

impl PartialSchema for TopMap {
    fn schema() -> RefOr<Schema> {
        BTreeMap::<String, Logprob>::schema()
    }
}

impl ToSchema for TopMap {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        BTreeMap::<String, Logprob>::schemas(schemas);
    }
}

impl Serialize for TopMap {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, logprob) in &self.0 {
            map.serialize_entry(name, logprob)?;
        }
        map.end()
    }
}

/// A place of vLLM's `prompt_logprobs`: token ids and what is known of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PromptPlace(Vec<(u32, PromptToken)>);

/// A token that could stand in a place of the prompt.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct PromptToken {
    /// How likely it was.
    pub logprob: Logprob,
    /// 1 is the likeliest.
    pub rank: u32,
    /// Its text.
    pub decoded_token: String,
}

impl PromptPlace {
    /// Adds a token unless it is there.
    pub fn add(&mut self, id: u32, token: PromptToken) {
        if self.0.iter().all(|(other, _)| *other != id) {
            self.0.push((id, token));
        }
    }
}

impl PartialSchema for PromptPlace {
    fn schema() -> RefOr<Schema> {
        BTreeMap::<String, PromptToken>::schema()
    }
}

impl ToSchema for PromptPlace {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        BTreeMap::<String, PromptToken>::schemas(schemas);
    }
}

impl Serialize for PromptPlace {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (id, token) in &self.0 {
            map.serialize_entry(id, token)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_tokens_with_one_name_the_first_counts() {
        let mut map = TopMap::default();
        for (name, logprob) in [("a", -0.5), ("b", -1.5), ("a", -2.5)] {
            map.add(name.to_owned(), Logprob::new(logprob));
        }
        let json = serde_json::to_string(&map).unwrap();
        assert_eq!(json, r#"{"a":-0.5,"b":-1.5}"#);
    }

    #[test]
    fn an_impossible_token_has_a_number() {
        let json = serde_json::to_string(&Logprob::new(f32::NEG_INFINITY)).unwrap();
        assert_eq!(json, "-9999.0");
    }

    #[test]
    fn ids_are_keys_of_a_prompts_places() {
        let mut place = PromptPlace::default();
        let token = PromptToken {
            logprob: Logprob::new(-0.25),
            rank: 1,
            decoded_token: "é".to_owned(),
        };
        place.add(7, token);
        let json = serde_json::to_string(&place).unwrap();
        let expected = r#"{"7":{"logprob":-0.25,"rank":1,"decoded_token":"é"}}"#;
        assert_eq!(json, expected);
    }
}
