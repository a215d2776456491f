//! `ORG/REPO[@REVISION][:FILE]`, read and checked.
//!
//! Each part becomes part of a path on this disk and of an address, so only what the hub itself
//! allows is let through.

use std::fmt;

/// The hub's own bound on a repository's name is 96 letters; revisions and files are bounded for the disk's sake.
const PART_BYTES_MAX: usize = 96;
const REVISION_BYTES_MAX: usize = 200;
const FILE_BYTES_MAX: usize = 1024;

/// A repository of the hub, at a revision, and maybe one file of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubName {
    /// `org/repo`, or a bare `repo` of the hub's early days.
    pub repo: String,
    /// A branch, tag or commit; `main` unless named.
    pub revision: String,
    /// A file's path, or a word that only one GGUF file has in its name (`Q4_K_M`).
    pub file: Option<String>,
}

impl fmt::Display for HubName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "hf:{}", self.repo)?;
        if self.revision != "main" {
            write!(f, "@{}", self.revision)?;
        }
        match &self.file {
            Some(file) => write!(f, ":{file}"),
            None => Ok(()),
        }
    }
}

impl HubName {
    /// Reads what stands after `hf:`.
    pub fn parse(typed: &str) -> Result<HubName, String> {
        let (place, file) = match typed.split_once(':') {
            Some((place, file)) => (place, Some(file)),
            None => (typed, None),
        };
        let (repo, revision) = place.split_once('@').unwrap_or((place, "main"));
        let parts: Vec<&str> = repo.split('/').collect();
        if parts.len() > 2 || !parts.iter().all(|part| is_repo_part(part)) {
            return Err(format!("{repo:?} is not ORG/REPO"));
        }
        if revision.len() > REVISION_BYTES_MAX || !is_relative(revision) {
            return Err(format!("{revision:?} is no revision"));
        }
        if let Some(file) = file
            && !is_file_path(file)
        {
            return Err(format!("{file:?} is no file of a repository"));
        }
        Ok(HubName {
            repo: repo.to_owned(),
            revision: revision.to_owned(),
            file: file.map(str::to_owned),
        })
    }
}

/// Whether a path of a repository stays inside the folder it is put in, and can be typed.
pub(super) fn is_file_path(path: &str) -> bool {
    path.len() <= FILE_BYTES_MAX && is_relative(path)
}

fn is_repo_part(part: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let ends =
        |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    part.len() <= PART_BYTES_MAX
        && part.bytes().all(is_letter)
        && ends(part.bytes().next())
        && !part.contains("--")
        && !part.contains("..")
}

fn is_relative(path: &str) -> bool {
    let is_step = |step: &str| !step.is_empty() && step != "." && step != "..";
    let is_odd = |letter: char| letter.is_control() || "\\:*?\"<>|".contains(letter);
    path.split('/').all(is_step) && !path.chars().any(is_odd)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(typed: &str) -> (String, String, Option<String>) {
        let name = HubName::parse(typed).expect(typed);
        (name.repo, name.revision, name.file)
    }

    #[test]
    fn a_name_has_a_repository_and_maybe_a_revision_and_a_file() {
        let main = "main".to_owned();
        assert_eq!(parsed("a/b"), ("a/b".into(), main.clone(), None));
        assert_eq!(parsed("gpt2"), ("gpt2".into(), main.clone(), None));
        let file = Some("sub/m.Q4_0.gguf".to_owned());
        assert_eq!(parsed("a/b:sub/m.Q4_0.gguf"), ("a/b".into(), main, file));
        let file = Some("m.gguf".to_owned());
        assert_eq!(
            parsed("a/b@refs/pr/1:m.gguf"),
            ("a/b".into(), "refs/pr/1".into(), file)
        );
    }

    #[test]
    fn a_name_reads_as_it_was_typed() {
        for typed in ["a/b", "a/b@v1", "a/b:Q4_0", "a/b@v1:x/y.gguf"] {
            let name = HubName::parse(typed).expect(typed);
            assert_eq!(name.to_string(), format!("hf:{typed}"));
        }
    }

    #[test]
    fn nothing_leaves_the_cache_or_the_address() {
        for typed in [
            "",
            "/",
            "a/",
            "/b",
            "a/b/c",
            "../b",
            "a/..",
            "a/b--c",
            "a b/c",
            "a/b@",
            "a/b@../x",
            "a/b@x/../y",
            "a/b:",
            "a/b:/etc/passwd",
            "a/b:../x",
            "a/b:x/../../y",
            "a/b:x//y",
            "a/b:x\ny",
            "a/b:x\\y",
            "a/b:C:x",
            "-a/b",
            "a/.b",
            "a?x/b",
            "a/b#c",
        ] {
            assert!(HubName::parse(typed).is_err(), "{typed:?}");
        }
        assert!(HubName::parse(&format!("a/{}", "b".repeat(97))).is_err());
    }
}
