//! A tokenizer from `tokenizer.json`.
//!
//! The file lists components (normalizer, pre-tokenizer, model, post-processor, decoder), each of one of many kinds. The one
//! idea: they are translated into the few kinds that a [`Pipeline`] has, once, and what has no translation is refused
//! by its name.
//!
//! | of the file | becomes |
//! |---|---|
//! | `model` with `added_tokens` | vocabulary, merges, and two finders of added tokens |
//! | `normalizer`, `pre_tokenizer` | steps (`steps.rs`) |
//! | `post_processor` | what prompts begin with |
//! | `decoder` | the bytes of each token (`decoder.rs`) |
//!
//! Where we differ from `tokenizers` on purpose: control tokens are found in the text as it was typed, before any
//! normalizing; no merge may spell one; and what a post-processor puts *behind* a text is not put behind prompts.
//!
//! Source: `tokenizers` (`tokenizer/added_vocabulary.rs`, `models/bpe/`).

mod decoder;
mod file;
mod steps;

use hashbrown::{HashMap, HashSet};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::bpe::MergesBuilder;
use super::pipeline::{Alphabet, BytePairs, Pipeline};
use super::specials::{Habits, SpecialFinder, with_known_ends};
use super::vocabulary::{TokenKind, Vocabulary};
use super::{Model, TokenId, Tokenizer, TokenizerError, spm};
use file::{AddedToken, Merge, ModelFile, PostProcessor, TemplatePiece, TokenizerFile, Vocab};
use steps::PreSteps;

/// Ids, and so rows of an embedding. The largest vocabulary we know has 262 144.
const IDS_MAX: u32 = 1 << 22;

/// Bytes of all texts that steps insert for a match or a text.
const INSERTED_BYTES_MAX: usize = 64;

/// Components of a sequence, those of inner ones included.
const STEPS_MAX: usize = 64;

/// What the files beside `tokenizer.json` say about the two ends of texts.
#[derive(Clone, Debug, Default)]
pub struct TextEnds {
    /// Text of the token that begins texts.
    pub bos: Option<String>,
    /// Text of the main end token.
    pub eos: Option<String>,
    /// Whether prompts begin with BOS; `None` leaves it to `tokenizer.json`.
    pub add_bos: Option<bool>,
    /// Whether finished texts end with EOS; `None` leaves it to `tokenizer.json`.
    pub add_eos: Option<bool>,
    /// Tokens that end an answer.
    pub end_ids: Vec<u32>,
}

impl Tokenizer {
    /// Builds the tokenizer that a `tokenizer.json` describes.
    ///
    /// # Errors
    ///
    /// What [`TokenizerError`] lists.
    ///
    /// # Cost
    ///
    /// Linear in the vocabulary: below a second for 262 144 tokens.
    pub fn from_json(json: &[u8], ends: &TextEnds) -> Result<Tokenizer, TokenizerError> {
        let file: TokenizerFile = serde_json::from_slice(json)
            .map_err(|error| TokenizerError::bad_key("tokenizer.json", error.to_string()))?;
        expect_known_model(&file.model)?;
        let TokenizerFile {
            added_tokens: added,
            model,
            ..
        } = file;
        let (vocabulary, outside) = vocabulary(&model, &added)?;
        let normalizers = steps::normalizers(component("normalizer", file.normalizer)?)?;
        let pre = steps::pre_tokenizers(component("pre_tokenizer", file.pre_tokenizer)?)?;
        let decoding = decoder::rules(component("decoder", file.decoder)?, &pre)?;
        let affixes = Affixes::of(
            component("post_processor", file.post_processor)?,
            &vocabulary,
        )?;
        let affixes = affixes.with(ends, &vocabulary)?;
        let pieces = decoding.pieces(&vocabulary)?;
        let added_finder = |is_wanted: &dyn Fn(TokenKind, &AddedToken) -> bool,
                            text_of: &dyn Fn(&str) -> String| {
            let tokens = added.iter().filter_map(|token| {
                let id = vocabulary.find(&token.content)?;
                let kind = vocabulary.kind(id)?;
                is_wanted(kind, token).then(|| (text_of(&token.content), id, habits(token)))
            });
            SpecialFinder::of(tokens)
        };
        let controls = added_finder(&|kind, _| kind.is_control(), &str::to_owned);
        let user_defined = added_finder(
            &|kind, token| kind.is_user_defined() && !token.normalized,
            &str::to_owned,
        );
        let normalized = added_finder(
            &|kind, token| kind.is_user_defined() && token.normalized,
            &|text| super::normalize::normalized(&normalizers, text).into_owned(),
        );
        let pairs = BytePairs {
            outside,
            ..byte_pairs(model, &vocabulary, &pre)?
        };
        let mut end_tokens: Vec<TokenId> = affixes.eos.into_iter().collect();
        let is_token = |id: &TokenId| vocabulary.kind(*id).is_some();
        end_tokens.extend(ends.end_ids.iter().copied().map(TokenId).filter(is_token));
        Ok(Tokenizer {
            end_tokens: with_known_ends(end_tokens, &vocabulary),
            pieces,
            controls,
            user_defined,
            model: Model::Pipeline(Box::new(Pipeline {
                space_prefix: decoding.space_prefix(&normalizers, &pre),
                normalizers,
                added: normalized,
                pre: pre.steps,
                pairs,
            })),
            bos: affixes.bos,
            eos: affixes.eos,
            prefix: affixes.prefix,
            suffix: affixes.suffix,
            vocabulary,
        })
    }
}

