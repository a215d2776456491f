//! What tests of several crates share: tiny models, a writer of GGUF files that can be broken on purpose, and
//! where the real models and the reference values are.
//!
//! The one idea: a test builds the file it needs. [`tiny`] makes complete models of a few hundred kilobytes from a
//! fixed seed; [`gguf`] remembers where every field of a file lies, so that a test can change exactly one.
//!
//! Not here: anything of ours. This crate must not use the code it helps to test, so it writes files its own way.

#![forbid(unsafe_code)]

pub mod encode;
pub mod gguf;
#[cfg(feature = "mock")]
pub mod mock;
mod random;
pub mod tiny;

pub use random::Random;

use std::env;
use std::path::{Path, PathBuf};

/// The real models tests can ask for, and their files in the cache.
const REAL_MODELS: [(&str, &str); 2] = [
    ("smollm2-135m", "SmolLM2-135M-Instruct.Q4_1.gguf"),
    ("gemma3-270m", "gemma-3-270m-q4_k_m.gguf"),
];

/// The file of a real model, if it has been fetched (`fulcrum pull NAME`, which `cargo xtask ci` does).
///
/// A test that gets `None` has said "skipped" and should return.
///
/// # Panics
///
/// If there is no model of that name, or it is absent although `FULCRUM_REQUIRE_MODELS=1`.
pub fn real_model(name: &str) -> Option<PathBuf> {
    let (_, file_name) = REAL_MODELS
        .iter()
        .find(|(known, _)| *known == name)
        .unwrap_or_else(|| panic!("no real model is called {name:?}"));
    let path = cache_folder()?.join("models").join(file_name);
    if path.is_file() {
        return Some(path);
    }
    let required = env::var("FULCRUM_REQUIRE_MODELS").is_ok_and(|value| value == "1");
    assert!(
        !required,
        "FULCRUM_REQUIRE_MODELS=1, but {} is not there",
        path.display()
    );
    println!("skipped: {} is not there", path.display());
    None
}

fn cache_folder() -> Option<PathBuf> {
    let from_env = |key: &str| {
        env::var_os(key)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    from_env("FULCRUM_CACHE")
        .or_else(|| from_env("XDG_CACHE_HOME").map(|folder| folder.join("fulcrum")))
        .or_else(|| from_env("HOME").map(|folder| folder.join(".cache/fulcrum")))
}

/// The folder of reference values: `FULCRUM_FIXTURES`, or `../shared/fixtures` beside the workspace.
///
/// A test that gets `None` has said "skipped" and should return.
///
/// # Panics
///
/// If `FULCRUM_FIXTURES` is set but no folder: a typing error must not turn tests off.
pub fn fixtures() -> Option<PathBuf> {
    if let Some(folder) = env::var_os("FULCRUM_FIXTURES").map(PathBuf::from) {
        assert!(
            folder.is_dir(),
            "FULCRUM_FIXTURES={} is no folder",
            folder.display()
        );
        return Some(folder);
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/fixtures");
    if folder.is_dir() {
        return Some(folder);
    }
    println!("skipped: {} is not there", folder.display());
    None
}
