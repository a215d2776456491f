//! `fulcrum inspect`: what a model file holds, and what would be refused and why.

use std::process::ExitCode;

use formats::gguf::Gguf;
use serde_json::json;
use text::Tokenizer;

use crate::args::InspectArgs;
use crate::open::{self, Wanted};
use crate::words::megabytes;

/// Runs the subcommand. Exit code 1 if the model would be refused, so that scripts can ask.
pub fn inspect(args: InspectArgs) -> anyhow::Result<ExitCode> {
    let path = Wanted::parse(&args.model)?.path()?;
    let file = Gguf::open(&path)?;
    let report = Report::of(&file);
    if args.json {
        println!("{:#}", report.json(&file, &args));
    } else {
        println!("{}", path.display());
        report.print();
        if args.tensors {
            print_tensors(&file);
        }
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
    tokenizer: Result<TokenizerFacts, String>,
    template: Result<Option<usize>, String>,
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
        let tokenizer = Tokenizer::from_gguf(file).map_err(|error| error.to_string());
        let template = match &tokenizer {
            Ok(_) => open::text_side(file)
                .map(|_| template_bytes(file))
                .map_err(|error| format!("{error:#}")),
            Err(_) => Ok(template_bytes(file)),
        };
        let tokenizer = tokenizer.map(|tokenizer| TokenizerFacts::of(&tokenizer, file));
        let mut refusals: Vec<String> = model.refusals.iter().map(ToString::to_string).collect();
        refusals.extend(tokenizer.as_ref().err().cloned());
        refusals.extend(template.as_ref().err().cloned());
        Report {
            version: file.version(),
            model,
            tokenizer,
            template,
            refusals,
        }
    }

    fn print(&self) {
        let row = |name: &str, value: String| println!("  {name:<14}{value}");
        let model = &self.model;
        row("format", format!("GGUF v{}", self.version));
        row(
            "architecture",
            model
                .architecture
                .clone()
                .unwrap_or_else(|| "not named".to_owned()),
        );
        row(
            "name",
            model.name.clone().unwrap_or_else(|| "not named".to_owned()),
        );
        row(
            "parameters",
            format!(
                "{:.1} M in {}",
                model.num_parameters as f64 / 1e6,
                megabytes(model.tensor_bytes)
            ),
        );
        for (name, share) in &model.types {
            row(
                "",
                format!(
                    "{name}: {} tensors, {}",
                    share.num_tensors,
                    megabytes(share.num_bytes)
                ),
            );
        }
        if let Some(spec) = &model.spec {
            let attention = &spec.attention;
            row(
                "shape",
                format!(
                    "{} layers, width {}, {} heads of {} ({} for keys and values), vocabulary {}",
                    spec.num_layers(),
                    spec.hidden,
                    attention.num_heads,
                    attention.head_dim,
                    attention.num_kv_heads,
                    spec.vocab,
                ),
            );
            row("context", format!("{} tokens", spec.context_max));
        }
        if let Some(block_bytes) = model.kv_block_bytes {
            row(
                "KV cache",
                format!(
                    "{:.1} kB a token (f16)",
                    block_bytes as f64 / model::runner::BLOCK_TOKENS as f64 / 1e3
                ),
            );
        }
        match &self.tokenizer {
            Ok(facts) => row("tokenizer", facts.line()),
            Err(reason) => row("tokenizer", reason.clone()),
        }
        match &self.template {
            Ok(Some(num_bytes)) => row("chat template", format!("{num_bytes} bytes")),
            Ok(None) => row("chat template", "none: only plain completions".to_owned()),
            Err(reason) => row("chat template", reason.clone()),
        }
        if !model.unread_keys.is_empty() {
            row("not used", model.unread_keys.join(", "));
        }
        if self.refusals.is_empty() {
            println!("  can be served");
        } else {
            println!("  would be refused:");
            self.refusals
                .iter()
                .for_each(|refusal| println!("    - {refusal}"));
        }
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
            "tokenizer": self.tokenizer.as_ref().ok().map(TokenizerFacts::json),
            "chat_template_bytes": self.template.as_ref().ok().copied().flatten(),
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

fn print_tensors(file: &Gguf) {
    for tensor in file.tensors() {
        println!(
            "  {:<40} {:<10} {:?}",
            tensor.name,
            type_name(tensor),
            tensor.dims
        );
    }
}

fn type_name(tensor: &formats::gguf::TensorEntry) -> String {
    match &tensor.ty {
        Ok(ty) => ty.to_string(),
        Err(_) => "refused".to_owned(),
    }
}
