//! Rules about Rust files: the opening words, `unsafe`, threads, channels, clocks.
//!
//! Lines are matched, not parsed: a rule that needs a parser to be right belongs to clippy.

use std::path::PathBuf;

use crate::workspace;

/// One Rust file.
#[derive(Debug)]
pub struct Source {
    /// Relative to the root, with `/`.
    pub path: String,
    /// The whole text.
    pub text: String,
}

impl Source {
    /// Lines with their 1-based numbers, without those of the test module at the end. Only a
    /// module with a body ends what is shipped: `#[cfg(test)] mod definition;` stands at the top.
    fn shipped_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let is_test_file = self.path.contains("/tests/")
            || self.path.ends_with("/tests.rs")
            || self.path.contains("/examples/")
            || self.path.contains("/benches/");
        let num_shipped = match self.text.find("\n#[cfg(test)]\nmod tests {") {
            _ if is_test_file => 0,
            Some(at) => self.text[..=at].lines().count(),
            None => usize::MAX,
        };
        self.text
            .lines()
            .enumerate()
            .take(num_shipped)
            .map(|(idx, line)| (idx + 1, line))
            .filter(|(_, line)| !line.trim_start().starts_with("//"))
    }

    fn is_in(&self, places: &[&str]) -> bool {
        places.iter().any(|place| self.path.starts_with(place))
    }
}

/// Files and folders that may hold `unsafe` (DESIGN: only `tensor`, and the one that maps files).
const UNSAFE: &[&str] = &["crates/tensor/", "crates/formats/src/mapped.rs"];

/// Files that may start threads: the pool, the engine, and the crates that own a process.
const THREADS: &[&str] = &[
    "crates/tensor/src/pool",
    "crates/engine/src/engine.rs",
    "crates/engine/src/lib.rs",
    "crates/engine/src/masks.rs",
    "crates/engine/src/constrain/",
    // A server that must not share the client's thread: it measures it.
    "crates/bench/src/calibrate/loopback.rs",
    // The client's own, so that nothing delays it.
    "crates/bench/src/load/threads.rs",
    "crates/testkit/src/mock/tcp.rs",
    "crates/cli/",
    "xtask/",
];

/// Code whose results must not depend on when or where it runs.
const PURE: &[&str] = &["crates/sched/src/", "crates/engine/src/choose"];

/// Crates of rank 0 to 2: every public item is documented.
const DOCUMENTED: &[&str] = &[
    "tensor", "formats", "sched", "api", "text", "model", "engine",
];

/// Every Rust file of the project.
pub fn read_all() -> anyhow::Result<Vec<Source>> {
    let paths: Vec<PathBuf> = workspace::files(&["rs"])?;
    paths
        .into_iter()
        .map(|path| {
            let text = std::fs::read_to_string(workspace::root().join(&path))?;
            Ok(Source {
                path: path.to_string_lossy().replace('\\', "/"),
                text,
            })
        })
        .collect()
}

/// The faults of one file.
pub fn check(source: &Source) -> Vec<String> {
    let mut faults = Vec::new();
    if !source.text.starts_with("//!") {
        faults.push(format!("{}: does not open with `//!`", source.path));
    }
    // This file names what it looks for.
    let is_automation = source.path.starts_with("xtask/");
    for (line_idx, line) in source.shipped_lines() {
        let mut fault = |what: &str| faults.push(format!("{}:{line_idx}: {what}", source.path));
        let has_unsafe =
            line.contains("unsafe {") || line.contains("unsafe fn") || line.contains("unsafe impl");
        if has_unsafe && !is_automation && !source.is_in(UNSAFE) {
            fault("`unsafe` outside the places that may hold it");
        }
        if !is_automation
            && (line.contains("unbounded_channel") || line.contains("mpsc::channel()"))
        {
            fault("an unbounded channel");
        }
        if !is_automation
            && (line.contains("thread::spawn") || line.contains("thread::Builder"))
            && !source.is_in(THREADS)
        {
            fault("a thread started outside the pool and the engine");
        }
        if source.is_in(PURE)
            && (line.contains("Instant::now")
                || line.contains("SystemTime::now")
                || line.contains("rand::rng()"))
        {
            fault("time and chance are arguments here");
        }
    }
    faults.extend(unsafe_without_reason(source));
    faults
}

/// Every `unsafe` block has a `// SAFETY:` comment above it. (Clippy checks this too, but not in macros.)
fn unsafe_without_reason(source: &Source) -> Vec<String> {
    let lines: Vec<&str> = source.text.lines().collect();
    let mut faults = Vec::new();
    for (idx, line) in lines.iter().enumerate() {
        let is_block = line.contains("unsafe {") && !line.trim_start().starts_with("//");
        if !is_block || source.path.starts_with("xtask/") {
            continue;
        }
        // A statement may start a few lines above its block.
        let has_reason = lines[idx.saturating_sub(8)..=idx]
            .iter()
            .any(|above| above.contains("SAFETY:"));
        if !has_reason {
            faults.push(format!(
                "{}:{}: `unsafe` block without `// SAFETY:`",
                source.path,
                idx + 1
            ));
        }
    }
    faults
}

