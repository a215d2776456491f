//! Mooncake traces: `{"timestamp": ms, "input_length": …, "output_length": …, "hash_ids": […]}` a line.
//!
//! The one idea: equal `hash_ids` are equal blocks of text, so the synthetic prompts share exactly the prefixes that
//! the real ones shared. An id stands for a block and all before it.
//!
//! Timestamps count from the beginning in some files and from the line before in others. The two look alike, and the
//! wrong one makes another trace of it, so it must be said, and is checked.
//!
//! Source: the trace that came with Qin et al. 2024, "Mooncake", <https://arxiv.org/abs/2407.00079>.

use std::collections::HashSet;

use serde::Deserialize;

use super::{Reading, Source, Timestamps, TraceOptions, lengths, lines, skipped};
use crate::workload::WorkloadError;
use crate::workload::recorded::Lengths;

/// So many ascending numbers are no accident.
const LINES_TO_JUDGE: usize = 16;

#[derive(Deserialize)]
struct Line {
    timestamp: f64,
    input_length: f64,
    output_length: f64,
    #[serde(default)]
    hash_ids: Vec<i64>,
}

pub(super) fn read(source: Source<'_>, options: &TraceOptions) -> Result<Reading, WorkloadError> {
    let block_tokens = options.block_tokens.max(1);
    let mut timestamps = Vec::new();
    let mut requests = Vec::new();
    let mut seen = HashSet::new();
    lines::each(source, |number, line: Line| {
        if !line.timestamp.is_finite() || line.timestamp < 0.0 {
            let reason = format!("timestamp is {}; it must not be negative", line.timestamp);
            return Err(source.record_fault(number, reason));
        }
        let num_prompt = source.length(number, "input_length", line.input_length)?;
        let num_output = source.length(number, "output_length", line.output_length)?;
        let num_blocks = num_prompt.div_ceil(block_tokens);
        let num_ids = line.hash_ids.len() as u64;
        if num_ids != num_blocks && num_ids > 0 {
            let reason = format!(
                "has {num_ids} hash_ids; {num_prompt} tokens in blocks of {block_tokens} are {num_blocks}"
            );
            return Err(source.record_fault(number, reason));
        }
        let blocks: Box<[u64]> = line.hash_ids.iter().map(|id| *id as u64).collect();
        let num_blocks_seen = blocks.iter().take_while(|id| seen.contains(*id)).count() as u64;
        seen.extend(blocks.iter().copied());
        timestamps.push(line.timestamp);
        requests.push(Lengths {
            num_prompt,
            num_output,
            blocks,
            num_blocks_seen,
        });
        Ok(())
    })?;
    let (kind, note) = kind_of(source, &timestamps, options.timestamps)?;
    let mut records = Vec::with_capacity(requests.len());
    let (mut clock_ms, mut num_skipped) = (0.0, 0);
    for (timestamp, request) in timestamps.into_iter().zip(requests) {
        clock_ms = match kind {
            Timestamps::Delta => clock_ms + timestamp,
            Timestamps::Cumulative => timestamp,
        };
        if request.num_prompt == 0 || request.num_output == 0 {
            num_skipped += 1;
            continue;
        }
        source.push(&mut records, lengths(clock_ms / 1000.0, request))?;
    }
    Ok(Reading {
        records,
        warnings: skipped(num_skipped, "they have no prompt or no answer")
            .into_iter()
            .collect(),
        description: note,
    })
}

/// What timestamps mean: as stated, if that can be; else by their looks.
fn kind_of(
    source: Source<'_>,
    timestamps: &[f64],
    stated: Option<Timestamps>,
) -> Result<(Timestamps, String), WorkloadError> {
    let num_back = timestamps
        .windows(2)
        .filter(|pair| pair[1] < pair[0])
        .count();
    let is_constant = timestamps.windows(2).all(|pair| pair[0] == pair[1]);
    let can_tell = timestamps.len() >= LINES_TO_JUDGE;
    match stated {
        None => {
            let kind = if num_back == 0 { Timestamps::Cumulative } else { Timestamps::Delta };
            let name = format!("{kind:?}").to_lowercase();
            Ok((kind, format!(", timestamps taken as {name} by their order")))
        }
        Some(Timestamps::Delta) if can_tell && num_back == 0 && !is_constant => Err(source.fault(
            "timestamps are stated to be \"delta\", but none is smaller than the one before: they look cumulative",
        )),
        // Some disorder is in real traces; every other line going back is not.
        Some(Timestamps::Cumulative) if can_tell && num_back * 4 > timestamps.len() => {
            Err(source.fault(&format!(
                "timestamps are stated to be \"cumulative\", but {num_back} of {} go back: they look like delta",
                timestamps.len()
            )))
        }
        Some(kind) => Ok((kind, format!(", timestamps {}", format!("{kind:?}").to_lowercase()))),
    }
}
