//! Bytes to a JSON object, refusing what two readers could understand differently.
//!
//! On top of `serde_json` (which bounds nesting at 128 levels, so ten thousand brackets
//! are a syntax error and not a stack overflow) this refuses invalid UTF-8, by offset
//! and without repeating it, and keys that appear twice, wherever they are.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::error::{RequestError, kind};

/// What the visitor reports for a repeated key; recognised again by [`refusal`].
const DUPLICATE: &str = "duplicate key";

/// Reads a request body.
///
/// # Errors
///
/// [`RequestError::NotUtf8`], [`RequestError::Syntax`], [`RequestError::DuplicateKey`]
/// and [`RequestError::NotAnObject`].
///
/// # Cost
///
/// Linear in the body.
pub fn object(body: &[u8]) -> Result<Map<String, Value>, RequestError> {
    let text = std::str::from_utf8(body).map_err(|error| RequestError::NotUtf8 {
        at_byte: error.valid_up_to(),
    })?;
    let mut reader = serde_json::Deserializer::from_str(text);
    let Unambiguous(value) =
        serde_path_to_error::deserialize(&mut reader).map_err(|error| refusal(&error))?;
    reader.end().map_err(|error| syntax(&error))?;
    match value {
        Value::Object(object) => Ok(object),
        other => Err(RequestError::NotAnObject { got: kind(&other) }),
    }
}

fn refusal(error: &serde_path_to_error::Error<serde_json::Error>) -> RequestError {
    if !error.inner().to_string().starts_with(DUPLICATE) {
        return syntax(error.inner());
    }
    // A path is made of the caller's own keys: told only while short and plain.
    let path = error.path().to_string();
    let told = path != "." && path.len() <= 64 && path.is_ascii();
    RequestError::DuplicateKey {
        path: if told {
            path
        } else {
            "one of its objects".to_owned()
        },
    }
}

fn syntax(error: &serde_json::Error) -> RequestError {
    // `serde_json` appends the position to its message; we keep it in fields.
    let message = error.to_string();
    let reason = message
        .rsplit_once(" at line ")
        .map_or(message.as_str(), |(reason, _)| reason);
    RequestError::Syntax {
        reason: reason.to_owned(),
        line: error.line(),
        column: error.column(),
    }
}

/// A JSON value in which no object names a key twice.
struct Unambiguous(Value);

impl<'de> Deserialize<'de> for Unambiguous {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Unambiguous, D::Error> {
        deserializer.deserialize_any(UnambiguousVisitor)
    }
}

struct UnambiguousVisitor;

impl<'de> Visitor<'de> for UnambiguousVisitor {
    type Value = Unambiguous;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Unambiguous, E> {
        Ok(Unambiguous(Value::Null))
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Unambiguous, E> {
        Ok(Unambiguous(Value::Bool(flag)))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Unambiguous, E> {
        Ok(Unambiguous(Value::Number(number.into())))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Unambiguous, E> {
        Ok(Unambiguous(Value::Number(number.into())))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Unambiguous, E> {
        // JSON text has no infinities; the parser already refused `1e999`.
        Ok(Unambiguous(
            Number::from_f64(number).map_or(Value::Null, Value::Number),
        ))
    }

    fn visit_str<E>(self, text: &str) -> Result<Unambiguous, E> {
        Ok(Unambiguous(Value::String(text.to_owned())))
    }

    fn visit_string<E>(self, text: String) -> Result<Unambiguous, E> {
        Ok(Unambiguous(Value::String(text)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Unambiguous, A::Error> {
        let mut list = Vec::new();
        while let Some(Unambiguous(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Unambiguous(Value::Array(list)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Unambiguous, A::Error> {
        let mut object = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let Unambiguous(value) = entries.next_value()?;
            if object.insert(key, value).is_some() {
                return Err(A::Error::custom(DUPLICATE));
            }
        }
        Ok(Unambiguous(Value::Object(object)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(body: &[u8]) -> RequestError {
        object(body).expect_err("must be refused")
    }

    /// Case A10.
    #[test]
    fn a_broken_body_is_refused_with_its_position() {
        for body in [
            "{:",
            "",
            "{",
            "{\"a\":",
            "{\"a\":1}x",
            "{\"a\":NaN}",
            "{\"a\":1e999}",
        ] {
            let error = refused(body.as_bytes());
            assert!(
                matches!(error, RequestError::Syntax { .. }),
                "{body}: {error}"
            );
        }
        for body in ["null", "[]", "1", "\"hi\""] {
            let error = refused(body.as_bytes());
            assert!(
                matches!(error, RequestError::NotAnObject { .. }),
                "{body}: {error}"
            );
        }
    }

    #[test]
    fn invalid_utf8_is_named_by_offset_and_not_repeated() {
        let error = refused(b"{\"a\":\"\xff\xfe\"}");
        assert_eq!(error, RequestError::NotUtf8 { at_byte: 6 });
        assert!(error.to_string().is_ascii());
    }

    #[test]
    fn ten_thousand_brackets_are_a_syntax_error() {
        let body = format!("{{\"a\":{}", "[".repeat(10_000));
        assert!(matches!(
            refused(body.as_bytes()),
            RequestError::Syntax { .. }
        ));
    }

    #[test]
    fn a_key_that_appears_twice_is_refused_at_any_depth() {
        let shallow = refused(br#"{"a":1,"a":1}"#);
        assert!(
            matches!(shallow, RequestError::DuplicateKey { .. }),
            "{shallow}"
        );
        let deep = refused(br#"{"messages":[{"role":"user","role":"system"}]}"#);
        assert_eq!(
            deep,
            RequestError::DuplicateKey {
                path: "messages[0]".to_owned()
            }
        );
    }

    #[test]
    fn what_is_well_formed_is_kept_in_order() {
        let read = object(br#"{"b":[1,-2,1.5,null,true,"\u00e9"],"a":{}}"#).unwrap();
        assert_eq!(
            serde_json::to_string(&read).unwrap(),
            r#"{"b":[1,-2,1.5,null,true,"é"],"a":{}}"#
        );
    }
}
