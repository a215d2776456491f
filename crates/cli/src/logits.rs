//! `fulcrum logits`: a model's raw output, for comparing with other engines.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use formats::safetensors::{Dtype, NewTensor, write_safetensors};
use model::runner::Runner as _;
use text::SpecialText;

use crate::args::LogitsArgs;
use crate::open::{self, KvPositions, Wanted};
use crate::weights;

/// Runs the subcommand.
pub fn logits(args: LogitsArgs) -> anyhow::Result<ExitCode> {
    let source = open::source(&Wanted::parse(&args.model.model)?.path()?)?;
    let ids = match (&args.ids, &args.prompt) {
        (Some(path), _) => read_ids(path)?,
        (None, Some(prompt)) => {
            let tokenizer = open::text_side(&source)?.tokenizer;
            if !tokenizer.has_text() {
                bail!("this folder has no tokenizer.json: --ids takes token ids");
            }
            tokenizer
                .encode_with_bos(prompt, SpecialText::Parse)
                .into_iter()
                .map(|token| token.0)
                .collect()
        }
        (None, None) => unreachable!("the flags demand one of them"),
    };
    if ids.is_empty() {
        bail!("there are no tokens to compute");
    }
    let context_max = model::inspect(&source)
        .spec
        .map_or(usize::MAX, |spec| spec.context_max);
    if ids.len() > context_max {
        bail!(
            "{} tokens are more than the context of {context_max}",
            ids.len()
        );
    }
    let rows = args.rows.unwrap_or_else(|| (0..ids.len()).collect());
    let weights = if args.exact {
        weights::exact(&source)?
    } else {
        weights::choose(&source, &args.model.compute)?
    };
    eprintln!("{}", weights.line());
    let mut runner = open::runner(
        &source,
        &args.model.compute,
        weights.precision,
        KvPositions::Exactly(ids.len()),
        NonZeroUsize::new(ids.len()),
    )?;
    drop(source);
    let vocab = runner.shape().vocab;
    let values = score(&mut runner, &ids, &rows)?;
    let bytes: Vec<u8> = values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    let tensor = NewTensor {
        name: "logits",
        dtype: Dtype::F32,
        shape: &[rows.len(), vocab],
        bytes: &bytes,
    };
    write_safetensors(&args.out, &[tensor])?;
    eprintln!(
        "wrote logits [{}, {vocab}] to {}",
        rows.len(),
        args.out.display()
    );
    Ok(ExitCode::SUCCESS)
}

/// A JSON list of token ids.
fn read_ids(path: &Path) -> anyhow::Result<Vec<u32>> {
    /// The longest context there is, a million tokens, with every id written out.
    const BYTES_MAX: u64 = 16 << 20;
    let text = std::fs::File::open(path)
        .and_then(|file| open::read_text(file, BYTES_MAX))
        .with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text)
        .with_context(|| format!("{} is not a JSON list of token ids", path.display()))
}

/// Logits of `rows`, in that order: `[rows.len(), vocab]`.
fn score(runner: &mut model::CpuRunner, ids: &[u32], rows: &[usize]) -> anyhow::Result<Vec<f32>> {
    let vocab = runner.shape().vocab;
    let mut values = vec![0.0; rows.len() * vocab];
    let wanted: BTreeSet<usize> = rows.iter().copied().collect();
    model::score(runner, ids, &wanted, |position, logits| {
        // A row asked for twice is written twice.
        for (row_idx, _) in rows.iter().enumerate().filter(|(_, row)| **row == position) {
            values[row_idx * vocab..][..vocab].copy_from_slice(logits);
        }
    })?;
    Ok(values)
}
