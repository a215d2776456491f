//! Folders as Hugging Face keeps models, against transformers: every family, under both styles of keys.
//!
//! `shared/fixtures/arch` holds random-weight checkpoints with logits that transformers computed in 32-bit floats
//! at every position, and the greedy continuation. A small copy of one family's description stays here for the
//! refusals.

use std::fs;
use std::path::{Path, PathBuf};

use model::runner::{LogitRows, Runner};
use model::{CpuRunner, Precision, Source};
use safetensors::SafeTensors;

use crate::support::{argmax, batch_of, first_blocks, fixture, options, sequence};

/// What transformers computed.
pub(crate) struct Reference {
    pub(crate) ids: Vec<u32>,
    /// `[T, V]`.
    pub(crate) logits: Vec<Vec<f32>>,
    pub(crate) greedy: Vec<u32>,
}

impl Reference {
    pub(crate) fn read(folder: &Path) -> Reference {
        let bytes = fs::read(folder.join("reference.safetensors")).unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let ids = |name: &str| -> Vec<u32> {
            let data = tensors.tensor(name).unwrap().data().to_vec();
            data.as_chunks()
                .0
                .iter()
                .map(|&bytes| i64::from_le_bytes(bytes) as u32)
                .collect()
        };
        let logits = tensors.tensor("logits").unwrap();
        let vocab = logits.shape()[1];
        let values: Vec<f32> = logits
            .data()
            .as_chunks()
            .0
            .iter()
            .map(|&bytes| f32::from_le_bytes(bytes))
            .collect();
        Reference {
            ids: ids("input_ids"),
            logits: values.chunks(vocab).map(<[f32]>::to_vec).collect(),
            greedy: ids("greedy"),
        }
    }
}

/// A copy of a fixture whose description has the name that loaders look for.
fn with_config(folder: &Path, config: &str) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    fs::copy(folder.join(config), copy.path().join("config.json")).unwrap();
    fs::copy(
        folder.join("model.safetensors"),
        copy.path().join("model.safetensors"),
    )
    .unwrap();
    copy
}

pub(crate) fn load(folder: &Path, precision: Precision) -> CpuRunner {
    let source = Source::open(folder).unwrap();
    model::load(&source, &options(precision))
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
}

/// Logits of all positions, computed in chunks.
pub(crate) fn in_chunks(runner: &mut CpuRunner, ids: &[u32], chunk_len: usize) -> Vec<Vec<f32>> {
    let blocks = first_blocks(ids.len());
    let mut rows = Vec::new();
    for (chunk_idx, chunk) in ids.chunks(chunk_len).enumerate() {
        let batch = batch_of(&[sequence(
            chunk,
            chunk_idx * chunk_len,
            LogitRows::All,
            &blocks,
        )]);
        let mut logits = runner.forward(&batch).unwrap();
        rows.extend((0..chunk.len()).map(|row_idx| logits.row_mut(row_idx).to_vec()));
    }
    rows
}

fn deviation(row: &[f32]) -> f32 {
    let mean = row.iter().sum::<f32>() / row.len() as f32;
    (row.iter().map(|value| (value - mean).powi(2)).sum::<f32>() / row.len() as f32).sqrt()
}

/// The largest distance of any logit, in standard deviations of its row.
pub(crate) fn distance(actual: &[Vec<f32>], expected: &[Vec<f32>]) -> f32 {
    assert_eq!(actual.len(), expected.len());
    let of_row = |(actual, expected): (&Vec<f32>, &Vec<f32>)| {
        assert_eq!(actual.len(), expected.len());
        let apart = actual.iter().zip(expected).map(|(a, b)| (a - b).abs());
        apart.fold(0.0, f32::max) / deviation(expected)
    };
    actual.iter().zip(expected).map(of_row).fold(0.0, f32::max)
}

/// Every folder of the fixtures under each of its descriptions.
pub(crate) fn each_fixture(check: impl Fn(&str, &Path, &Reference)) {
    let Some(root) = fixture("arch") else { return };
    let mut folders: Vec<PathBuf> = fs::read_dir(&root)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    folders.sort();
    assert!(folders.len() >= 20, "{} families", folders.len());
    for folder in folders {
        let reference = Reference::read(&folder);
        for config in ["config.json", "config.legacy.json"] {
            let copy = with_config(&folder, config);
            let name = format!("{}/{config}", folder.file_name().unwrap().to_string_lossy());
            check(&name, copy.path(), &reference);
        }
    }
}

#[test]
fn every_family_matches_transformers_at_every_position() {
    each_fixture(|name, folder, reference| {
        let mut runner = load(folder, Precision::Exact);
        let apart = distance(
            &in_chunks(&mut runner, &reference.ids, reference.ids.len()),
            &reference.logits,
        );
        println!("{name}: {apart:.1e}");
        assert!(apart < 2e-3, "{name}: {apart} deviations apart");
    });
}

#[test]
fn chunks_do_not_change_a_bit_in_any_family() {
    each_fixture(|name, folder, reference| {
        let mut runner = load(folder, Precision::Exact);
        let whole = in_chunks(&mut runner, &reference.ids, reference.ids.len());
        assert_eq!(in_chunks(&mut runner, &reference.ids, 7), whole, "{name}");
    });
}

#[test]
fn every_family_goes_on_as_transformers_does() {
    each_fixture(|name, folder, reference| {
        let mut runner = load(folder, Precision::Exact);
        let mut ids = reference.ids.clone();
        for &next in &reference.greedy {
            let logits = in_chunks(&mut runner, &ids, ids.len());
            assert_eq!(
                argmax(&logits[ids.len() - 1]),
                next as usize,
                "{name} after {} tokens",
                ids.len()
            );
            ids.push(next);
        }
    });
}

/// Packed weights stay as the folder has them, and activations are rounded: near, not equal.
#[test]
fn every_family_is_served_close_to_the_reference() {
    each_fixture(|name, folder, reference| {
        let mut runner = load(folder, Precision::Packed);
        let apart = distance(
            &in_chunks(&mut runner, &reference.ids, reference.ids.len()),
            &reference.logits,
        );
        println!("{name}: {apart:.1e}");
        // Random weights amplify: eight bits of a bfloat16 and as many of its product, layer by layer.
        assert!(apart < 0.5, "{name}: {apart} deviations apart");
    });
}

/// A copy of a fixture whose description says something else about the head.
fn with_tie(name: &str, is_tied: bool) -> Option<(tempfile::TempDir, Reference)> {
    let folder = fixture(&format!("arch/{name}"))?;
    let copy = with_config(&folder, "config.json");
    let path = copy.path().join("config.json");
    let mut config: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    config["tie_word_embeddings"] = is_tied.into();
    fs::write(&path, config.to_string()).unwrap();
    Some((copy, Reference::read(&folder)))
}

/// Case B6.
#[test]
fn a_head_that_is_there_is_used_whatever_the_description_says() {
    let Some((folder, reference)) = with_tie("llama", true) else {
        return;
    };
    let mut runner = load(folder.path(), Precision::Exact);
    let logits = in_chunks(&mut runner, &reference.ids, reference.ids.len());
    assert!(distance(&logits, &reference.logits) < 2e-3);
}

/// Case B6.
#[test]
fn a_head_that_is_neither_there_nor_tied_is_missing() {
    let Some((folder, _)) = with_tie("llama-tied", false) else {
        return;
    };
    let source = Source::open(folder.path()).unwrap();
    let error = model::load(&source, &options(Precision::Exact))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("`lm_head.weight` [64, 320] is missing"),
        "{error}"
    );
}
