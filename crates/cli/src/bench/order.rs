//! From flags to what is measured: two types, and everything that can be wrong between them is told before anything
//! is sent.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use bench::arrival::Process;
use bench::client::{Api, Client, Connector, Endpoint, Protocol, Timeouts, Trust};
use bench::load::{Conduct, LevelPlan, Pace, Stop};
use bench::run::{Calibration, Levels, Order};
use bench::stats::needed_for;
use bench::workload::{TraceOptions, Vocabulary, Workload};
use text::Tokenizer;

use super::args::{ArrivalKind, LoadArgs, TimestampKind};
use crate::words::WithHint as _;

/// Users of the first levels if none are named.
const FIRST_USERS: [u32; 4] = [1, 8, 32, 64];
/// A search looks no further.
const USERS_MAX: u32 = 1024;
/// A level's length if nothing says when it ends.
const DURATION_S: f64 = 30.0;
/// A search's levels: as long as this if they are not precise before.
const SEARCH_DURATION_S: f64 = 60.0;
/// The precision of a search's levels, if none is named.
const PRECISION: f64 = 0.05;
/// Precision is not looked at before.
const PRECISION_FROM_S: f64 = 10.0;
/// A search's time, if none is named.
const BUDGET_S: f64 = 600.0;
/// A level that waits for its precision, at the longest: a server that fails has none, and some figures never get there.
const PRECISION_MAX_S: f64 = 600.0;

/// What `args` ask to measure at `url`.
///
/// # Errors
///
/// Whatever is wrong with the flags, or the files that they name.
pub fn order(url: &str, args: &LoadArgs) -> anyhow::Result<Order> {
    let endpoint: Endpoint = url.parse()?;
    let (workload, levels) = workload_and_levels(args)?;
    let vocabulary = args.tokenizer.as_deref().map(vocabulary_of).transpose()?;
    let is_search = matches!(levels, Levels::Search { .. });
    let mut body = serde_json::Map::new();
    body.extend(args.body.iter().cloned());
    Ok(Order {
        client: client_of(endpoint, args)?,
        model: args.model.clone(),
        api: args.api.map(Api::from),
        workload,
        vocabulary,
        seed: args.seed,
        // Any number that another run will hardly have.
        salt: args.salt.unwrap_or_else(salt_of_now),
        body,
        think_s: args.think,
        concurrency_max: args.max_concurrency as usize,
        levels,
        slo: args.slo.clone().unwrap_or_default(),
        rules: Conduct {
            grace_s: args.grace,
            budget_s: args.budget.or(is_search.then_some(BUDGET_S)),
        },
        calibration: if args.no_calibration {
            Calibration::Skip
        } else {
            Calibration::Measure
        },
    })
}

/// Who asks: the connection, the headers and the waits.
pub fn client_of(endpoint: Endpoint, args: &LoadArgs) -> anyhow::Result<Client> {
    let protocol = if args.http2 {
        Protocol::Http2
    } else {
        Protocol::Http1
    };
    let trust = if args.insecure {
        Trust::Anybody
    } else {
        Trust::Platform
    };
    let key = match &args.api_key_env {
        None => None,
        Some(name) => Some(
            std::env::var(name)
                .map_err(|_| anyhow::anyhow!("--api-key-env: the variable {name:?} is not set"))?,
        ),
    };
    Ok(Client {
        connector: Connector::tcp(&endpoint, protocol, trust).context("cannot set up TLS")?,
        headers: Client::headers(&endpoint, key.as_deref(), &args.header)?,
        endpoint,
        protocol,
        timeouts: Timeouts {
            connect: Duration::from_secs_f64(args.connect_timeout),
            first_token: Duration::from_secs_f64(args.first_token_timeout),
            next_token: Duration::from_secs_f64(args.idle_timeout),
            total: Duration::from_secs_f64(args.timeout),
        },
    })
}

