//! Traces as CSV: the Azure LLM inference traces, and BurstGPT.
//!
//! The one idea: a column is found by its name, wherever it stands. Reading by place takes the answer's length for the
//! prompt's as soon as somebody adds a column.
//!
//! Names are compared without regard to case, spaces and underscores.
//!
//! Source: <https://github.com/Azure/AzurePublicDataset> (2023 and 2024), <https://github.com/HPMLL/BurstGPT>.

use super::{Reading, Source, lengths, skipped};
use crate::workload::recorded::Lengths;
use crate::workload::{LIMITS, WorkloadError};

/// The columns of a kind of trace.
pub(super) struct Columns {
    time: &'static str,
    prompt: &'static str,
    output: &'static str,
    clock: Clock,
}

/// How a table says when.
#[derive(Clone, Copy)]
enum Clock {
    /// `2023-11-16 18:15:46.6805900`, with or without an offset.
    Date,
    /// Seconds since the beginning.
    Seconds,
}

pub(super) const AZURE: Columns = Columns {
    time: "TIMESTAMP",
    prompt: "ContextTokens",
    output: "GeneratedTokens",
    clock: Clock::Date,
};

pub(super) const BURSTGPT: Columns = Columns {
    time: "Timestamp",
    prompt: "Request tokens",
    output: "Response tokens",
    clock: Clock::Seconds,
};

pub(super) fn read(source: Source<'_>, columns: &Columns) -> Result<Reading, WorkloadError> {
    let mut reader = csv::ReaderBuilder::new()
        .trim(csv::Trim::All)
        .from_reader(source.bytes);
    let header = reader
        .byte_headers()
        .map_err(|error| fault(source, &error))?
        .clone();
    let [time, prompt, output] =
        [columns.time, columns.prompt, columns.output].map(|name| column(source, &header, name));
    let (time, prompt, output) = (time?, prompt?, output?);
    let mut records = Vec::new();
    let mut num_skipped = 0;
    let mut row = csv::ByteRecord::new();
    while reader
        .read_byte_record(&mut row)
        .map_err(|error| fault(source, &error))?
    {
        let line = row.position().map_or(0, csv::Position::line);
        let cell =
            |idx: usize, name: &str| text(source, line, name, row.get(idx).unwrap_or_default());
        let due_s = match columns.clock {
            Clock::Date => seconds_of_date(source, line, cell(time, columns.time)?)?,
            Clock::Seconds => number(source, line, columns.time, cell(time, columns.time)?)?,
        };
        if !due_s.is_finite() || matches!(columns.clock, Clock::Seconds) && due_s < 0.0 {
            let reason = format!("{} is {due_s}; it must not be negative", columns.time);
            return Err(source.record_fault(line, reason));
        }
        let length = |idx, name| {
            let value = number(source, line, name, cell(idx, name)?)?;
            source.length(line, name, value)
        };
        let request = Lengths {
            num_prompt: length(prompt, columns.prompt)?,
            num_output: length(output, columns.output)?,
            blocks: Box::default(),
            num_blocks_seen: 0,
        };
        if request.num_prompt == 0 || request.num_output == 0 {
            num_skipped += 1;
            continue;
        }
        source.push(&mut records, lengths(due_s, request))?;
    }
    let why = "they have no prompt or no answer: the traces note failures so";
    Ok(Reading {
        records,
        warnings: skipped(num_skipped, why).into_iter().collect(),
        description: String::new(),
    })
}

/// The place of a column.
fn column(
    source: Source<'_>,
    header: &csv::ByteRecord,
    name: &str,
) -> Result<usize, WorkloadError> {
    let plain = |name: &[u8]| -> Vec<u8> {
        let is_letter = |byte: &u8| !b" _".contains(byte);
        name.iter()
            .filter(|byte| is_letter(byte))
            .map(u8::to_ascii_lowercase)
            .collect()
    };
    let wanted = plain(name.as_bytes());
    let mut places = (0..header.len()).filter(|&idx| plain(&header[idx]) == wanted);
    let names = || {
        let names = header.iter().map(String::from_utf8_lossy);
        let mut names = names.collect::<Vec<_>>().join(", ");
        names.truncate(names.floor_char_boundary(200));
        names
    };
    match (places.next(), places.next()) {
        (Some(place), None) => Ok(place),
        (None, _) => Err(source.fault(&format!("has no column {name:?}; it has {}", names()))),
        (Some(_), Some(_)) => Err(source.fault(&format!("has two columns {name:?}"))),
    }
}

fn text<'a>(
    source: Source<'_>,
    line: u64,
    name: &str,
    cell: &'a [u8],
) -> Result<&'a str, WorkloadError> {
    std::str::from_utf8(cell).map_err(|_| source.record_fault(line, format!("{name} is not UTF-8")))
}

fn number(source: Source<'_>, line: u64, name: &str, cell: &str) -> Result<f64, WorkloadError> {
    cell.parse().map_err(|_| {
        source.record_fault(
            line,
            format!("{name} is {:?}, not a number", shortened(cell)),
        )
    })
}

/// Seconds since 1970 of a date and time; one without an offset is taken as UTC, which moves all of them alike.
fn seconds_of_date(source: Source<'_>, line: u64, cell: &str) -> Result<f64, WorkloadError> {
    let timestamp = cell.parse::<jiff::Timestamp>().or_else(|_| {
        let date = cell.parse::<jiff::civil::DateTime>()?;
        date.to_zoned(jiff::tz::TimeZone::UTC)
            .map(|zoned| zoned.timestamp())
    });
    match timestamp {
        Ok(timestamp) => Ok(timestamp.as_nanosecond() as f64 / 1e9),
        Err(_) => {
            let reason = format!("TIMESTAMP is {:?}, not a date and time", shortened(cell));
            Err(source.record_fault(line, reason))
        }
    }
}

/// Enough of a cell to recognise it.
fn shortened(cell: &str) -> &str {
    &cell[..cell.floor_char_boundary(60)]
}

fn fault(source: Source<'_>, error: &csv::Error) -> WorkloadError {
    match error.position() {
        Some(position) => source.record_fault(position.line(), error.to_string()),
        None => source.fault(&error.to_string()),
    }
}

const _: () = assert!(
    LIMITS.text_tokens_max < 1 << 53,
    "lengths are read as floats"
);
