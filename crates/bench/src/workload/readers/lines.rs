//! JSON Lines: a value a line, none longer than [`LIMITS`] allow.
//!
//! Line ends may be LF or CRLF; blank lines mean nothing.

use serde::de::DeserializeOwned;

use super::Source;
use crate::workload::{LIMITS, WorkloadError};

/// Calls `each` with every value and its line.
pub(super) fn each<T: DeserializeOwned>(
    source: Source<'_>,
    mut each: impl FnMut(u64, T) -> Result<(), WorkloadError>,
) -> Result<(), WorkloadError> {
    for (idx, line) in source.bytes.split(|&byte| byte == b'\n').enumerate() {
        let line_number = idx as u64 + 1;
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        if line.len() > LIMITS.line_bytes_max {
            let reason = format!(
                "has {} bytes, at most {} are read",
                line.len(),
                LIMITS.line_bytes_max
            );
            return Err(source.record_fault(line_number, reason));
        }
        let value = serde_json::from_slice(line)
            .map_err(|error| source.record_fault(line_number, reason_of(&error)))?;
        each(line_number, value)?;
    }
    Ok(())
}

/// Whether a line is an object with that key.
pub(super) fn has_key(line: &[u8], key: &str) -> bool {
    let object: Result<serde_json::Map<String, serde_json::Value>, _> =
        serde_json::from_slice(line);
    object.is_ok_and(|object| object.contains_key(key))
}

/// What the parser says; its own line is always 1 here, and would mislead.
fn reason_of(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    format!(
        "{} (column {})",
        text.trim_end_matches(&place),
        error.column()
    )
}