fn workload_and_levels(args: &LoadArgs) -> anyhow::Result<(Workload, Levels)> {
    if let Some(path) = &args.trace {
        let options = TraceOptions {
            timestamps: args.timestamps.map(|kind| match kind {
                TimestampKind::Cumulative => bench::workload::Timestamps::Cumulative,
                TimestampKind::Delta => bench::workload::Timestamps::Delta,
            }),
            ..TraceOptions::default()
        };
        let workload = Workload::from_trace(path, &options)?;
        let times = workload
            .due_times()
            .ok_or_else(|| anyhow::anyhow!("{}: no request says when it was sent", path.display()))
            .hint(|| "give it as --workload of a run with --users or --rate".to_owned())?;
        let replay = Process::Replay {
            times,
            speed: args.speed,
        };
        let plan = LevelPlan {
            pace: Pace::Arrivals(replay),
            stop: stop_of(args, None),
        };
        return Ok((workload, Levels::Listed(vec![plan])));
    }
    let workload = workload_of(&args.workload)?;
    let paces: Vec<Pace> = if args.rate.is_empty() {
        args.users.iter().map(|&users| Pace::Users(users)).collect()
    } else {
        let rates = args.rate.iter();
        rates
            .map(|&rate| Pace::Arrivals(process_of(rate, args)))
            .collect()
    };
    if paces.is_empty() {
        return Ok((workload, search_of(args)));
    }
    let stop = stop_of(args, Some(DURATION_S));
    let plans = paces.into_iter().map(|pace| LevelPlan { pace, stop });
    Ok((workload, Levels::Listed(plans.collect())))
}

fn search_of(args: &LoadArgs) -> Levels {
    let is_bounded = args.duration.is_some() || args.requests.is_some();
    let mut stop = stop_of(args, Some(SEARCH_DURATION_S));
    if !is_bounded {
        stop.precision = stop.precision.or(Some(PRECISION));
        stop.duration_s = Some(SEARCH_DURATION_S);
    }
    Levels::Search {
        first: FIRST_USERS.to_vec(),
        stop,
        users_max: USERS_MAX,
    }
}

/// When a level ends: whatever is asked for, or after `default_s`, if a level of its kind has no end of its own.
fn stop_of(args: &LoadArgs, default_s: Option<f64>) -> Stop {
    let otherwise = match (args.requests, args.precision) {
        (Some(_), _) => None,
        (None, Some(_)) => default_s.map(|default_s| PRECISION_MAX_S.max(default_s)),
        (None, None) => default_s,
    };
    let duration_s = args.duration.or(otherwise);
    Stop {
        duration_s,
        requests: args.requests,
        precision: args.precision,
        precision_from_s: duration_s.map_or(PRECISION_FROM_S, |end_s| PRECISION_FROM_S.min(end_s)),
        // A promise about p99 is not decided before there is one.
        precision_answers_min: args
            .slo
            .iter()
            .flat_map(|slo| &slo.objectives)
            // A maximum is what was seen, however little that is.
            .filter(|objective| objective.quantile < 1.0)
            .map(|objective| needed_for(objective.quantile, 0.95))
            .max()
            .unwrap_or(0),
    }
}

fn process_of(rate: f64, args: &LoadArgs) -> Process {
    match args.arrival {
        ArrivalKind::Poisson => Process::Poisson { rate },
        ArrivalKind::Constant => Process::Constant { rate },
        ArrivalKind::Gamma => Process::Gamma {
            rate,
            burstiness: args.burstiness,
        },
        ArrivalKind::Ramp => Process::Ramp {
            from: args.ramp_from,
            to: rate,
            seconds: args.duration.unwrap_or(DURATION_S),
        },
    }
}

/// A shipped workload by its name, or a file.
fn workload_of(name: &str) -> anyhow::Result<Workload> {
    let path = Path::new(name);
    if path.exists() && !Workload::names().any(|known| known == name) {
        return Ok(Workload::load(path)?);
    }
    Ok(Workload::named(name)?)
}

/// The words of a tokenizer at hand.
fn vocabulary_of(path: &Path) -> anyhow::Result<Vocabulary> {
    let (tokenizer, template): (Tokenizer, _) = crate::open::tokenizer_of(path)?;
    Vocabulary::from_tokenizer(&tokenizer, template.as_ref())
        .with_context(|| format!("{}: no prompts of exact length", path.display()))
}

/// Words that no run before had: the clock in nanoseconds is as good as a die.
fn salt_of_now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    // What JSON readers keep of a number.
    since.map_or(0, |since| since.as_nanos() as u64 % (1 << 53))
}

/// Whether the levels are one, as interleaving needs it.
pub fn single_level(levels: &Levels) -> anyhow::Result<LevelPlan> {
    match levels {
        Levels::Listed(plans) if plans.len() == 1 => Ok(plans[0].clone()),
        _ => bail!("abba measures one level in turn: give one --users or one --rate"),
    }
}
