//! Which files of a repository make up a model.
//!
//! One GGUF file, or a folder of safetensors with the small files that describe them. Never guesses between
//! several: the list is shown and the user names one.

use anyhow::bail;

use super::name::HubName;
use crate::words::{WithHint as _, megabytes, printable};

/// A file of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    /// Its path in the repository, checked to stay below a folder.
    pub path: String,
    /// Its size, if the hub tells.
    pub num_bytes: Option<u64>,
}

/// What is fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Selected {
    /// One file that is a whole model.
    Gguf(Listed),
    /// Weights and what describes them.
    Folder(Vec<Listed>),
}

impl Selected {
    pub(super) fn files(&self) -> &[Listed] {
        match self {
            Selected::Gguf(file) => std::slice::from_ref(file),
            Selected::Folder(files) => files,
        }
    }
}

/// Files of a folder besides its weights, as far as they say something about the model.
const DESCRIPTIONS: &[&str] = &[
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "model.safetensors.index.json",
];

/// Files named in an error; more would bury it.
const NUM_SHOWN_MAX: usize = 24;

/// Chooses among `files`, in the order the hub lists them.
///
/// # Errors
///
/// If `name` asks for a file that is not there, or for none where there are several.
pub(super) fn select(name: &HubName, files: &[Listed]) -> anyhow::Result<Selected> {
    let ggufs: Vec<&Listed> = files
        .iter()
        .filter(|file| has_ending(file, ".gguf"))
        .collect();
    if let Some(wanted) = &name.file {
        return named(name, wanted, files, &ggufs);
    }
    let is_weights = |file: &&Listed| !file.path.contains('/') && has_ending(file, ".safetensors");
    let mut weights: Vec<&Listed> = files.iter().filter(is_weights).collect();
    // The same weights a second time, under their maker's own names.
    if weights.iter().any(|file| file.path.starts_with("model")) {
        weights.retain(|file| file.path.starts_with("model"));
    }
    let has_config = files.iter().any(|file| file.path == "config.json");
    match ggufs.as_slice() {
        _ if !weights.is_empty() && has_config => Ok(Selected::Folder(
            files
                .iter()
                .filter(|file| weights.contains(file) || describes(file))
                .cloned()
                .collect(),
        )),
        [] => bail!("{name} holds neither a GGUF file nor config.json with safetensors"),
        [only] => whole(only),
        several => Err(anyhow::anyhow!("{name} holds {} GGUF files", several.len())).hint(|| {
            format!(
                "name one, as in hf:{}:{}: {}",
                name.repo,
                printable(&several[0].path),
                shown(several)
            )
        }),
    }
}

/// The file that `wanted` names, by its whole path or by a word that only one GGUF file has.
fn named(
    name: &HubName,
    wanted: &str,
    files: &[Listed],
    ggufs: &[&Listed],
) -> anyhow::Result<Selected> {
    let word = wanted.to_ascii_lowercase();
    let matching: Vec<&Listed> = match files.iter().find(|file| file.path == wanted) {
        Some(file) => vec![file],
        None => ggufs
            .iter()
            .copied()
            .filter(|file| has_word(&file.path, &word))
            .collect(),
    };
    match matching.as_slice() {
        [only] if has_ending(only, ".gguf") => whole(only),
        [only] => bail!(
            "{} is no GGUF file; a folder of safetensors is fetched whole: hf:{}",
            printable(&only.path),
            name.repo
        ),
        [] => Err(anyhow::anyhow!("hf:{} has no file {wanted:?}", name.repo))
            .hint(|| format!("its GGUF files: {}", shown(ggufs))),
        several => Err(anyhow::anyhow!(
            "{wanted:?} fits {} files of hf:{}",
            several.len(),
            name.repo
        ))
        .hint(|| format!("name one: {}", shown(several))),
    }
}

fn whole(file: &Listed) -> anyhow::Result<Selected> {
    if is_split(&file.path) {
        bail!(
            "{} is one part of a split model; parts are not read, only whole GGUF files",
            printable(&file.path)
        );
    }
    Ok(Selected::Gguf(file.clone()))
}

