//! The text side of a model folder as the Hugging Face hub keeps it.
//!
//! What a GGUF file says in one place is spread over several files here, some of which are often absent:
//!
//! | file | what is read |
//! |---|---|
//! | `tokenizer.json` | the vocabulary and how text becomes tokens |
//! | `tokenizer_config.json`, `special_tokens_map.json` | which tokens begin and end texts, chat templates |
//! | `generation_config.json`, `config.json` | which tokens end an answer |
//! | `chat_template.jinja`, `chat_template.json`, `additional_chat_templates/NAME.jinja`, `chat_templates/NAME.jinja` | chat templates |
//!
//! The one idea: each fact has one place that wins, named where it is read. A folder without `tokenizer.json` is no
//! error: its model can still be given token ids.
//!
//! Not here: weights, and the shape of the model.
//!
//! Source: `transformers` (`tokenization_utils_base.py`, `generation/configuration_utils.py`).

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::tokenizer::{TextEnds, TokenId, Tokenizer, TokenizerError};
use crate::{ChatTemplate, SpecialText, TemplateError};

#[cfg(test)]
mod tests;

/// Bounds on the files of a folder.
struct Limits {
    /// Bytes of `tokenizer.json`. The largest we know has 35 million.
    tokenizer_bytes_max: u64,
    /// Bytes of each other file.
    settings_bytes_max: u64,
    /// Files of a folder of templates.
    templates_max: usize,
}

const LIMITS: Limits = Limits {
    tokenizer_bytes_max: 128 << 20,
    settings_bytes_max: 8 << 20,
    templates_max: 64,
};

/// Why a folder's text side cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// A file that is there cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file is larger than any sound one.
    #[error("{} has more than {bytes_max} bytes", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The limit.
        bytes_max: u64,
    },
    /// A folder of templates holds more files than any sound one.
    #[error("{} has more than {templates_max} files", folder.display())]
    TooManyTemplates {
        /// The folder of templates.
        folder: PathBuf,
        /// The limit.
        templates_max: usize,
    },
    /// A file is no JSON object, or one of its fields has the wrong type.
    #[error("{}: {reason}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The tokenizer is refused.
    #[error("{}", path.display())]
    Tokenizer {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: TokenizerError,
    },
    /// A chat template is refused.
    #[error("the chat template {name:?} of {}", folder.display())]
    Template {
        /// The folder.
        folder: PathBuf,
        /// `default`, `tool_use`, …
        name: String,
        /// Why.
        #[source]
        source: TemplateError,
    },
}

/// What a folder says about text.
#[derive(Debug)]
pub struct FolderText {
    /// The tokenizer; `None` if there is no `tokenizer.json`.
    pub tokenizer: Option<Tokenizer>,
    /// The chat template; `None` if there is none, or no tokenizer that could read what it writes.
    pub template: Option<ChatTemplate>,
    /// Tokens that end an answer, each once: the tokenizer's, or without one those that the configuration names.
    pub end_tokens: Vec<TokenId>,
}

impl FolderText {
    /// Reads the text side of the model in `folder`.
    ///
    /// # Errors
    ///
    /// What [`FolderError`] lists.
    ///
    /// # Cost
    ///
    /// Linear in the vocabulary: below a second for 262 144 tokens.
    pub fn open(folder: &Path) -> Result<FolderText, FolderError> {
        let settings = Settings::read(folder)?;
        let ends = settings.text_ends()?;
        let path = folder.join("tokenizer.json");
        let Some(json) = read(&path, LIMITS.tokenizer_bytes_max)? else {
            let end_tokens = ends.end_ids.iter().copied().map(TokenId).collect();
            return Ok(FolderText {
                tokenizer: None,
                template: None,
                end_tokens,
            });
        };
        let tokenizer = Tokenizer::from_json(&json, &ends)
            .map_err(|source| FolderError::Tokenizer { path, source })?;
        Ok(FolderText {
            template: settings.template(&tokenizer)?,
            end_tokens: tokenizer.end_tokens().to_vec(),
            tokenizer: Some(tokenizer),
        })
    }
}

/// The small files.
struct Settings {
    folder: PathBuf,
    tokenizer_config: Map<String, Value>,
    special_tokens_map: Map<String, Value>,
    generation_config: Map<String, Value>,
    config: Map<String, Value>,
}

const TOKENIZER_CONFIG: &str = "tokenizer_config.json";
const SPECIAL_TOKENS_MAP: &str = "special_tokens_map.json";
const GENERATION_CONFIG: &str = "generation_config.json";
const CONFIG: &str = "config.json";

