//! What constraints cost without a model: the trie of the vocabulary, a compile, a copy, and the mask of each token.
//!
//! `cargo run --release -p fulcrum-engine --example mask_cost -- MODEL.gguf`
//!
//! Answers are drawn with a fixed seed from whatever a mask allows, which leads to odder places than a model would go.
//! A mask is hidden behind a forward pass as long as it takes less time than one.
#![allow(clippy::print_stdout)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::constrain::{Compiler, Form, Grammar, Lead, Limits, WhiteSpace};
use engine::{TokenId, Vocabulary};
use serde_json::json;
use testkit::Random;
use text::Tokenizer;

/// Tokens of one answer at most.
const ANSWER_TOKENS: usize = 200;
const NUM_ANSWERS: usize = 10;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args()
        .nth(1)
        .ok_or("usage: mask_cost MODEL.gguf")?;
    let file = formats::gguf::Gguf::open(path.as_ref())?;
    let vocabulary = Arc::new(Tokenizer::from_gguf(&file)?);
    let compiler = Compiler::new(
        Arc::<Tokenizer>::clone(&vocabulary) as Arc<dyn Vocabulary>,
        Limits::STANDARD,
    );
    let held = resident_kib();
    let whole = time(|| compiler.compile(&form(Grammar::Choice(vec!["yes".to_owned()]))));
    let alone = time(|| compiler.compile(&form(Grammar::Choice(vec!["no".to_owned()]))));
    println!(
        "{} tokens: trie {} ms, holding {} MiB",
        vocabulary.vocab(),
        (whole.1 - alone.1).as_millis(),
        (resident_kib() - held) / 1024
    );
    println!("grammar, compile ms, copy us, masks, mask us p50, p99, max");
    for (name, grammar) in grammars() {
        let (constraint, compile) = time(|| compiler.compile(&form(grammar)));
        let constraint = constraint?;
        let (_, copy) = time(|| constraint.fork());
        let mut random = Random::named(1, name);
        let mut fills = Vec::new();
        for _ in 0..NUM_ANSWERS {
            walk(
                constraint.fork(),
                vocabulary.vocab(),
                &mut random,
                &mut fills,
            )?;
        }
        fills.sort_unstable();
        let at = |share: f64| fills[((fills.len() - 1) as f64 * share) as usize].as_micros();
        println!(
            "{name}, {:.1}, {}, {}, {}, {}, {}",
            compile.as_secs_f64() * 1e3,
            copy.as_micros(),
            fills.len(),
            at(0.5),
            at(0.99),
            at(1.0)
        );
    }
    Ok(())
}

fn grammars() -> [(&'static str, Grammar); 4] {
    let person = json!({"type": "object", "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "mood": {"enum": ["happy", "sad", "asleep"]},
        "tags": {"type": "array", "items": {"type": "string"}},
    }, "required": ["name", "age", "mood", "tags"], "additionalProperties": false});
    [
        ("json_object", Grammar::JsonObject),
        ("json_schema", Grammar::JsonSchema(person)),
        (
            "regex",
            Grammar::Regex(r"([a-z]+ ){20,40}[0-9]{4}".to_owned()),
        ),
        (
            "lark",
            Grammar::Lark("start: (WORD \", \")* WORD \".\"\nWORD: /[A-Za-z]+/".to_owned()),
        ),
    ]
}

fn form(grammar: Grammar) -> Form {
    Form {
        grammar,
        white_space: WhiteSpace::Short,
        lead: Lead::Nothing,
    }
}

/// Draws one answer and notes how long each mask took.
fn walk(
    mut constraint: Box<dyn engine::Constraint>,
    vocab: usize,
    random: &mut Random,
    fills: &mut Vec<Duration>,
) -> Result<(), engine::ConstraintError> {
    let mut allowed = vec![0_u32; vocab.div_ceil(32)];
    for _ in 0..ANSWER_TOKENS {
        let (filled, duration) = time(|| constraint.fill(&mut allowed));
        filled?;
        fills.push(duration);
        let is_allowed = |id: &usize| allowed[id / 32] >> (id % 32) & 1 == 1;
        let ids: Vec<usize> = (0..vocab).filter(is_allowed).collect();
        let token = TokenId(ids[random.below(ids.len())] as u32);
        constraint.accept(token)?;
        if constraint.is_exhausted() {
            break;
        }
    }
    Ok(())
}

fn time<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let started = Instant::now();
    let done = work();
    (done, started.elapsed())
}

/// Memory of this process; 0 where the system does not tell.
fn resident_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    number.unwrap_or(0)
}
