//! From what was typed as a model to an opened file, its text side and its runner.

use std::io::{self, Read};
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use formats::gguf::{FromValue, Gguf};
use model::runner::{BLOCK_TOKENS, Runner as _};
use model::source::Folder;
use model::{CpuRunner, Inspection, KvBudget, LoadOptions, Precision, Source};
use server::SamplingDefaults;
use text::{ChatTemplate, FolderText, SpecialText, TokenId, Tokenizer};

use crate::args::{ComputeArgs, KvType};
use crate::catalogue::{self, Entry};
use crate::generation;
use crate::hub::{self, HubName};
use crate::pull;
use crate::words::WithHint as _;

/// A model that was asked for, not fetched or opened yet.
#[derive(Clone, Debug)]
pub enum Wanted {
    /// By its name in the catalogue.
    Named(&'static Entry),
    /// By its name on the Hugging Face hub.
    Hub(HubName),
    /// By its path.
    File(PathBuf),
}

impl Wanted {
    /// What was typed: a name of the catalogue or of the hub, or the path of a file or folder that exists.
    pub fn parse(typed: &str) -> anyhow::Result<Wanted> {
        if let Some(entry) = catalogue::find(typed) {
            return Ok(Wanted::Named(entry));
        }
        if let Some(name) = hub::parse(typed)? {
            return Ok(Wanted::Hub(name));
        }
        let path = PathBuf::from(typed);
        if !path.exists() {
            return Err(anyhow::anyhow!(
                "there is no file {typed}, and no model of that name"
            ))
            .hint(|| {
                format!(
                    "names that can be fetched: {}, or hf:ORG/REPO[:FILE]",
                    catalogue::names()
                )
            });
        }
        Ok(Wanted::File(path))
    }

    /// The name requests use unless another is given: the catalogue's, the repository's, or the file's without its ending.
    pub fn name(&self) -> String {
        match self {
            Wanted::Named(entry) => entry.name.to_owned(),
            Wanted::Hub(name) => name.repo.clone(),
            Wanted::File(path) => name_of(path),
        }
    }

