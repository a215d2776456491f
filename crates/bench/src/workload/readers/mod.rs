//! Data files of other people: conversations, and the lengths and times of real requests.
//!
//! The one idea: what a file says is taken as it is or refused with its line. Nothing is guessed but the format, and
//! that is said.
//!
//! | format | is | has times |
//! |---|---|---|
//! | `sharegpt` | JSON: a list of conversations | no |
//! | `prompts` | JSON Lines: a prompt each | no |
//! | `mooncake` | JSON Lines: lengths and ids of prefix blocks | yes |
//! | `azure`, `burstgpt` | CSV: lengths | yes |
//!
//! Not here: how records become conversations (`recorded`).

// JSON Lines with a bound on the line.
mod lines;
// Conversations with an assistant.
mod sharegpt;
// One prompt a line.
mod prompts;
// A trace with prefix blocks.
mod mooncake;
// Traces as tables.
mod table;

use std::path::Path;

use serde::Deserialize;

use super::recorded::{Content, Record};
use super::{LIMITS, WorkloadError};
use crate::summary::Warning;

/// What a data file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// A JSON list of conversations with an assistant.
    Sharegpt,
    /// JSON Lines: `{"prompt": …}`, `{"text": …}` or `{"messages": […]}`.
    Prompts,
    /// JSON Lines: `timestamp`, `input_length`, `output_length`, `hash_ids`.
    Mooncake,
    /// CSV: `TIMESTAMP`, `ContextTokens`, `GeneratedTokens`.
    Azure,
    /// CSV: `Timestamp`, `Request tokens`, `Response tokens`.
    Burstgpt,
}

/// What the timestamps of a Mooncake trace count from. Both are in use, and look alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Timestamps {
    /// From the line before.
    Delta,
    /// From the beginning.
    Cumulative,
}

/// How a data file is to be read.
#[derive(Clone, Debug)]
pub struct TraceOptions {
    /// None: by its content.
    pub format: Option<Format>,
    /// Of a Mooncake trace. None: cumulative if they never go back, else delta; the description says which.
    pub timestamps: Option<Timestamps>,
    /// Tokens of a block of a Mooncake trace: 512 in the published ones.
    pub block_tokens: u64,
    /// Turns taken of a conversation at most.
    pub turns_max: u64,
}

/// What a file holds.
#[derive(Debug)]
pub(super) struct Reading {
    /// At least one. All with times, ascending and from 0, or all without.
    pub(super) records: Vec<Record>,
    pub(super) warnings: Vec<Warning>,
    /// What was read, and how.
    pub(super) description: String,
}

/// A file while it is read.
#[derive(Clone, Copy)]
struct Source<'a> {
    path: &'a Path,
    bytes: &'a [u8],
}

impl Default for TraceOptions {
    fn default() -> TraceOptions {
        TraceOptions {
            format: None,
            timestamps: None,
            block_tokens: 512,
            turns_max: LIMITS.turns_max,
        }
    }
}

impl Format {
    fn name(self) -> &'static str {
        match self {
            Format::Sharegpt => "sharegpt",
            Format::Prompts => "prompts",
            Format::Mooncake => "mooncake",
            Format::Azure => "azure",
            Format::Burstgpt => "burstgpt",
        }
    }
}

/// Reads a data file.
pub(super) fn read(
    path: &Path,
    bytes: &[u8],
    options: &TraceOptions,
) -> Result<Reading, WorkloadError> {
    // A byte order mark, as spreadsheets write it.
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    let source = Source { path, bytes };
    if bytes.trim_ascii().is_empty() {
        return Err(source.fault("is empty"));
    }
    let format = match options.format {
        Some(format) => format,
        None => source.guess()?,
    };
    let mut reading = match format {
        Format::Sharegpt => sharegpt::read(source, options.turns_max)?,
        Format::Prompts => prompts::read(source)?,
        Format::Mooncake => mooncake::read(source, options)?,
        Format::Azure => table::read(source, &table::AZURE)?,
        Format::Burstgpt => table::read(source, &table::BURSTGPT)?,
    };
    if reading.records.is_empty() {
        return Err(source.fault(&format!(
            "holds no usable record of format {}",
            format.name()
        )));
    }
    let num_records = reading.records.len();
    let note = std::mem::take(&mut reading.description);
    let guessed = if options.format.is_some() {
        ""
    } else {
        ", recognised by its content"
    };
    reading.description = format!(
        "{num_records} records of format {}{guessed}{note}",
        format.name()
    );
    order_by_time(&mut reading);
    Ok(reading)
}