/// A component of the file, if it is there.
fn component<T: DeserializeOwned>(
    key: &str,
    value: Option<Value>,
) -> Result<Option<T>, TokenizerError> {
    let Some(value) = value else {
        return Ok(None);
    };
    let component = serde_json::from_value(value);
    component.map(Some).map_err(|error| refused(key, &error))
}

/// A component that cannot be read: mostly one of a kind that is not supported.
fn refused(key: &str, error: &serde_json::Error) -> TokenizerError {
    let words = error.to_string();
    let unknown = words.strip_prefix("unknown variant `");
    match unknown.and_then(|rest| rest.split_once("`, expected ")) {
        Some((value, known)) => TokenizerError::Unsupported {
            key: key.to_owned(),
            value: value.to_owned(),
            known: known.trim_start_matches("one of ").replace('`', ""),
        },
        None => TokenizerError::bad_key(key, words),
    }
}

fn unsupported(key: &str, value: &str, known: &str) -> TokenizerError {
    TokenizerError::Unsupported {
        key: key.to_owned(),
        value: value.to_owned(),
        known: known.to_owned(),
    }
}

fn expect_known_model(model: &ModelFile) -> Result<(), TokenizerError> {
    // Old files do not name the kind; then only BPE has merges.
    let kind = match (&model.kind, &model.vocab, &model.merges) {
        (Some(kind), ..) => kind.as_str(),
        (None, Vocab::Scored, _) => "Unigram",
        (None, _, Some(_)) => "BPE",
        (None, _, None) => "WordPiece or WordLevel",
    };
    if kind != "BPE" {
        return Err(unsupported("model.type", kind, "BPE"));
    }
    if let Some(dropout) = model.dropout.filter(|dropout| *dropout != 0.0) {
        return Err(unsupported("model.dropout", &dropout.to_string(), "none"));
    }
    for (key, affix) in [
        (
            "model.continuing_subword_prefix",
            &model.continuing_subword_prefix,
        ),
        ("model.end_of_word_suffix", &model.end_of_word_suffix),
    ] {
        if let Some(affix) = affix.as_ref().filter(|affix| !affix.is_empty()) {
            return Err(unsupported(key, affix, "none"));
        }
    }
    Ok(())
}