    /// The file, fetched first if need be.
    pub fn path(&self) -> anyhow::Result<PathBuf> {
        match self {
            Wanted::Named(entry) => pull::fetch(entry),
            Wanted::Hub(name) => hub::fetch(name),
            Wanted::File(path) => Ok(path.clone()),
        }
    }
}

/// A folder's own name, for the files in it too; a GGUF file's without its ending.
fn name_of(path: &Path) -> String {
    let is_gguf = path.is_file()
        && path
            .extension()
            .is_none_or(|ending| ending != "json" && ending != "safetensors");
    let name = match path.is_file() && !is_gguf {
        true => path.parent().and_then(Path::file_name),
        // A folder's name may have dots; so has `.`, which is no name at all.
        false if path.is_dir() => path.file_name(),
        false => path.file_stem(),
    };
    name.map_or_else(
        || "model".into(),
        |name| name.to_string_lossy().into_owned(),
    )
}

/// Reads all text of a stream that has at most `bytes_max` of it.
pub fn read_text(stream: impl Read, bytes_max: u64) -> io::Result<String> {
    let mut text = String::new();
    stream.take(bytes_max + 1).read_to_string(&mut text)?;
    if text.len() as u64 > bytes_max {
        let reason = format!("there are more than {bytes_max} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
    }
    Ok(text)
}

/// Opens a GGUF file or a folder.
pub fn source(path: &Path) -> anyhow::Result<Source> {
    Source::open(path).with_context(|| format!("cannot open {}", path.display()))
}

/// What turns text into tokens and back.
pub struct TextSide {
    /// The vocabulary; one without texts if the model came without a tokenizer.
    pub tokenizer: Arc<Tokenizer>,
    /// The chat template, if the model has one.
    pub template: Option<ChatTemplate>,
}

/// Reads vocabulary and chat template, and checks that the model knows the tokens they rely on.
pub fn text_side(source: &Source) -> anyhow::Result<TextSide> {
    let num_embeddings = model::inspect(source).spec.map(|spec| spec.vocab);
    let (tokenizer, template) = match source {
        Source::Gguf(file) => {
            let tokenizer = tokenizer(file)?;
            let template = template(file, &tokenizer)?;
            (tokenizer, template)
        }
        Source::Folder(folder) => {
            let text = folder_text(folder)?;
            let textless =
                || Tokenizer::without_text(num_embeddings.unwrap_or(0), &text.end_tokens);
            (text.tokenizer.unwrap_or_else(textless), text.template)
        }
    };
    if let Some(num_embeddings) = num_embeddings {
        check_vocabularies(&tokenizer, num_embeddings)?;
    }
    Ok(TextSide {
        template,
        tokenizer: Arc::new(tokenizer),
    })
}

/// Tokenizer and chat template of a GGUF file, a folder, or the folder of a `tokenizer.json`: without a model beside
/// them.
pub fn tokenizer_of(path: &Path) -> anyhow::Result<(Tokenizer, Option<ChatTemplate>)> {
    let is_json = path.extension().is_some_and(|kind| kind == "json");
    if path.is_file() && !is_json {
        let Source::Gguf(file) = source(path)? else {
            bail!("{} is no GGUF file", path.display());
        };
        let tokenizer = tokenizer(&file)?;
        let template = template(&file, &tokenizer)?;
        return Ok((tokenizer, template));
    }
    let folder = match path.parent() {
        Some(parent) if is_json && parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) if is_json => parent,
        _ => path,
    };
    let text = FolderText::open(folder).context("cannot use the tokenizer")?;
    let tokenizer = text
        .tokenizer
        .ok_or_else(|| anyhow::anyhow!("{} has no tokenizer.json", folder.display()))?;
    Ok((tokenizer, text.template))
}

/// Tokenizer and chat template of a folder, as far as it has them.
pub fn folder_text(folder: &Folder) -> anyhow::Result<FolderText> {
    FolderText::open(folder.path()).context("cannot use the tokenizer")
}

/// The vocabulary.
pub fn tokenizer(file: &Gguf) -> anyhow::Result<Tokenizer> {
    Tokenizer::from_gguf(file).context("cannot use the tokenizer")
}

/// The chat template, if the file has one.
pub fn template(file: &Gguf, tokenizer: &Tokenizer) -> anyhow::Result<Option<ChatTemplate>> {
    let Some(source) = file.find::<&str>("tokenizer.chat_template")? else {
        return Ok(None);
    };
    compiled(source, tokenizer)
        .context("cannot use the chat template")
        .map(Some)
}

fn compiled(source: &str, tokenizer: &Tokenizer) -> anyhow::Result<ChatTemplate> {
    let text_of = |token: Option<TokenId>| {
        token
            .map(|token| tokenizer.decode(&[token], SpecialText::Parse))
            .unwrap_or_default()
    };
    let (bos, eos) = (text_of(tokenizer.bos()), text_of(tokenizer.eos()));
    Ok(ChatTemplate::compile(
        source,
        &bos,
        &eos,
        tokenizer.control_texts(),
    )?)
}

impl TextSide {
    /// The same, with the chat template in the file at `path` in place of the model's own.
    pub fn with_template_of(mut self, path: Option<&Path>) -> anyhow::Result<TextSide> {
        /// More than a template may have, so that the template's own bound is the one that is told.
        const BYTES_MAX: u64 = 1 << 20;
        if let Some(path) = path {
            if !self.tokenizer.has_text() {
                bail!(
                    "--chat-template: this model has no tokenizer that could read what it writes"
                );
            }
            let source = std::fs::File::open(path)
                .and_then(|file| read_text(file, BYTES_MAX))
                .with_context(|| format!("--chat-template: cannot read {}", path.display()))?;
            let template = compiled(&source, &self.tokenizer)
                .with_context(|| format!("--chat-template {}", path.display()))?;
            self.template = Some(template);
        }
        Ok(self)
    }
}

/// The tokens that begin and end texts must have a row in the embedding; or every request
/// would be refused for a token that its sender never wrote.
pub fn check_vocabularies(tokenizer: &Tokenizer, num_embeddings: usize) -> anyhow::Result<()> {
    let mut needed = tokenizer
        .bos()
        .into_iter()
        .chain(tokenizer.end_tokens().iter().copied());
    match needed.find(|token| token.0 as usize >= num_embeddings) {
        Some(token) => bail!(
            "the tokenizer begins or ends texts with token {}, but the embedding has only {num_embeddings} rows",
            token.0
        ),
        None => Ok(()),
    }
}

/// How many positions the KV cache is to hold.
#[derive(Clone, Copy, Debug)]
pub enum KvPositions {
    /// Just these: one sequence that nobody else shares the cache with.
    Exactly(usize),
    /// Room for so many sequences side by side.
    Each {
        /// How many.
        num_sequences: usize,
        /// Positions of each.
        num_positions: usize,
    },
    /// Within this many MiB.
    Mebibytes(NonZeroU32),
    /// What a server usually needs: 32,768 positions or one whole context, whichever is more, but at most
    /// a quarter of this machine's memory.
    Usual,
}

/// Bytes of a mebibyte.
const MEBIBYTE: u64 = 1 << 20;

/// Loads the weights and makes the KV cache.
///
/// `context` is the longest sequence that will be computed, in tokens; `None` is what the model was made for.
/// Models with two sets of frequencies (LongRoPE) choose by it.
///
/// # Errors
///
/// If the flags contradict each other or ask for more memory than this machine has, or the model is refused.
pub fn runner(
    source: &Source,
    compute: &ComputeArgs,
    precision: Precision,
    positions: KvPositions,
    context: Option<NonZeroUsize>,
) -> anyhow::Result<CpuRunner> {
    let inspection = model::inspect(source);
    let kv_type = kv_type(precision, compute.kv_type)?;
    let options = LoadOptions {
        precision,
        threads: compute
            .threads
            .and_then(|threads| NonZeroUsize::new(threads.into()))
            .unwrap_or_else(usable_processors),
        kv_budget: kv_budget(&inspection, kv_type, positions)?,
        context: context.map(NonZeroUsize::get),
        kv_type: Some(kv_type),
    };
    model::load(source, &options)
        .context("cannot load the model")
        .hint(|| "`fulcrum inspect` lists everything that speaks against a file".to_owned())
}

/// How keys and values are stored: as asked, unless everything is to be exact.
fn kv_type(precision: Precision, asked: KvType) -> anyhow::Result<model::KvType> {
    match (precision, asked) {
        // The default, which cannot be told from one that was typed.
        (Precision::Exact, KvType::F16 | KvType::F32) => Ok(model::KvType::F32),
        (Precision::Exact, KvType::Bf16 | KvType::Int8) => {
            let asked = asked.element().name();
            Err(anyhow::anyhow!(
                "--kv-type {asked} contradicts --exact, which keeps keys and values in float32"
            ))
            .hint(|| "leave one of them out".to_owned())
        }
        (Precision::Packed | Precision::Quantised(_), asked) => Ok(asked.element()),
    }
}

/// Processors this process may use.
pub fn usable_processors() -> NonZeroUsize {
    std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

/// Longest sequence: what was asked for, which must be possible, or else the most that is.
pub fn context_max(runner: &CpuRunner, asked: Option<NonZeroUsize>) -> anyhow::Result<usize> {
    let shape = runner.shape();
    let num_positions = shape.num_blocks * BLOCK_TOKENS;
    let Some(asked) = asked.map(NonZeroUsize::get) else {
        return Ok(shape.context_max.min(num_positions));
    };
    if asked > shape.context_max {
        bail!(
            "--context {asked}: the model was made for {} tokens",
            shape.context_max
        );
    }
    if asked > num_positions {
        return Err(anyhow::anyhow!(
            "--context {asked}: the KV cache holds {num_positions} tokens"
        ))
        .hint(|| "--kv-cache-mib makes it larger".to_owned());
    }
    Ok(asked)
}

fn kv_budget(
    inspection: &Inspection,
    kv_type: model::KvType,
    positions: KvPositions,
) -> anyhow::Result<KvBudget> {
    /// 64 sequences of 512.
    const USUAL_POSITIONS: usize = 32_768;
    let context_max = inspection.spec.as_ref().map_or(0, |spec| spec.context_max);
    let memory = memory_bytes().unwrap_or(u64::MAX);
    let block_bytes = inspection.kv_block_bytes(kv_type).unwrap_or(1) as u64;
    match positions {
        KvPositions::Exactly(num_positions) => {
            let num_blocks = num_positions.min(context_max).div_ceil(BLOCK_TOKENS);
            Ok(KvBudget::Blocks(num_blocks.max(1)))
        }
        KvPositions::Each {
            num_sequences,
            num_positions,
        } => {
            let num_blocks = num_sequences * num_positions.div_ceil(BLOCK_TOKENS);
            let num_bytes = num_blocks as u64 * block_bytes;
            if num_bytes > memory {
                bail!(
                    "the keys and values of {num_sequences} sequences of {num_positions} tokens take {} MiB, more than the {} MiB of this machine",
                    num_bytes / MEBIBYTE,
                    memory / MEBIBYTE
                );
            }
            Ok(KvBudget::Blocks(num_blocks))
        }
        KvPositions::Mebibytes(mebibytes) => {
            let num_bytes = u64::from(mebibytes.get()) * MEBIBYTE;
            if num_bytes > memory {
                bail!(
                    "--kv-cache-mib {mebibytes} is more than the {} MiB of this machine",
                    memory / MEBIBYTE
                );
            }
            Ok(KvBudget::Bytes(num_bytes))
        }
        KvPositions::Usual => {
            let num_blocks = USUAL_POSITIONS.max(context_max).div_ceil(BLOCK_TOKENS);
            let quarter_blocks = memory / 4 / block_bytes.max(1);
            let num_blocks = num_blocks.min(usize::try_from(quarter_blocks).unwrap_or(usize::MAX));
            // At least one block: a machine that small learns so from the load itself.
            Ok(KvBudget::Blocks(num_blocks.max(1)))
        }
    }
}

/// Memory of this machine, or of the control group this process is confined to.
pub(crate) fn memory_bytes() -> Option<u64> {
    let machine = std::fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
            let kibibytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
            Some(kibibytes * 1024)
        });
    let group = std::fs::read_to_string("/sys/fs/cgroup/memory.max")
        .ok()
        .and_then(|text| text.trim().parse().ok());
    machine.into_iter().chain(group).min()
}

