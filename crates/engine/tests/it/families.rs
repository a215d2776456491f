//! A tiny checkpoint of every decoder family through the whole engine: the greedy continuation that transformers
//! computed, from an empty prefix cache and from a full one.
//!
//! What the decoder computes without an engine is compared in the crate `model`; here blocks, steps and the cache
//! must not change it. The checkpoints are those of the shared fixtures.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::{EngineLimits, FinishReason, PrefixCache};
use formats::safetensors::Safetensors;
use model::runner::{BLOCK_TOKENS, Runner as _};
use model::{KvBudget, LoadOptions, Precision, Source};
use text::Tokenizer;

use crate::lab::*;

/// The folders of all families; none without the fixtures.
fn checkpoints() -> Vec<PathBuf> {
    let Some(fixtures) = testkit::fixtures() else {
        return Vec::new();
    };
    let entries = std::fs::read_dir(fixtures.join("arch")).expect("the fixtures are whole");
    let mut folders: Vec<PathBuf> = entries
        .map(|entry| entry.expect("it can be listed").path())
        .collect();
    folders.sort();
    assert!(!folders.is_empty());
    folders
}

fn ids(file: &Safetensors, name: &str) -> Vec<u32> {
    let bytes = file.tensor(name).expect("it is there").bytes;
    let chunks = bytes.as_chunks().0.iter();
    chunks
        .map(|bytes| u32::try_from(i64::from_le_bytes(*bytes)).expect("a token id"))
        .collect()
}

/// An engine with a prefix cache on a folder, in 32-bit floats.
fn serve(folder: &Path) -> Bench {
    let source = Source::open(folder).expect("a sound folder");
    let options = LoadOptions {
        precision: Precision::Exact,
        threads: NonZeroUsize::MIN,
        kv_budget: KvBudget::Blocks(32),
        context: None,
        kv_type: None,
    };
    let runner = model::load(&source, &options).expect("a sound model");
    let shape = runner.shape();
    let tokenizer = Arc::new(Tokenizer::without_text(shape.vocab, &[]));
    let limits = EngineLimits {
        prompt_rows_max: 64,
        // Less than a prompt, so that it is computed in chunks.
        step_tokens_max: 24,
        num_sequences_max: 4,
        context_max: shape.context_max,
        num_waiting_max: 4,
        num_waiting_tokens_max: 10_000,
        prefix_cache: PrefixCache::On,
    };
    let log = Log::default();
    let observer = Box::new(log.clone());
    let started = engine::start(Box::new(runner), tokenizer, limits, observer);
    Bench::new(started, Gate::default(), log)
}

/// Case D1, over all families.
#[test]
fn every_family_goes_on_as_the_reference_does_with_and_without_cached_blocks() {
    for folder in checkpoints() {
        let family = folder.display();
        let reference = Safetensors::open(&folder.join("reference.safetensors"));
        let reference = reference.expect("the fixture is sound");
        let (prompt, greedy) = (ids(&reference, "input_ids"), ids(&reference, "greedy"));
        assert!(prompt.len() > BLOCK_TOKENS, "{family}: nothing to cache");
        let bench = serve(&folder);
        let ask = || {
            let told = bench.ask(request(&prompt, greedy.len() as u32));
            assert_eq!(told.tokens, greedy, "{family}");
            assert_eq!(told.finished.reason, FinishReason::Length, "{family}");
            told.num_cached.expect("it started") as usize
        };
        assert_eq!(ask(), 0, "{family}");
        // Every whole block, but never the last token: its logits are needed.
        let num_cached = (prompt.len() - 1) / BLOCK_TOKENS * BLOCK_TOKENS;
        assert_eq!(ask(), num_cached, "{family}");
    }
}
