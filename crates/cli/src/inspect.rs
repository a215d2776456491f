//! `fulcrum inspect`: what a model file holds, and what would be refused and why.

use std::fmt::Write as _;
use std::process::ExitCode;

use formats::gguf::Gguf;
use serde_json::json;
use text::Tokenizer;

use crate::args::InspectArgs;
use crate::open::{self, Wanted};
use crate::words::{megabytes, print, printable};

/// Runs the subcommand. Exit code 1 if the model would be refused, so that scripts can ask.
pub fn inspect(args: InspectArgs) -> anyhow::Result<ExitCode> {
    let path = Wanted::parse(&args.model)?.path()?;
    let file = Gguf::open(&path)?;
    let report = Report::of(&file);
    if args.json {
        print(&format!("{:#}\n", report.json(&file, &args)))?;
    } else {
        let tensors = if args.tensors {
            tensor_lines(&file)
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
    version: u32,
    model: model::Inspection,
    /// `None` if it would be refused.
    tokenizer: Option<TokenizerFacts>,
    template_bytes: Option<usize>,
    /// Everything that would be refused.
    refusals: Vec<String>,
}

struct TokenizerFacts {
    kind: String,
    vocab: usize,
    num_control: usize,
    bos: Option<String>,
    ends: Vec<String>,
}

impl Report {
    fn of(file: &Gguf) -> Report {
        let model = model::inspect(file);
        let mut refusals: Vec<String> = model.refusals.iter().map(ToString::to_string).collect();
        let tokenizer = match open::tokenizer(file) {
            Ok(tokenizer) => {
                let template = open::template(file, &tokenizer).map(drop);
                let fits = model.spec.as_ref().map_or(Ok(()), |spec| {
                    open::check_vocabularies(&tokenizer, spec.vocab)
                });
                let found = [template, fits].into_iter().filter_map(Result::err);
                refusals.extend(found.map(|error| format!("{error:#}")));
                Some(TokenizerFacts::of(&tokenizer, file))
            }
            Err(error) => {
                refusals.push(format!("{error:#}"));
                None
            }
        };
        Report {
            version: file.version(),
            model,
            tokenizer,
            template_bytes: template_bytes(file),
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
            ("format", format!("GGUF v{}", self.version)),
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
        }
        if let Some(block_bytes) = model.kv_block_bytes {
            let kilobytes = block_bytes as f64 / model::runner::BLOCK_TOKENS as f64 / 1e3;
            rows.push(("KV cache", format!("{kilobytes:.1} kB a token (f16)")));
        }
        rows
    }

    fn text_rows(&self) -> Vec<(&'static str, String)> {
        let tokenizer = self.tokenizer.as_ref();
        let tokenizer = tokenizer.map_or_else(|| "cannot be used".to_owned(), TokenizerFacts::line);
        let template = match self.template_bytes {
            Some(num_bytes) => format!("{num_bytes} bytes"),
            None => "none: only plain completions".to_owned(),
        };
        let mut rows = vec![("tokenizer", tokenizer), ("chat template", template)];
        if !self.model.unread_keys.is_empty() {
            rows.push(("not used", self.model.unread_keys.join(", ")));
        }
        rows
    }

    fn json(&self, file: &Gguf, args: &InspectArgs) -> serde_json::Value {
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
            "format": format!("GGUF v{}", self.version),
            "architecture": model.architecture,
            "name": model.name,
            "parameters": model.num_parameters,
            "tensor_bytes": model.tensor_bytes,
            "types": types,
            "layers": model.spec.as_ref().map(model::spec::DecoderSpec::num_layers),
            "hidden": model.spec.as_ref().map(|spec| spec.hidden),
            "vocab": model.spec.as_ref().map(|spec| spec.vocab),
            "context_max": model.spec.as_ref().map(|spec| spec.context_max),
            "kv_block_bytes": model.kv_block_bytes,
            "tokenizer": self.tokenizer.as_ref().map(TokenizerFacts::json),
            "chat_template_bytes": self.template_bytes,
            "unread_keys": model.unread_keys,
            "refusals": self.refusals,
        });
        if args.tensors {
            report["tensors"] = file.tensors().iter().map(|tensor| json!({
                "name": tensor.name, "dims": tensor.dims, "type": type_name(tensor), "bytes": tensor.num_bytes(),
            })).collect();
        }
        report
    }
}

impl TokenizerFacts {
    fn of(tokenizer: &Tokenizer, file: &Gguf) -> TokenizerFacts {
        let named = |key: &str| {
            file.find::<&str>(key)
                .ok()
                .flatten()
                .unwrap_or_default()
                .to_owned()
        };
        let kind = [named("tokenizer.ggml.model"), named("tokenizer.ggml.pre")]
            .join(" ")
            .trim()
            .to_owned();
        let text_of =
            |token: &text::TokenId| tokenizer.token_text(*token).unwrap_or_default().to_owned();
        TokenizerFacts {
            kind,
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

fn template_bytes(file: &Gguf) -> Option<usize> {
    file.find::<&str>("tokenizer.chat_template")
        .ok()
        .flatten()
        .map(str::len)
}

fn tensor_lines(file: &Gguf) -> String {
    let mut lines = String::new();
    for tensor in file.tensors() {
        let (name, ty) = (printable(&tensor.name), type_name(tensor));
        // Writing to a string cannot fail.
        let _ = writeln!(lines, "  {name:<40} {ty:<10} {:?}", tensor.dims);
    }
    lines
}

fn type_name(tensor: &formats::gguf::TensorEntry) -> String {
    match &tensor.ty {
        Ok(ty) => ty.to_string(),
        Err(_) => "refused".to_owned(),
    }
}