/// The sampling that the model's authors recommend, where the file says so.
pub fn sampling_defaults(source: &Source) -> anyhow::Result<SamplingDefaults> {
    let file = match source {
        Source::Gguf(file) => file,
        Source::Folder(folder) => return generation::defaults(folder.path()),
    };
    Ok(SamplingDefaults {
        temperature: recommended(file, "general.sampling.temp", |value| {
            (0.0..=2.0).contains(value)
        })?,
        top_p: recommended(file, "general.sampling.top_p", |value| {
            *value > 0.0 && *value <= 1.0
        })?,
        top_k: recommended::<i32>(file, "general.sampling.top_k", |value| *value >= 0)?
            .and_then(|value| u32::try_from(value).ok())
            .filter(|value| *value > 0),
        min_p: recommended(file, "general.sampling.min_p", |value| {
            (0.0..=1.0).contains(value)
        })?,
        repetition_penalty: recommended(file, "general.sampling.penalty_repeat", |value| {
            *value > 0.0 && *value <= 2.0
        })?,
    })
}

fn recommended<'a, T: FromValue<'a> + Copy + std::fmt::Debug>(
    file: &'a Gguf,
    key: &str,
    is_sound: impl Fn(&T) -> bool,
) -> anyhow::Result<Option<T>> {
    match file.find::<T>(key)? {
        Some(value) if !is_sound(&value) => bail!("metadata key {key} = {value:?} is out of range"),
        value => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_a_name_or_a_file_that_exists() {
        assert!(matches!(
            Wanted::parse(catalogue::DEFAULT),
            Ok(Wanted::Named(_))
        ));
        assert!(Wanted::parse("no/such/file.gguf").is_err());
        assert!(matches!(Wanted::parse("/"), Ok(Wanted::File(_))));
    }

    #[test]
    fn a_context_beyond_the_model_or_the_cache_is_refused_with_what_there_is() {
        let file = testkit::tiny::llama(testkit::encode::Encoding::Q4_0).build();
        let file = Source::Gguf(Gguf::parse(file.bytes).expect("the tiny model is sound"));
        let compute = ComputeArgs {
            threads: Some(1),
            kv_type: KvType::F16,
            quantize: None,
        };
        let positions = KvPositions::Exactly(64);
        let runner =
            runner(&file, &compute, Precision::Packed, positions, None).expect("it is loaded");
        let context = |asked| context_max(&runner, NonZeroUsize::new(asked));
        assert_eq!(context(0).expect("nothing was asked for"), 64);
        assert_eq!(context(10).expect("less than there is"), 10);
        assert_eq!(context(64).expect("all there is"), 64);
        for (asked, word) in [(65, "KV cache holds 64"), (2049, "made for 2048")] {
            let refusal = context(asked).expect_err("more than there is").to_string();
            assert!(refusal.contains(word), "{refusal}");
        }
    }

    #[test]
    fn an_exact_model_has_no_rounded_cache() {
        let exact = |asked| kv_type(Precision::Exact, asked);
        assert_eq!(exact(KvType::F16).expect("the default"), model::KvType::F32);
        for asked in [KvType::Bf16, KvType::Int8] {
            let refusal = exact(asked).expect_err("a contradiction").to_string();
            assert!(refusal.contains(asked.element().name()), "{refusal}");
        }
        let packed = kv_type(Precision::Packed, KvType::Int8);
        assert_eq!(packed.expect("as asked"), model::KvType::Int8);
    }

    #[test]
    fn a_file_is_served_under_its_own_name() {
        let wanted = Wanted::File(PathBuf::from("/models/Tiny-1B.Q4_0.gguf"));
        assert_eq!(wanted.name(), "Tiny-1B.Q4_0");
    }
}