/// A template's name and its source.
type NamedTemplate = (String, String);

/// The template of conversations without tools, and of those with some unless there is [`TOOL_USE`].
const DEFAULT: &str = "default";
const TOOL_USE: &str = "tool_use";

impl Settings {
    fn read(folder: &Path) -> Result<Settings, FolderError> {
        Ok(Settings {
            tokenizer_config: read_object(&folder.join(TOKENIZER_CONFIG))?,
            special_tokens_map: read_object(&folder.join(SPECIAL_TOKENS_MAP))?,
            generation_config: read_object(&folder.join(GENERATION_CONFIG))?,
            config: read_object(&folder.join(CONFIG))?,
            folder: folder.to_owned(),
        })
    }

    fn text_ends(&self) -> Result<TextEnds, FolderError> {
        let mut end_ids = Vec::new();
        for (file, settings) in [
            (GENERATION_CONFIG, &self.generation_config),
            (CONFIG, &self.config),
        ] {
            end_ids.extend(self.ids(file, settings, "eos_token_id")?);
        }
        let mut seen = Vec::with_capacity(end_ids.len());
        end_ids.retain(|id| {
            let is_new = !seen.contains(id);
            seen.push(*id);
            is_new
        });
        Ok(TextEnds {
            bos: self.token_text("bos_token")?,
            eos: self.token_text("eos_token")?,
            add_bos: self.flag("add_bos_token")?,
            add_eos: self.flag("add_eos_token")?,
            end_ids,
        })
    }

    /// The text of a special token: the tokenizer's own configuration wins over the older file.
    fn token_text(&self, key: &str) -> Result<Option<String>, FolderError> {
        for (file, settings) in [
            (TOKENIZER_CONFIG, &self.tokenizer_config),
            (SPECIAL_TOKENS_MAP, &self.special_tokens_map),
        ] {
            match settings.get(key) {
                None | Some(Value::Null) => (),
                Some(Value::String(text)) => return Ok(Some(text.clone())),
                Some(token) => {
                    let text = token.get("content").and_then(Value::as_str);
                    let text = text.ok_or_else(|| self.bad(file, key, "is no token"))?;
                    return Ok(Some(text.to_owned()));
                }
            }
        }
        Ok(None)
    }

    fn flag(&self, key: &str) -> Result<Option<bool>, FolderError> {
        match self.tokenizer_config.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(_) => Err(self.bad(TOKENIZER_CONFIG, key, "is neither true nor false")),
        }
    }

    /// A token id, or a list of some.
    fn ids(
        &self,
        file: &str,
        settings: &Map<String, Value>,
        key: &str,
    ) -> Result<Vec<u32>, FolderError> {
        let values = match settings.get(key) {
            None | Some(Value::Null) => &[],
            Some(Value::Array(values)) => values.as_slice(),
            Some(value) => std::slice::from_ref(value),
        };
        let id = |value: &Value| u32::try_from(value.as_u64()?).ok();
        let ids = values.iter().map(|value| {
            id(value).ok_or_else(|| self.bad(file, key, "is neither a token id nor a list of some"))
        });
        ids.collect()
    }

    /// The template `default`, with `tool_use` beside it if there is one.
    fn template(&self, tokenizer: &Tokenizer) -> Result<Option<ChatTemplate>, FolderError> {
        let sources = self.template_sources()?;
        let text_of = |token: Option<TokenId>| {
            token.map_or_else(String::new, |token| {
                tokenizer.decode(&[token], SpecialText::Parse)
            })
        };
        let (bos, eos) = (text_of(tokenizer.bos()), text_of(tokenizer.eos()));
        let compile = |name: &str| {
            let Some((_, source)) = sources.iter().find(|(known, _)| known == name) else {
                return Ok(None);
            };
            ChatTemplate::compile(source, &bos, &eos, tokenizer.control_texts())
                .map(Some)
                .map_err(|source| FolderError::Template {
                    folder: self.folder.clone(),
                    name: name.to_owned(),
                    source,
                })
        };
        Ok(match (compile(DEFAULT)?, compile(TOOL_USE)?) {
            (Some(default), Some(tool_use)) => Some(default.with_tool_use(tool_use)),
            (default, _) => default,
        })
    }

    /// Templates by name; the first of a name counts. Files of their own win over what a configuration holds, and
    /// where there is a default nobody looks further: an older place's `tool_use` was written for another default.
    fn template_sources(&self) -> Result<Vec<NamedTemplate>, FolderError> {
        let mut sources = self.template_files()?;
        let of_processor = read_object(&self.folder.join("chat_template.json"))?;
        for (file, settings) in [
            ("chat_template.json", &of_processor),
            (TOKENIZER_CONFIG, &self.tokenizer_config),
        ] {
            if sources.iter().any(|(name, _)| name == DEFAULT) {
                break;
            }
            sources.extend(self.templates_in(file, settings)?);
        }
        Ok(sources)
    }

    fn template_files(&self) -> Result<Vec<NamedTemplate>, FolderError> {
        let own = read_text(&self.folder.join("chat_template.jinja"))?;
        let mut sources: Vec<NamedTemplate> = own
            .into_iter()
            .map(|source| (DEFAULT.to_owned(), source))
            .collect();
        for folder in ["additional_chat_templates", "chat_templates"] {
            sources.extend(templates_of(&self.folder.join(folder))?);
        }
        Ok(sources)
    }

    /// The value of `chat_template`: one template, or a list of named ones.
    fn templates_in(
        &self,
        file: &str,
        settings: &Map<String, Value>,
    ) -> Result<Vec<NamedTemplate>, FolderError> {
        let bad = || {
            let reason = "is neither a template nor a list of objects with name and template";
            self.bad(file, "chat_template", reason)
        };
        match settings.get("chat_template") {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::String(source)) => Ok(vec![(DEFAULT.to_owned(), source.clone())]),
            Some(Value::Array(templates)) => {
                let named = templates.iter().map(|template| {
                    let field = |key: &str| Some(template.get(key)?.as_str()?.to_owned());
                    field("name").zip(field("template")).ok_or_else(bad)
                });
                named.collect()
            }
            Some(_) => Err(bad()),
        }
    }

    fn bad(&self, file: &str, key: &str, reason: &str) -> FolderError {
        FolderError::Malformed {
            path: self.folder.join(file),
            reason: format!("{key} {reason}"),
        }
    }
}

