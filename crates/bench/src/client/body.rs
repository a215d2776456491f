//! What a request says: a conversation so far, in the words of one API.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::Api;
use crate::workload::{Message, OutputLength};

/// What this server is known to accept beyond the standard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dialect {
    /// Of the two APIs, the one that is asked.
    pub api: Api,
    /// `ignore_eos`: answers of an exact length.
    pub ignores_end: bool,
    /// `stream_options.continuous_usage_stats`: tokens of every event.
    pub counts_events: bool,
}

/// One request's content.
#[derive(Clone, Debug)]
pub struct Asked<'a> {
    /// The model's name, if one is given.
    pub model: Option<&'a str>,
    /// The conversation so far.
    pub messages: &'a [Message],
    /// `max_tokens`.
    pub num_output_tokens: Option<u64>,
    /// How that is meant.
    pub output: OutputLength,
    /// Fields over everything else, in order; null removes a field.
    pub extra: &'a [&'a Map<String, Value>],
}

impl Asked<'_> {
    /// The request's body.
    pub fn body(&self, dialect: Dialect) -> Bytes {
        let mut body = Map::new();
        if let Some(model) = self.model {
            body.insert("model".to_owned(), json!(model));
        }
        match dialect.api {
            Api::Chat => {
                let messages = self.messages.iter();
                let messages: Vec<Value> = messages
                    .map(|message| json!({"role": message.role.name(), "content": *message.text}))
                    .collect();
                body.insert("messages".to_owned(), Value::Array(messages));
            }
            Api::Completions => {
                let texts: Vec<&str> = self.messages.iter().map(|message| &*message.text).collect();
                body.insert("prompt".to_owned(), json!(texts.join("\n")));
            }
        }
        if let Some(num) = self.num_output_tokens {
            body.insert("max_tokens".to_owned(), json!(num));
            if self.output == OutputLength::Exact && dialect.ignores_end {
                body.insert("ignore_eos".to_owned(), json!(true));
            }
        }
        body.insert("temperature".to_owned(), json!(0));
        body.insert("stream".to_owned(), json!(true));
        let mut options = json!({"include_usage": true});
        if dialect.counts_events {
            options["continuous_usage_stats"] = json!(true);
        }
        body.insert("stream_options".to_owned(), options);
        for fields in self.extra {
            for (name, value) in *fields {
                if value.is_null() {
                    body.shift_remove(name);
                } else {
                    body.insert(name.clone(), value.clone());
                }
            }
        }
        Bytes::from(Value::Object(body).to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Role;

    fn body(api: Api, extra: &[&Map<String, Value>]) -> Value {
        let asked = Asked {
            model: Some("m"),
            messages: &[
                Message {
                    role: Role::System,
                    text: "Be brief.".into(),
                },
                Message {
                    role: Role::User,
                    text: "Why?".into(),
                },
            ],
            num_output_tokens: Some(7),
            output: OutputLength::Exact,
            extra,
        };
        let dialect = Dialect {
            api,
            ignores_end: true,
            counts_events: false,
        };
        serde_json::from_slice(&asked.body(dialect)).expect("JSON")
    }

    #[test]
    fn a_chat_request_has_the_conversation_and_asks_for_usage() {
        assert_eq!(
            body(Api::Chat, &[]),
            json!({
                "model": "m",
                "messages": [
                    {"role": "system", "content": "Be brief."},
                    {"role": "user", "content": "Why?"},
                ],
                "max_tokens": 7,
                "ignore_eos": true,
                "temperature": 0,
                "stream": true,
                "stream_options": {"include_usage": true},
            })
        );
    }

    #[test]
    fn a_completion_has_one_text() {
        assert_eq!(body(Api::Completions, &[])["prompt"], "Be brief.\nWhy?");
    }

    #[test]
    fn own_fields_replace_and_null_removes() {
        let own = json!({"temperature": null, "max_tokens": null, "max_completion_tokens": 9});
        let body = body(Api::Chat, &[own.as_object().expect("an object")]);
        assert_eq!(body.get("temperature"), None);
        assert_eq!(body.get("max_tokens"), None);
        assert_eq!(body["max_completion_tokens"], 9);
    }
}
