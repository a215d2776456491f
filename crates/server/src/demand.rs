//! What an answer must look like: from the wire's words to the engine's constraint.
//!
//! The one idea: compiling is done between a request's preparation and its hand-over, on threads for
//! blocking work and a bounded number at once, so that neither the async workers nor the engine
//! ever wait for a grammar. What is wrong with it is told with the path of the keyword.

use std::sync::Arc;
use std::time::{Duration, Instant};

use api::constraint::{Constraint, Form, Spacing};
use engine::constrain::{self, CompileError, Compiler, Grammar, WhiteSpace};
use serde_json::Value;

use crate::answer::Ask;
use crate::errors::Refusal;
use crate::metrics::Compiled;
use crate::state::{Serving, Shared};

/// A constraint before it is compiled.
#[derive(Clone, Debug)]
pub(crate) struct Demand {
    /// The field that demands it; paths in refusals begin here.
    pub param: String,
    pub form: constrain::Form,
    /// What may be at fault by itself: none if the field is all there is.
    pub parts: Vec<Part>,
}

/// The arguments of one tool.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// The field of their schema.
    pub param: String,
    /// The tool's name.
    pub tool: String,
    /// As a grammar takes it.
    pub schema: Value,
}

impl Demand {
    /// What a request demands of all of its answer.
    pub fn of(constraint: Option<&Constraint>) -> Option<Demand> {
        let Constraint {
            param,
            form,
            spacing,
        } = constraint?;
        let grammar = match form {
            Form::JsonObject => Grammar::JsonObject,
            Form::JsonSchema(schema) => Grammar::JsonSchema(schema.clone()),
            Form::Regex(regex) => Grammar::Regex(regex.clone()),
            Form::Choice(choices) => Grammar::Choice(choices.clone()),
            Form::Grammar(text) => Grammar::of_text(text.clone()),
        };
        let white_space = match spacing {
            Spacing::Free => WhiteSpace::Short,
            Spacing::Dense => WhiteSpace::None,
        };
        Some(Demand {
            param: param.clone(),
            form: constrain::Form {
                grammar,
                white_space,
                lead: constrain::Lead::Nothing,
            },
            parts: Vec::new(),
        })
    }

    /// The same demand by fields that the request knows by other names.
    pub fn renamed(mut self, rename: impl Fn(&str) -> String) -> Demand {
        self.param = rename(&self.param);
        for part in &mut self.parts {
            part.param = rename(&part.param);
        }
        self
    }

    /// Compiles all of it.
    fn compile(&self, compiler: &Compiler) -> Result<Box<dyn engine::Constraint>, Fault> {
        compiler
            .compile(&self.form)
            .map_err(|error| self.fault(compiler, error))
    }

    /// Which field an error is about.
    fn fault(&self, compiler: &Compiler, error: CompileError) -> Fault {
        let error = match error {
            CompileError::Grammar { reason } if !self.parts.is_empty() => CompileError::Schema {
                path: String::new(),
                reason: format!("cannot be enforced: {}", without_place(&reason)),
            },
            CompileError::TooComplex { reason } => CompileError::TooComplex {
                reason: without_place(&reason).to_owned(),
            },
            other => other,
        };
        let alone = match (&self.parts[..], &error) {
            ([part], _) => Some(part),
            // What took all of the time, or found no place, must not ask for as much again.
            (parts, CompileError::Schema { .. } | CompileError::TooComplex { .. }) => {
                alone_at_fault(compiler, parts)
            }
            _ => None,
        };
        let size = |part: &&Part| part.schema.to_string().len();
        let (param, of) = match (alone, self.parts.iter().max_by_key(size)) {
            (Some(part), _) => (&part.param, format!("of {:?} ", part.tool)),
            (None, Some(part)) => {
                let of = format!("of {:?}, the largest, together with the others ", part.tool);
                (&part.param, of)
            }
            (None, None) => (&self.param, String::new()),
        };
        Fault {
            param: param.clone(),
            of,
            error,
        }
    }
}

/// How long the search for the part at fault may begin to compile another.
const SEARCH: Duration = Duration::from_millis(300);

/// The first part that does not compile by itself either.
fn alone_at_fault<'a>(compiler: &Compiler, parts: &'a [Part]) -> Option<&'a Part> {
    let began = Instant::now();
    let mut in_time = parts.iter().take_while(|_| began.elapsed() < SEARCH);
    in_time.find(|part| {
        let form = constrain::Form {
            grammar: Grammar::Parts(format!("start: %json {}\n", part.schema)),
            white_space: WhiteSpace::Short,
            lead: constrain::Lead::Nothing,
        };
        compiler.compile(&form).is_err()
    })
}