/// Times ascend from 0; where a file is out of order, that is said.
fn order_by_time(reading: &mut Reading) {
    let records = &mut reading.records;
    let due = |record: &Record| record.due_s.unwrap_or(0.0);
    let num_back = records
        .windows(2)
        .filter(|pair| due(&pair[1]) < due(&pair[0]))
        .count();
    if num_back > 0 {
        records.sort_by(|left, right| due(left).total_cmp(&due(right)));
        reading.warnings.push(Warning {
            code: "trace_out_of_order".to_owned(),
            text: format!(
                "{num_back} of {} requests of the trace are earlier than the line before",
                records.len()
            ),
            advice: "they are asked in the order of their times; check that the file is one trace"
                .to_owned(),
        });
    }
    let first = records
        .first()
        .and_then(|record| record.due_s)
        .unwrap_or(0.0);
    for record in records {
        record.due_s = record.due_s.map(|due| due - first);
    }
}

impl Source<'_> {
    fn fault(&self, reason: &str) -> WorkloadError {
        WorkloadError::Data {
            path: self.path.to_owned(),
            reason: reason.to_owned(),
        }
    }

    fn record_fault(&self, line: u64, reason: impl Into<String>) -> WorkloadError {
        WorkloadError::Record {
            path: self.path.to_owned(),
            line,
            reason: reason.into(),
        }
    }

    /// Tells a file's format by its beginning.
    fn guess(&self) -> Result<Format, WorkloadError> {
        let text = self.bytes.trim_ascii_start();
        let line = text.split(|&byte| byte == b'\n').next().unwrap_or_default();
        match text.first() {
            Some(b'[') => Ok(Format::Sharegpt),
            Some(b'{') => Ok(
                match line.len() <= LIMITS.line_bytes_max && lines::has_key(line, "input_length") {
                    true => Format::Mooncake,
                    false => Format::Prompts,
                },
            ),
            _ => {
                let header = String::from_utf8_lossy(line).to_lowercase();
                match (header.contains("contexttokens"), header.contains("request tokens")) {
                    (true, _) => Ok(Format::Azure),
                    (_, true) => Ok(Format::Burstgpt),
                    _ => Err(self.fault(
                        "is of no known format: neither a JSON list (sharegpt), nor JSON Lines (prompts, mooncake), \
                         nor CSV with the columns of azure or burstgpt",
                    )),
                }
            }
        }
    }

    /// One more record, if there is room.
    fn push(&self, records: &mut Vec<Record>, record: Record) -> Result<(), WorkloadError> {
        if records.len() >= LIMITS.records_max {
            return Err(self.fault(&format!("has more than {} records", LIMITS.records_max)));
        }
        records.push(record);
        Ok(())
    }

    /// A length that a request can have.
    fn length(&self, line: u64, name: &str, value: f64) -> Result<u64, WorkloadError> {
        let max = LIMITS.text_tokens_max;
        if value.is_finite() && value.fract() == 0.0 && (0.0..=max as f64).contains(&value) {
            return Ok(value as u64);
        }
        Err(self.record_fault(
            line,
            format!("{name} is {value}; it must be a whole number from 0 to {max}"),
        ))
    }
}

/// Says how many records were left out, if any.
fn skipped(num: u64, why: &str) -> Option<Warning> {
    (num > 0).then(|| Warning {
        code: "records_skipped".to_owned(),
        text: format!("{num} records were left out: {why}"),
        advice: "check that this is what the data means".to_owned(),
    })
}

/// A record that is lengths.
fn lengths(due_s: f64, lengths: super::recorded::Lengths) -> Record {
    Record {
        due_s: Some(due_s),
        content: Content::Lengths(lengths),
    }
}