/// The templates in a folder, by their names without the ending.
fn templates_of(folder: &Path) -> Result<Vec<NamedTemplate>, FolderError> {
    let unreadable = |source| FolderError::Unreadable {
        path: folder.to_owned(),
        source,
    };
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(unreadable(error)),
    };
    let mut templates = Vec::new();
    for (idx, entry) in entries.enumerate() {
        // Not cut short: which files are left out would depend on the order of the file system.
        if idx == LIMITS.templates_max {
            return Err(FolderError::TooManyTemplates {
                folder: folder.to_owned(),
                templates_max: LIMITS.templates_max,
            });
        }
        let path = entry.map_err(unreadable)?.path();
        let is_template = path.extension().is_some_and(|ending| ending == "jinja");
        let name = path.file_stem().and_then(|stem| stem.to_str());
        if let (true, Some(name)) = (is_template, name)
            && let Some(source) = read_text(&path)?
        {
            templates.push((name.to_owned(), source));
        }
    }
    templates.sort();
    Ok(templates)
}

/// A JSON object; an empty one if there is no such file.
fn read_object(path: &Path) -> Result<Map<String, Value>, FolderError> {
    let Some(json) = read(path, LIMITS.settings_bytes_max)? else {
        return Ok(Map::new());
    };
    serde_json::from_slice(&json).map_err(|error| FolderError::Malformed {
        path: path.to_owned(),
        reason: error.to_string(),
    })
}

fn read_text(path: &Path) -> Result<Option<String>, FolderError> {
    let Some(bytes) = read(path, LIMITS.settings_bytes_max)? else {
        return Ok(None);
    };
    let text = String::from_utf8(bytes).map_err(|_| FolderError::Malformed {
        path: path.to_owned(),
        reason: "is not UTF-8".to_owned(),
    })?;
    Ok(Some(text))
}

/// The bytes of a file; `None` if it is not there.
fn read(path: &Path, bytes_max: u64) -> Result<Option<Vec<u8>>, FolderError> {
    let unreadable = |source| FolderError::Unreadable {
        path: path.to_owned(),
        source,
    };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(error)),
    };
    // Known before anything is read; the second bound is for what is no plain file.
    let num_bytes = file.metadata().map_err(unreadable)?.len();
    let mut bytes = Vec::new();
    if num_bytes <= bytes_max {
        file.take(bytes_max + 1)
            .read_to_end(&mut bytes)
            .map_err(unreadable)?;
    }
    if num_bytes.max(bytes.len() as u64) > bytes_max {
        let path = path.to_owned();
        return Err(FolderError::TooLarge { path, bytes_max });
    }
    Ok(Some(bytes))
}