/// An error of a schema within a grammar of ours, without where in that it is.
fn without_place(reason: &str) -> &str {
    let told = reason.split_once("failed to compile JSON schema: ");
    told.map_or(reason, |(_place, cause)| cause)
}

/// A demand that cannot be met.
#[derive(Debug)]
struct Fault {
    param: String,
    /// Words before the error's own: whose it is.
    of: String,
    error: CompileError,
}

/// Compiles what `ask` demands, and puts each of its requests under it.
pub(crate) async fn meet(
    shared: &Arc<Shared>,
    serving: &Arc<Serving>,
    ask: &mut Ask,
) -> Result<(), Refusal> {
    let Some(demand) = ask.demand.take() else {
        return Ok(());
    };
    let limits = &shared.config.limits;
    let retry_after = limits.retry_after;
    let turn = Arc::clone(&shared.compiling).acquire_owned();
    let turn = match tokio::time::timeout(limits.prepare_wait, turn).await {
        Ok(turn) => turn.expect("the semaphore is never closed"),
        Err(_elapsed) => return Err(Refusal::CompilersFull { retry_after }),
    };
    let compiler = serving.compiler.clone();
    let began = Instant::now();
    let compiling = tokio::task::spawn_blocking(move || {
        let compiled = demand.compile(&compiler);
        drop(turn);
        compiled
    });
    let compiled = compiling.await.map_err(|error| {
        tracing::error!(%error, "compiling a constraint panicked");
        Refusal::Panicked
    })?;
    let outcome = match compiled {
        Ok(_) => Compiled::Usable,
        Err(_) => Compiled::Refused,
    };
    shared.metrics.compiled(outcome, began.elapsed());
    let constraint = compiled.map_err(|Fault { param, of, error }| match error {
        CompileError::Schema { path, reason } => Refusal::ForModel {
            param: joined(&param, &path),
            reason: of + &reason,
        },
        CompileError::Grammar { .. }
        | CompileError::TooComplex { .. }
        | CompileError::TooSlow { .. } => Refusal::ForModel {
            reason: of + &error.to_string(),
            param,
        },
        CompileError::Busy { .. } => Refusal::CompilersFull { retry_after },
        CompileError::Unavailable { reason } => {
            tracing::error!(reason, "constraints cannot be compiled");
            Refusal::Panicked
        }
    })?;
    for request in &mut ask.requests {
        request.constraint = Some(constraint.fork());
    }
    Ok(())
}

pub(crate) fn joined(param: &str, path: &str) -> String {
    match path {
        "" => param.to_owned(),
        path if path.starts_with('[') => format!("{param}{path}"),
        path => format!("{param}.{path}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use text::TokenId;

    use super::*;

    /// A token a byte.
    struct Bytes(Vec<u8>);

    impl engine::Vocabulary for Bytes {
        fn token_bytes(&self, token: TokenId) -> Option<&[u8]> {
            let idx = token.0 as usize;
            self.0.get(idx..=idx)
        }
        fn end_tokens(&self) -> &[TokenId] {
            &[TokenId(256)]
        }
        fn vocab(&self) -> usize {
            257
        }
    }

    fn demand(schemas: &[Value]) -> Demand {
        let part = |(idx, schema): (usize, &Value)| Part {
            param: format!("tools[{idx}].function.parameters"),
            tool: format!("tool {idx}"),
            schema: schema.clone(),
        };
        let form = constrain::Form {
            grammar: Grammar::JsonObject,
            white_space: WhiteSpace::Short,
            lead: constrain::Lead::Nothing,
        };
        Demand {
            param: "tools".to_owned(),
            form,
            parts: schemas.iter().enumerate().map(part).collect(),
        }
    }

    #[test]
    fn what_no_tool_is_at_fault_for_alone_is_told_at_the_largest() {
        let vocabulary = Arc::new(Bytes((0..=255).collect()));
        let compiler = Compiler::new(vocabulary, constrain::Limits::STANDARD);
        let demand = demand(&[
            json!({"type": "object"}),
            json!({"type": "object", "properties": {"a": {"type": "integer"}}}),
        ]);
        let reason = "its lexer is too large".to_owned();
        let limit = Duration::from_millis(7);
        for error in [
            CompileError::TooComplex { reason },
            CompileError::TooSlow { limit },
        ] {
            let fault = demand.fault(&compiler, error.clone());
            assert_eq!(fault.param, "tools[1].function.parameters");
            assert_eq!(
                fault.of,
                "of \"tool 1\", the largest, together with the others "
            );
            assert_eq!(fault.error, error);
        }
    }
}