/// A kernel is a folder: an instruction set's file never stands without `scalar.rs`, and the
/// folder's tests run every instruction set there is.
pub fn simd_files_have_their_definition(sources: &[Source]) -> Vec<String> {
    let mut faults = Vec::new();
    for source in sources
        .iter()
        .filter(|source| source.path.starts_with("crates/tensor/src/ops/"))
    {
        let Some((folder, file)) = source.path.rsplit_once('/') else {
            continue;
        };
        if !file.starts_with("avx") {
            continue;
        }
        if !sources
            .iter()
            .any(|other| other.path == format!("{folder}/scalar.rs"))
        {
            faults.push(format!("{}: no scalar.rs beside it", source.path));
        }
        let is_tested = sources
            .iter()
            .filter(|other| other.path.starts_with(&format!("{folder}/")))
            .any(|other| other.text.contains("#[test]") && other.text.contains("Isa::available()"));
        if !is_tested {
            faults.push(format!(
                "{}: no test beside it runs `Isa::available()`",
                source.path
            ));
        }
    }
    faults
}

/// Crate roots carry the lints that the rules ask for.
pub fn lints_stand_in_crate_roots(sources: &[Source]) -> Vec<String> {
    let mut faults = Vec::new();
    for source in sources {
        let Some(name) = source.path.strip_prefix("crates/").and_then(|rest| {
            rest.strip_suffix("/src/lib.rs")
                .or(rest.strip_suffix("/src/main.rs"))
        }) else {
            continue;
        };
        let may_hold_unsafe = UNSAFE
            .iter()
            .any(|place| place.starts_with(&format!("crates/{name}/")));
        if !may_hold_unsafe && !source.text.contains("#![forbid(unsafe_code)]") {
            faults.push(format!("{}: needs `#![forbid(unsafe_code)]`", source.path));
        }
        if DOCUMENTED.contains(&name) && !source.text.contains("#![deny(missing_docs)]") {
            faults.push(format!("{}: needs `#![deny(missing_docs)]`", source.path));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults_of(path: &str, text: &str) -> Vec<String> {
        check(&Source {
            path: path.to_owned(),
            text: text.to_owned(),
        })
    }

    #[test]
    fn a_file_without_opening_words_is_a_fault() {
        assert_eq!(faults_of("crates/api/src/a.rs", "fn a() {}\n").len(), 1);
        assert_eq!(
            faults_of("crates/api/src/a.rs", "//! A.\nfn a() {}\n").len(),
            0
        );
    }

    #[test]
    fn unsafe_outside_its_places_or_without_its_reason_is_a_fault() {
        let bare = "//! A.\nfn a() {\n    unsafe { b() }\n}\n";
        assert_eq!(faults_of("crates/api/src/a.rs", bare).len(), 2);
        assert_eq!(faults_of("crates/tensor/src/a.rs", bare).len(), 1);
        let reasoned = "//! A.\nfn a() {\n    // SAFETY: b is safe.\n    unsafe { b() }\n}\n";
        assert_eq!(faults_of("crates/tensor/src/a.rs", reasoned).len(), 0);
    }

    #[test]
    fn clocks_in_the_scheduler_are_a_fault_but_not_in_its_tests() {
        assert_eq!(
            faults_of("crates/sched/src/a.rs", "//! A.\nlet t = Instant::now();\n").len(),
            1
        );
        assert_eq!(
            faults_of(
                "crates/sched/src/a.rs",
                "//! A.\n#[cfg(test)]\nmod tests {\n    let t = Instant::now();\n}\n"
            )
            .len(),
            0
        );
        assert_eq!(
            faults_of(
                "crates/engine/src/choose/a.rs",
                "//! A.\n#[cfg(test)]\nmod tests;\nlet t = Instant::now();\n"
            )
            .len(),
            1
        );
        assert_eq!(
            faults_of(
                "crates/server/src/a.rs",
                "//! A.\nlet t = Instant::now();\n"
            )
            .len(),
            0
        );
    }

    #[test]
    fn an_instruction_set_without_a_definition_is_a_fault() {
        let file = |path: &str, text: &str| Source {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        let alone = [file("crates/tensor/src/ops/dot/avx2.rs", "//! A.\n")];
        assert_eq!(simd_files_have_their_definition(&alone).len(), 2);
        let whole = [
            file("crates/tensor/src/ops/dot/avx2.rs", "//! A.\n"),
            file("crates/tensor/src/ops/dot/scalar.rs", "//! A.\n"),
            file(
                "crates/tensor/src/ops/dot/mod.rs",
                "//! A.\n#[test]\nfn a() { Isa::available() }\n",
            ),
        ];
        assert_eq!(simd_files_have_their_definition(&whole).len(), 0);
    }
}