/// `model-00001-of-00003.gguf`.
fn is_split(path: &str) -> bool {
    let stem = path.strip_suffix(".gguf").unwrap_or(path);
    let mut parts = stem.rsplit('-');
    let is_number = |part: Option<&str>| {
        part.is_some_and(|part| part.len() == 5 && part.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let total = parts.next();
    is_number(total)
        && total != Some("00001")
        && parts.next() == Some("of")
        && is_number(parts.next())
}

/// Whether a file's name has `word` as a part of its own: `Q4_K` is no part of `m-Q4_K_M.gguf`.
fn has_word(path: &str, word: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path).to_ascii_lowercase();
    let stem = name.strip_suffix(".gguf").unwrap_or(&name);
    let is_inside = |letter: Option<char>| {
        letter.is_some_and(|letter| letter.is_alphanumeric() || letter == '_')
    };
    stem.match_indices(word).any(|(at, _)| {
        !is_inside(stem[..at].chars().next_back())
            && !is_inside(stem[at + word.len()..].chars().next())
    })
}

fn describes(file: &Listed) -> bool {
    DESCRIPTIONS.contains(&file.path.as_str())
        || (file.path.starts_with("chat_templates/") && has_ending(file, ".jinja"))
}

fn has_ending(file: &Listed, ending: &str) -> bool {
    file.path.to_ascii_lowercase().ends_with(ending)
}

fn shown(files: &[&Listed]) -> String {
    let one = |file: &&Listed| match file.num_bytes {
        Some(num_bytes) => format!("{} ({})", printable(&file.path), megabytes(num_bytes)),
        None => printable(&file.path),
    };
    let mut words: Vec<String> = files.iter().take(NUM_SHOWN_MAX).map(one).collect();
    if files.len() > NUM_SHOWN_MAX {
        words.push(format!("and {} more", files.len() - NUM_SHOWN_MAX));
    }
    if words.is_empty() {
        "none".to_owned()
    } else {
        words.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(typed: &str, paths: &[&str]) -> Result<Vec<String>, String> {
        let name = HubName::parse(typed).expect("the name is sound");
        let listed = |path: &&str| Listed {
            path: (*path).to_owned(),
            num_bytes: Some(1),
        };
        let files: Vec<Listed> = paths.iter().map(listed).collect();
        match select(&name, &files) {
            Ok(selected) => Ok(selected
                .files()
                .iter()
                .map(|file| file.path.clone())
                .collect()),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn a_lone_gguf_file_needs_no_name_and_several_need_one() {
        assert_eq!(
            chosen("a/b", &["README.md", "m.gguf"]),
            Ok(vec!["m.gguf".into()])
        );
        let two = ["m-Q4_K_M.gguf", "m-Q8_0.gguf"];
        assert!(
            chosen("a/b", &two)
                .expect_err("which one?")
                .contains("2 GGUF files")
        );
        assert_eq!(
            chosen("a/b:m-Q8_0.gguf", &two),
            Ok(vec!["m-Q8_0.gguf".into()])
        );
        assert_eq!(chosen("a/b:q4_k_m", &two), Ok(vec!["m-Q4_K_M.gguf".into()]));
        assert!(
            chosen("a/b:Q4_K", &two).is_err(),
            "a part of a word is none"
        );
        assert!(
            chosen("a/b:m", &two)
                .expect_err("both have it")
                .contains("fits 2 files")
        );
    }

    #[test]
    fn a_folder_is_its_weights_and_what_describes_them() {
        let files = [
            "README.md",
            "config.json",
            "tokenizer.json",
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
            "model.safetensors.index.json",
            "consolidated.safetensors",
            "original/model.safetensors",
            "pytorch_model.bin",
            "onnx/model.onnx",
        ];
        let expected = [
            "config.json",
            "tokenizer.json",
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
            "model.safetensors.index.json",
        ];
        assert_eq!(
            chosen("a/b", &files),
            Ok(expected.map(String::from).to_vec())
        );
    }

    #[test]
    fn what_is_no_model_is_refused_by_name() {
        assert!(
            chosen("a/b", &["README.md"])
                .expect_err("no model")
                .contains("neither")
        );
        assert!(
            chosen("a/b", &["model.safetensors"]).is_err(),
            "nothing describes it"
        );
        assert!(
            chosen("a/b:x.gguf", &["m.gguf"])
                .expect_err("not there")
                .contains("no file")
        );
        assert!(
            chosen("a/b:config.json", &["config.json", "m.gguf"])
                .expect_err("no model")
                .contains("no GGUF")
        );
        assert!(
            chosen("a/b", &["m-00001-of-00002.gguf"])
                .expect_err("a part")
                .contains("split")
        );
    }
}
