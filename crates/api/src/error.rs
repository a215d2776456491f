//! Why a request cannot be read. Every case is the caller's fault (400) and names the
//! field; none repeats text the caller sent, which may be huge or hostile.

use serde_json::Value;

/// Why a request body was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The bytes are not text.
    #[error("the body is not valid UTF-8 (first bad byte at {at_byte})")]
    NotUtf8 {
        /// Offset of the first bad byte.
        at_byte: usize,
    },
    /// The text is not JSON.
    #[error("the body is not valid JSON: {reason} at line {line} column {column}")]
    Syntax {
        /// What the parser stumbled over.
        reason: String,
        /// 1-based line.
        line: usize,
        /// 1-based column.
        column: usize,
    },
    /// An object names a key twice; two readers would disagree about which counts.
    #[error("the body has a key twice in {path}")]
    DuplicateKey {
        /// Where, as in `messages[0]`; `one of its objects` where that would repeat much text.
        path: String,
    },
    /// The body is JSON but no object.
    #[error("the body must be a JSON object, not {got}")]
    NotAnObject {
        /// What it is.
        got: &'static str,
    },
    /// A field that must be there is not.
    #[error("'{param}' is required: {expected}")]
    Missing {
        /// The field.
        param: String,
        /// What belongs there.
        expected: String,
    },
    /// A field has the wrong type, or a value outside its bounds.
    #[error("'{param}' must be {expected}, not {got}")]
    Invalid {
        /// The field, with its path.
        param: String,
        /// What is allowed.
        expected: String,
        /// What came, in a few words.
        got: String,
    },
    /// Two fields contradict each other.
    #[error("'{param}' {reason}")]
    Contradiction {
        /// The field to change.
        param: String,
        /// Why it cannot be so.
        reason: String,
    },
    /// The field is known, but what it asks for is not built.
    #[error("'{param}' is not supported by this server{}", allowed(.accepted))]
    Unsupported {
        /// The field, with its path.
        param: String,
        /// Values that are accepted because they ask for nothing; may be empty.
        accepted: String,
    },
}

fn allowed(accepted: &str) -> String {
    if accepted.is_empty() {
        String::new()
    } else {
        format!(" (only {accepted} is accepted)")
    }
}

impl RequestError {
    /// The field at fault, for `error.param`; `None` if the body as a whole is.
    pub fn param(&self) -> Option<&str> {
        match self {
            RequestError::NotUtf8 { .. }
            | RequestError::Syntax { .. }
            | RequestError::DuplicateKey { .. }
            | RequestError::NotAnObject { .. } => None,
            RequestError::Missing { param, .. }
            | RequestError::Invalid { param, .. }
            | RequestError::Contradiction { param, .. }
            | RequestError::Unsupported { param, .. } => Some(param),
        }
    }

    /// The same error about a field that the request knows by another name: for requests that
    /// were translated before they were read.
    pub fn renamed(mut self, rename: impl FnOnce(&str) -> String) -> RequestError {
        match &mut self {
            RequestError::NotUtf8 { .. }
            | RequestError::Syntax { .. }
            | RequestError::DuplicateKey { .. }
            | RequestError::NotAnObject { .. } => (),
            RequestError::Missing { param, .. }
            | RequestError::Invalid { param, .. }
            | RequestError::Contradiction { param, .. }
            | RequestError::Unsupported { param, .. } => *param = rename(param),
        }
        self
    }

    /// The machine-readable kind, for `error.code`.
    pub fn code(&self) -> &'static str {
        match self {
            RequestError::NotUtf8 { .. }
            | RequestError::Syntax { .. }
            | RequestError::DuplicateKey { .. }
            | RequestError::NotAnObject { .. } => "invalid_json",
            RequestError::Missing { .. } => "missing_required_parameter",
            RequestError::Invalid { .. } | RequestError::Contradiction { .. } => "invalid_value",
            RequestError::Unsupported { .. } => "unsupported_parameter",
        }
    }

    pub(crate) fn invalid(
        param: impl Into<String>,
        expected: impl Into<String>,
        got: &Value,
    ) -> RequestError {
        RequestError::Invalid {
            param: param.into(),
            expected: expected.into(),
            got: describe(got),
        }
    }
}

/// A value in a few words: numbers as they are, everything else by its kind alone.
pub(crate) fn describe(value: &Value) -> String {
    match value {
        Value::Number(number) => number.to_string(),
        Value::Bool(flag) => flag.to_string(),
        Value::String(text) if text.is_empty() => "an empty string".to_owned(),
        Value::Array(items) if items.is_empty() => "an empty list".to_owned(),
        other => kind(other).to_owned(),
    }
}

/// The JSON kind of a value, with its article.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
