//! `fulcrum inspect`: what a model file holds, and what would be refused and why.

use std::fmt::Write as _;
use std::process::ExitCode;

use formats::gguf::Gguf;
use model::{KvType, Source};
use serde_json::json;
use text::Tokenizer;

use crate::args::{ComputeArgs, InspectArgs};
use crate::describe;
use crate::open::{self, Wanted};
use crate::weights::{self, Choice};
use crate::words::{megabytes, print, printable};

/// Runs the subcommand. Exit code 1 if the model would be refused, so that scripts can ask.
pub fn inspect(args: InspectArgs) -> anyhow::Result<ExitCode> {
    let path = Wanted::parse(&args.model)?.path()?;
    let source = open::source(&path)?;
    let report = Report::of(&source, &args);
    if args.json {
        print(&format!("{:#}\n", report.json(&source, &args)))?;
    } else {
        let tensors = if args.tensors {
            tensor_lines(&source)
        } else {
            String::new()
        };
        print(&format!("{}\n{}{tensors}", path.display(), report.text()))?;
    }
    Ok(if report.refusals.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// What is said of a file, in both forms.
struct Report {
    format: String,
    model: model::Inspection,
    /// Whose size is told.
    kv_type: KvType,
    tokenizer: TokenizerReport,
    template: TemplateFacts,
    /// How weights would be held, if the model is sound.
    weights: Option<Choice>,
    /// Everything that would be refused.
    refusals: Vec<String>,
}

/// Whether there is a tokenizer that can be used.
enum TokenizerReport {
    Unusable,
    Absent,
    Usable(TokenizerFacts),
}

struct TokenizerFacts {
    kind: String,
    vocab: usize,
    num_control: usize,
    bos: Option<String>,
    ends: Vec<String>,
}

/// What is said of a chat template.
enum TemplateFacts {
    Absent,
    /// A GGUF file's, with its length.
    Bytes(usize),
    /// A folder's.
    Present,
}

impl Report {
    fn of(source: &Source, args: &InspectArgs) -> Report {
        let model = model::inspect(source);
        let mut refusals: Vec<String> = model.refusals.iter().map(ToString::to_string).collect();
        let (format, tokenizer, template) = match source {
            Source::Gguf(file) => {
                let template = file.find::<&str>("tokenizer.chat_template").ok().flatten();
                (
                    format!("GGUF v{}", file.version()),
                    gguf_tokenizer(file, &model, &mut refusals),
                    template.map_or(TemplateFacts::Absent, |text| {
                        TemplateFacts::Bytes(text.len())
                    }),
                )
            }
            Source::Folder(folder) => {
                let (tokenizer, template) = folder_text(folder, &model, &mut refusals);
                ("folder with safetensors".to_owned(), tokenizer, template)
            }
        };
        let compute = ComputeArgs {
            threads: None,
            kv_type: args.kv_type,
            quantize: args.quantize,
        };
        let weights = match model.refusals.is_empty() {
            false => None,
            true => match weights::choose(source, &compute) {
                Ok(choice) => Some(choice),
                Err(error) => {
                    refusals.push(format!("{error:#}"));
                    None
                }
            },
        };
        Report {
            format,
            model,
            kv_type: args.kv_type.element(),
            tokenizer,
            template,
            weights,
            refusals,
        }
    }

    /// One line a fact, the verdict last.
    fn text(&self) -> String {
        let mut text = String::new();
        for (name, value) in self.model_rows().into_iter().chain(self.text_rows()) {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "  {name:<14}{}", printable(&value));
        }
        if self.refusals.is_empty() {
            text.push_str("  can be served\n");
        } else {
            text.push_str("  would be refused:\n");
            for refusal in &self.refusals {
                let _ = writeln!(text, "    - {}", printable(refusal));
            }
        }
        text
    }

    fn model_rows(&self) -> Vec<(&'static str, String)> {
        let model = &self.model;
        let named = |name: &Option<String>| name.clone().unwrap_or_else(|| "not named".to_owned());
        let millions = model.num_parameters as f64 / 1e6;
        let mut rows = vec![
            ("format", self.format.clone()),
            ("architecture", named(&model.architecture)),
            ("name", named(&model.name)),
            (
                "parameters",
                format!("{millions:.1} M in {}", megabytes(model.tensor_bytes)),
            ),
        ];
        rows.extend(model.types.iter().map(|(name, share)| {
            let size = megabytes(share.num_bytes);
            ("", format!("{name}: {} tensors, {size}", share.num_tensors))
        }));
        if let Some(spec) = &model.spec {
            let attention = &spec.attention;
            let shape = format!(
                "{} layers, width {}, {} heads of {} ({} for keys and values), vocabulary {}",
                spec.num_layers(),
                spec.hidden,
                attention.num_heads,
                attention.head_dim,
                attention.num_kv_heads,
                spec.vocab,
            );
            rows.push(("shape", shape));
            rows.push(("context", format!("{} tokens", spec.context_max)));
            rows.extend(describe::rows(spec));
        }
        if let Some(weights) = &self.weights {
            let size = megabytes(weights.plan.num_bytes());
            rows.push((
                "in memory",
                format!("{size} ({}) {}", weights.plan, weights.reason),
            ));
        }
        if let Some(block_bytes) = model.kv_block_bytes(self.kv_type) {
            let kilobytes = block_bytes as f64 / model::runner::BLOCK_TOKENS as f64 / 1e3;
            let size = format!("{kilobytes:.1} kB a token ({})", self.kv_type.name());
            rows.push(("KV cache", size));
        }
        rows
    }

    fn text_rows(&self) -> Vec<(&'static str, String)> {
        let tokenizer = match &self.tokenizer {
            TokenizerReport::Unusable => "cannot be used".to_owned(),
            TokenizerReport::Absent => "none: prompts must be token ids".to_owned(),
            TokenizerReport::Usable(facts) => facts.line(),
        };
        let template = match self.template {
            TemplateFacts::Bytes(num_bytes) => format!("{num_bytes} bytes"),
            TemplateFacts::Present => "found".to_owned(),
            TemplateFacts::Absent => "none: only plain completions".to_owned(),
        };
        let mut rows = vec![("tokenizer", tokenizer), ("chat template", template)];
        if !self.model.unread_keys.is_empty() {
            rows.push(("not used", self.model.unread_keys.join(", ")));
        }
        rows
    }

    fn json(&self, source: &Source, args: &InspectArgs) -> serde_json::Value {
        let model = &self.model;
        let types: serde_json::Map<_, _> = model
            .types
            .iter()
            .map(|(name, share)| {
                let share = json!({"tensors": share.num_tensors, "values": share.num_values, "bytes": share.num_bytes});
                (name.clone(), share)
            })
            .collect();
        let mut report = json!({
            "format": self.format,
            "architecture": model.architecture,
            "name": model.name,
            "parameters": model.num_parameters,
            "tensor_bytes": model.tensor_bytes,
            "types": types,
            "layers": model.spec.as_ref().map(model::spec::DecoderSpec::num_layers),
            "hidden": model.spec.as_ref().map(|spec| spec.hidden),
            "vocab": model.spec.as_ref().map(|spec| spec.vocab),
            "context_max": model.spec.as_ref().map(|spec| spec.context_max),
            "decoder": model.spec.as_ref().map(describe::json),
            "kv_type": self.kv_type.name(),
            "kv_block_bytes": model.kv_block_bytes(self.kv_type),
            "tokenizer": match &self.tokenizer {
                TokenizerReport::Usable(facts) => facts.json(),
                TokenizerReport::Unusable | TokenizerReport::Absent => serde_json::Value::Null,
            },
            "chat_template_bytes": match self.template {
                TemplateFacts::Bytes(num_bytes) => Some(num_bytes),
                TemplateFacts::Present | TemplateFacts::Absent => None,
            },
            "chat_template": !matches!(self.template, TemplateFacts::Absent),
            "weights": self.weights.as_ref().map(weights_json),
            "unread_keys": model.unread_keys,
            "refusals": self.refusals,
        });
        if args.tensors {
            report["tensors"] = source
                .tensors()
                .into_iter()
                .map(|tensor| {
                    json!({
                        "name": tensor.name, "dims": tensor.dims, "type": tensor.ty,
                        "bytes": tensor.num_bytes,
                    })
                })
                .collect();
        }
        report
    }
}

fn weights_json(choice: &Choice) -> serde_json::Value {
    let types: serde_json::Map<_, _> = choice
        .plan
        .types
        .iter()
        .map(|(name, share)| {
            let share = json!({"matrices": share.num_matrices, "bytes": share.num_bytes});
            ((*name).to_owned(), share)
        })
        .collect();
    json!({"bytes": choice.plan.num_bytes(), "types": types, "reason": choice.reason})
}

/// What is said of a GGUF file's tokenizer; whatever speaks against it or the chat template joins `refusals`.
fn gguf_tokenizer(
    file: &Gguf,
    model: &model::Inspection,
    refusals: &mut Vec<String>,
) -> TokenizerReport {
    let tokenizer = match open::tokenizer(file) {
        Ok(tokenizer) => tokenizer,
        Err(error) => {
            refusals.push(format!("{error:#}"));
            return TokenizerReport::Unusable;
        }
    };
    let template = open::template(file, &tokenizer).map(drop);
    refusals.extend(template.err().map(|error| format!("{error:#}")));
    refusals.extend(misfit(&tokenizer, model));
    let named = |key: &str| file.find::<&str>(key).ok().flatten().unwrap_or_default();
    let kind = [named("tokenizer.ggml.model"), named("tokenizer.ggml.pre")].join(" ");
    TokenizerReport::Usable(TokenizerFacts::of(&tokenizer, kind.trim()))
}

/// The same of a folder.
fn folder_text(
    folder: &model::source::Folder,
    model: &model::Inspection,
    refusals: &mut Vec<String>,
) -> (TokenizerReport, TemplateFacts) {
    let text = match open::folder_text(folder) {
        Ok(text) => text,
        Err(error) => {
            refusals.push(format!("{error:#}"));
            return (TokenizerReport::Unusable, TemplateFacts::Absent);
        }
    };
    let Some(tokenizer) = text.tokenizer else {
        return (TokenizerReport::Absent, TemplateFacts::Absent);
    };
    refusals.extend(misfit(&tokenizer, model));
    let template = match text.template {
        Some(_) => TemplateFacts::Present,
        None => TemplateFacts::Absent,
    };
    let facts = TokenizerFacts::of(&tokenizer, "tokenizer.json");
    (TokenizerReport::Usable(facts), template)
}

fn misfit(tokenizer: &Tokenizer, model: &model::Inspection) -> Option<String> {
    let spec = model.spec.as_ref()?;
    let misfit = open::check_vocabularies(tokenizer, spec.vocab).err()?;
    Some(format!("{misfit:#}"))
}

impl TokenizerFacts {
    fn of(tokenizer: &Tokenizer, kind: &str) -> TokenizerFacts {
        let text_of =
            |token: &text::TokenId| tokenizer.token_text(*token).unwrap_or_default().to_owned();
        TokenizerFacts {
            kind: kind.to_owned(),
            vocab: tokenizer.vocab(),
            num_control: tokenizer.control_texts().len(),
            bos: tokenizer.bos().as_ref().map(text_of),
            ends: tokenizer.end_tokens().iter().map(text_of).collect(),
        }
    }

    fn line(&self) -> String {
        format!(
            "{}, {} tokens ({} control), BOS {}, ends at {}",
            self.kind,
            self.vocab,
            self.num_control,
            self.bos.as_deref().unwrap_or("none"),
            self.ends.join(" "),
        )
    }

    fn json(&self) -> serde_json::Value {
        json!({
            "kind": self.kind, "vocab": self.vocab, "control_tokens": self.num_control,
            "bos": self.bos, "end_tokens": self.ends,
        })
    }
}

fn tensor_lines(source: &Source) -> String {
    let mut lines = String::new();
    for tensor in source.tensors() {
        let (name, ty, dims) = (printable(&tensor.name), tensor.ty, tensor.dims);
        // Writing to a string cannot fail.
        let _ = writeln!(lines, "  {name:<40} {ty:<10} {dims:?}");
    }
    lines
}
