//! `fulcrum doctor`: is this model fit to be served?
//!
//! Much that is wrong with a model shows only as somewhat worse answers: two BOS tokens, an end token nobody stops at,
//! a template that drops a message. The one idea: each such fault is a check with a name, and a check says one line for
//! people and scripts alike.
//!
//! Not here: what a file holds (`inspect`), and how good the answers are.

mod speed;
mod template;
mod tokens;

use std::fmt::Write as _;
use std::process::ExitCode;

use model::{CpuRunner, Source};
use serde_json::json;
use text::{ChatTemplate, FolderError, FolderText, Tokenizer};

use crate::args::DoctorArgs;
use crate::open::{self, KvPositions, Wanted};
use crate::weights;
use crate::words::{print, printable};

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Ok,
    /// Worth knowing; nothing is wrong.
    Note,
    /// Some requests will be answered worse than they could be.
    Warning,
    /// The model should not be served like this.
    Failed,
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::Note => "note",
            Verdict::Warning => "warning",
            Verdict::Failed => "FAILED",
        }
    }
}

/// What one check says.
#[derive(Debug)]
struct Finding {
    check: &'static str,
    verdict: Verdict,
    words: String,
}

impl Finding {
    fn new(check: &'static str, verdict: Verdict, words: impl Into<String>) -> Finding {
        Finding {
            check,
            verdict,
            words: words.into(),
        }
    }

    fn line(&self) -> String {
        let (verdict, words) = (self.verdict.word(), printable(&self.words));
        format!("{verdict:8} {}: {words}\n", self.check)
    }
}

/// Runs the subcommand. Exit code 1 if a check failed.
pub fn doctor(args: DoctorArgs) -> anyhow::Result<ExitCode> {
    let findings = examine(&args)?;
    let has_failed = findings.iter().any(|it| it.verdict == Verdict::Failed);
    if args.json {
        print(&format!("{:#}\n", report(&args.model, &findings)))?;
    } else {
        let mut text = String::new();
        for finding in &findings {
            text.push_str(&finding.line());
        }
        let count = |verdict| findings.iter().filter(|it| it.verdict == verdict).count();
        let (failed, warned) = (count(Verdict::Failed), count(Verdict::Warning));
        writeln!(text, "{failed} failed, {warned} warnings").expect("a string takes all");
        print(&text)?;
    }
    Ok(match has_failed {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    })
}

fn report(model: &str, findings: &[Finding]) -> serde_json::Value {
    let findings: Vec<serde_json::Value> = findings
        .iter()
        .map(|it| {
            json!({
                "check": it.check,
                "verdict": it.verdict.word().to_lowercase(),
                "reason": it.words,
            })
        })
        .collect();
    let is_failed = |it: &serde_json::Value| it["verdict"] == "failed";
    json!({"model": model, "sound": !findings.iter().any(is_failed), "findings": findings})
}

/// All checks. What cannot be checked since an earlier check failed is left out.
fn examine(args: &DoctorArgs) -> anyhow::Result<Vec<Finding>> {
    // What cannot even be found is no ill model.
    let path = Wanted::parse(&args.model)?.path()?;
    let mut findings = Vec::new();
    let source = match open::source(&path) {
        Ok(source) => source,
        Err(error) => {
            findings.push(Finding::new("load", Verdict::Failed, format!("{error:#}")));
            return Ok(findings);
        }
    };
    let runner = runner(&source, args);
    findings.push(match &runner {
        Ok(_) => Finding::new("load", Verdict::Ok, "the weights can be loaded"),
        Err(error) => Finding::new("load", Verdict::Failed, format!("{error:#}")),
    });
    let spec = model::inspect(&source).spec;
    let num_embeddings = spec.map(|spec| spec.vocab);
    match &source {
        Source::Gguf(file) => match open::tokenizer(file) {
            Ok(tokenizer) => {
                let template = open::template(file, &tokenizer);
                findings.extend(text_findings(&tokenizer, template, num_embeddings));
            }
            Err(error) => findings.push(no_text(&error)),
        },
        Source::Folder(folder) => match open::folder_text(folder) {
            Ok(text) => findings.extend(folder_findings(text, num_embeddings)),
            Err(error) => findings.push(no_text(&error)),
        },
    }
    if let Ok(runner) = runner {
        let threads = args.compute.threads.map(usize::from);
        let threads = threads.unwrap_or_else(|| open::usable_processors().get());
        findings.push(speed::finding(runner, threads));
    }
    Ok(findings)
}

fn runner(source: &Source, args: &DoctorArgs) -> anyhow::Result<CpuRunner> {
    let weights = weights::choose(source, &args.compute)?;
    let positions = KvPositions::Exactly(speed::POSITIONS);
    open::runner(source, &args.compute, weights.precision, positions, None)
}

/// Why there is no text side. A folder's template is read with its tokenizer, but to blame alone.
fn no_text(error: &anyhow::Error) -> Finding {
    let check = match error.downcast_ref::<FolderError>() {
        Some(FolderError::Template { .. }) => "template",
        _ => "tokenizer",
    };
    Finding::new(check, Verdict::Failed, format!("{error:#}"))
}

fn folder_findings(text: FolderText, num_embeddings: Option<usize>) -> Vec<Finding> {
    match text.tokenizer {
        Some(tokenizer) => text_findings(&tokenizer, Ok(text.template), num_embeddings),
        None => {
            let words = "there is no tokenizer.json: prompts must be token ids";
            let mut findings = vec![Finding::new("tokenizer", Verdict::Warning, words)];
            let of_ids = |num| tokens::end_ids(&text.end_tokens, num);
            findings.extend(num_embeddings.map(of_ids));
            findings
        }
    }
}

fn text_findings(
    tokenizer: &Tokenizer,
    template: anyhow::Result<Option<ChatTemplate>>,
    num_embeddings: Option<usize>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(num_embeddings) = num_embeddings {
        findings.push(tokens::vocabulary(tokenizer, num_embeddings));
    }
    findings.push(tokens::round_trips(tokenizer));
    findings.push(tokens::special_tokens(tokenizer));
    match template {
        Ok(Some(template)) => findings.extend(template::findings(&template, tokenizer)),
        Ok(None) => {
            let words = "there is none: chat requests are refused, completions are not";
            findings.push(Finding::new("template", Verdict::Note, words));
            findings.push(tokens::end_tokens(tokenizer));
        }
        Err(error) => {
            findings.push(Finding::new(
                "template",
                Verdict::Failed,
                format!("{error:#}"),
            ));
        }
    }
    findings
}