/// The tokens of the model and the added ones, in the order of their ids, and which are only added.
fn vocabulary(
    model: &ModelFile,
    added: &[AddedToken],
) -> Result<(Vocabulary, HashSet<TokenId>), TokenizerError> {
    let Vocab::Texts(texts) = &model.vocab else {
        return Err(TokenizerError::bad_key("model.vocab", "missing"));
    };
    let mut by_id: Vec<(u32, &str, TokenKind)> = Vec::with_capacity(texts.len() + added.len());
    let added_kinds = added_kinds(added)?;
    let ids_of_texts: HashMap<&str, u32> = match added.is_empty() {
        true => HashMap::new(),
        false => texts
            .iter()
            .map(|(text, id)| (text.as_str(), *id))
            .collect(),
    };
    for (text, id) in texts {
        let kind = match added_kinds.get(text.as_str()) {
            Some(kind) => *kind,
            None if Some(text) == model.unk_token.as_ref() => TokenKind::Unknown,
            None if model.byte_fallback && spm::byte_of_text(text).is_some() => TokenKind::Byte,
            None => TokenKind::Normal,
        };
        by_id.push((*id, text, kind));
    }
    let mut outside = HashSet::new();
    for token in added {
        match ids_of_texts.get(token.content.as_str()) {
            Some(id) if *id == token.id => (),
            Some(id) => {
                let (text, added_id) = (&token.content, token.id);
                let reason = format!("{text:?} is token {added_id}, but {id} in the vocabulary");
                return Err(TokenizerError::bad_key("added_tokens", reason));
            }
            None => {
                let text = token.content.as_str();
                by_id.push((token.id, text, added_kinds[text]));
                outside.insert(TokenId(token.id));
            }
        }
    }
    by_id.sort_by_key(|(id, ..)| *id);
    let mut vocabulary = Vocabulary::empty(by_id.len());
    for (id, text, kind) in by_id {
        if id >= IDS_MAX {
            let reason = format!("token {text:?} has id {id}, at most {IDS_MAX} ids are supported");
            return Err(TokenizerError::bad_key("model.vocab", reason));
        }
        if (id as usize) < vocabulary.len() {
            let twin = vocabulary.text(TokenId(id));
            let reason = format!("{twin:?} and {text:?} are both token {id}");
            return Err(TokenizerError::bad_key("model.vocab", reason));
        }
        while vocabulary.len() < id as usize {
            vocabulary.push_hole();
        }
        vocabulary.push("model.vocab", text, kind)?;
    }
    vocabulary.expect_text("model.vocab")?;
    Ok((vocabulary, outside))
}

/// What each added token is for, by its text.
fn added_kinds(added: &[AddedToken]) -> Result<HashMap<&str, TokenKind>, TokenizerError> {
    let mut kinds = HashMap::with_capacity(added.len());
    for token in added {
        let kind = match token.special {
            true => TokenKind::Control,
            false => TokenKind::UserDefined,
        };
        if kinds.insert(token.content.as_str(), kind).is_some() {
            let reason = format!("has {:?} twice", token.content);
            return Err(TokenizerError::bad_key("added_tokens", reason));
        }
    }
    Ok(kinds)
}

fn habits(token: &AddedToken) -> Habits {
    Habits {
        takes_left: token.lstrip,
        takes_right: token.rstrip,
        stands_alone: token.single_word,
    }
}

fn byte_pairs(
    model: ModelFile,
    vocabulary: &Vocabulary,
    pre: &PreSteps,
) -> Result<BytePairs, TokenizerError> {
    let lines = model.merges.unwrap_or_default();
    let mut merges = MergesBuilder::new("model.merges", vocabulary, lines.len());
    for merge in &lines {
        match merge {
            Merge::Pair(left, right) => merges.push((left, right))?,
            Merge::Line(line) => {
                let pair = line.split_once(' ');
                merges.push(pair.ok_or_else(|| merges.not_a_pair(line))?)?;
            }
        }
    }
    let unknown = match &model.unk_token {
        None => None,
        Some(text) => Some(vocabulary.find(text).ok_or_else(|| {
            TokenizerError::bad_key("model.unk_token", format!("{text:?} is no token"))
        })?),
    };
    let alphabet = match (pre.ends_in_letters, model.byte_fallback) {
        (true, false) => BytePairs::letters(vocabulary),
        (true, true) => {
            let reason = "is set, but the pre-tokenizer ends in ByteLevel";
            return Err(TokenizerError::bad_key("model.byte_fallback", reason));
        }
        (false, true) => Alphabet::Characters {
            bytes: Some(Box::new(spm::byte_tokens(vocabulary)?)),
        },
        (false, false) => Alphabet::Characters { bytes: None },
    };
    Ok(BytePairs {
        alphabet,
        merges: merges.done(),
        takes_whole_words: model.ignore_merges,
        unknown,
        fuses_unknown: model.fuse_unk,
        outside: HashSet::new(),
    })
}

