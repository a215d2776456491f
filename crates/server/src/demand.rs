//! What an answer must look like: from the wire's words to the engine's constraint.
//!
//! The one idea: compiling is done between a request's preparation and its hand-over, on threads for
//! blocking work and a bounded number at once, so that neither the async workers nor the engine
//! ever wait for a grammar. What is wrong with it is told with the path of the keyword.

use std::sync::Arc;
use std::time::Instant;

use api::constraint::{Constraint, Form, Spacing};
use engine::constrain::{self, CompileError, Grammar, WhiteSpace};

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
        })
    }
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
    let form = demand.form;
    let began = Instant::now();
    let compiling = tokio::task::spawn_blocking(move || {
        let compiled = compiler.compile(&form);
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
    let constraint = compiled.map_err(|error| match error {
        CompileError::Schema { path, reason } => Refusal::ForModel {
            param: joined(&demand.param, &path),
            reason,
        },
        CompileError::Grammar { .. }
        | CompileError::TooComplex { .. }
        | CompileError::TooSlow { .. } => Refusal::ForModel {
            reason: error.to_string(),
            param: demand.param,
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