/// What stands around a text.
#[derive(Default)]
struct Affixes {
    bos: Option<TokenId>,
    eos: Option<TokenId>,
    prefix: Vec<TokenId>,
    suffix: Vec<TokenId>,
}

impl Affixes {
    /// What the post-processor adds.
    fn of(
        processor: Option<PostProcessor>,
        vocabulary: &Vocabulary,
    ) -> Result<Affixes, TokenizerError> {
        let mut affixes = Affixes::default();
        if let Some(processor) = processor {
            affixes.extend(processor)?;
        }
        let mut added = affixes.prefix.iter().chain(&affixes.suffix);
        if let Some(token) = added.find(|token| vocabulary.kind(**token).is_none()) {
            let reason = format!("adds token {}, which does not exist", token.0);
            return Err(TokenizerError::bad_key("post_processor", reason));
        }
        Ok(affixes)
    }

    fn extend(&mut self, processor: PostProcessor) -> Result<(), TokenizerError> {
        let bad = |reason: String| TokenizerError::bad_key("post_processor", reason);
        match processor {
            PostProcessor::ByteLevel {} => (),
            PostProcessor::RobertaProcessing { sep, cls }
            | PostProcessor::BertProcessing { sep, cls } => {
                self.prefix.insert(0, TokenId(cls.1));
                self.suffix.push(TokenId(sep.1));
            }
            PostProcessor::Sequence { processors } => {
                for processor in processors {
                    self.extend(processor)?;
                }
            }
            PostProcessor::TemplateProcessing {
                single,
                special_tokens,
            } => {
                let (mut prefix, mut suffix, mut after_text) = (Vec::new(), Vec::new(), false);
                for piece in single {
                    match piece {
                        TemplatePiece::Sequence { id } if id == "A" && !after_text => {
                            after_text = true;
                        }
                        TemplatePiece::Sequence { id } => {
                            return Err(bad(format!("has sequence {id:?} in place of one \"A\"")));
                        }
                        TemplatePiece::SpecialToken { id } => {
                            let token = special_tokens.get(&id);
                            let token =
                                token.ok_or_else(|| bad(format!("does not say what {id:?} is")))?;
                            let side = if after_text { &mut suffix } else { &mut prefix };
                            side.extend(token.ids.iter().copied().map(TokenId));
                        }
                    }
                }
                if !after_text {
                    return Err(bad("has no place for the text".to_owned()));
                }
                prefix.append(&mut self.prefix);
                self.prefix = prefix;
                self.suffix.append(&mut suffix);
            }
        }
        Ok(())
    }

    /// What the files beside it say wins.
    fn with(mut self, ends: &TextEnds, vocabulary: &Vocabulary) -> Result<Affixes, TokenizerError> {
        let named = |key: &str, text: &Option<String>| match text {
            None => Ok(None),
            Some(text) => vocabulary
                .find(text)
                .map(Some)
                .ok_or_else(|| TokenizerError::bad_key(key, format!("{text:?} is no token"))),
        };
        self.bos = named("bos_token", &ends.bos)?.or(self.prefix.first().copied());
        let first_end = ends.end_ids.first().copied().map(TokenId);
        self.eos = named("eos_token", &ends.eos)?
            .or(first_end.filter(|token| vocabulary.kind(*token).is_some()));
        match (ends.add_bos, self.bos) {
            (Some(true), None) => {
                let reason = "missing, but add_bos_token is set";
                return Err(TokenizerError::bad_key("bos_token", reason));
            }
            (Some(true), Some(bos)) if !self.prefix.contains(&bos) => self.prefix.insert(0, bos),
            (Some(false), Some(bos)) => self.prefix.retain(|token| *token != bos),
            _ => (),
        }
        match (ends.add_eos, self.eos) {
            (Some(true), Some(eos)) if !self.suffix.contains(&eos) => self.suffix.push(eos),
            (Some(false), Some(eos)) => self.suffix.retain(|token| *token != eos),
            _ => (),
        }
        Ok(self)
    }
}
