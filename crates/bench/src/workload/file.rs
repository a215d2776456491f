//! Workload files: TOML in, a [`Workload`] out.
//!
//! The one idea: nothing in a file is silently ignored. A key that is unknown, that has no use where it stands, or
//! whose value cannot be meant is refused with its path.
//!
//! Not here: drawing. The format is described in `docs/guides/workloads.md`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use xxhash_rust::xxh3::Xxh3;

use super::distribution::{Allowed, Bounds, Distribution, Fault, Unit, Written};
use super::drawn::{Drawn, Length, Output, Prefix};
use super::readers::{self, Format, Reading, Timestamps, TraceOptions};
use super::recorded::{Order, Recorded, Repeat};
use super::{
    Burst, BurstWhen, Class, History, LIMITS, Origin, OutputLength, Plan, Workload, WorkloadError,
};
use crate::arrival::Process;
use crate::slo::Slo;

/// The one version of the format.
const VERSION: u32 = 1;

/// What comes with the program.
pub(super) const SHIPPED: [(&str, &str); 7] = [
    ("mixed", include_str!("../../workloads/mixed.toml")),
    ("shared", include_str!("../../workloads/shared.toml")),
    ("chat", include_str!("../../workloads/chat.toml")),
    ("rag", include_str!("../../workloads/rag.toml")),
    ("agents", include_str!("../../workloads/agents.toml")),
    ("summarise", include_str!("../../workloads/summarise.toml")),
    ("longburst", include_str!("../../workloads/longburst.toml")),
];

/// Body fields that are the client's own.
const BODY_TAKEN: [&str; 4] = ["messages", "prompt", "stream", "stream_options"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WorkloadTable {
    version: u32,
    name: String,
    #[serde(default)]
    description: String,
    class: Vec<ClassTable>,
    #[serde(default)]
    burst: Vec<BurstTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClassTable {
    name: String,
    share: Option<f64>,
    arrivals: Option<ArrivalsTable>,
    slo: Option<String>,
    prompt: Option<Written>,
    follow_up: Option<Written>,
    output: Option<Written>,
    shared_prefix: Option<PrefixTable>,
    turns: Option<Written>,
    think: Option<Written>,
    history: Option<History>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    body: serde_json::Map<String, serde_json::Value>,
    data: Option<DataTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PrefixTable {
    tokens: u64,
    groups: Option<u32>,
    share: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BurstTable {
    class: String,
    size: u64,
    every: Option<u64>,
    probability: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DataTable {
    file: String,
    format: Format,
    timestamps: Option<Timestamps>,
    block_tokens: Option<u64>,
    order: Option<Order>,
    repeat: Option<bool>,
    turns_max: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ArrivalsTable {
    process: ProcessName,
    rate: Option<f64>,
    burstiness: Option<f64>,
    from: Option<f64>,
    to: Option<f64>,
    seconds: Option<f64>,
    speed: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ProcessName {
    Constant,
    Poisson,
    Gamma,
    Ramp,
    Replay,
}

/// A workload that comes with the program.
pub(super) fn named(name: &str) -> Result<Workload, WorkloadError> {
    let found = SHIPPED.iter().find(|(known, _)| *known == name);
    let (_, text) = found.ok_or_else(|| WorkloadError::UnknownName {
        name: name.to_owned(),
    })?;
    parse(text, name, Path::new("."))
}

/// A workload file.
pub(super) fn load(path: &Path) -> Result<Workload, WorkloadError> {
    let origin = path.display().to_string();
    let bytes = read_bounded(path, LIMITS.file_bytes_max)?;
    let text = String::from_utf8(bytes).map_err(|_| WorkloadError::Syntax {
        origin: origin.clone(),
        key: String::new(),
        reason: "is not UTF-8".to_owned(),
    })?;
    let folder = path.parent().unwrap_or(Path::new("."));
    parse(
        text.strip_prefix('\u{feff}').unwrap_or(&text),
        &origin,
        folder,
    )
}

/// A data file by itself.
pub(super) fn from_data(path: &Path, options: &TraceOptions) -> Result<Workload, WorkloadError> {
    let bytes = read_bounded(path, LIMITS.data_bytes_max)?;
    let reading = readers::read(path, &bytes, options)?;
    let mut hasher = Xxh3::new();
    hasher.update(&bytes);
    // The same bytes read in another way are another workload.
    hasher.update(reading.description.as_bytes());
    let name = path
        .file_stem()
        .map_or("data".into(), |stem| stem.to_string_lossy());
    let recorded = Recorded {
        records: reading.records,
        order: Order::File,
        repeat: Repeat::Never,
        block_tokens: options.block_tokens,
        output: None,
        think: Distribution::fixed(0.0),
    };
    Ok(Workload {
        name: name.into_owned(),
        description: reading.description,
        hash: format!("{:016x}", hasher.digest()),
        hash_bits: hasher.digest(),
        classes: vec![Class {
            name: "default".to_owned(),
            slo: Slo::default(),
            shared_share: recorded.shared_share(),
            share: 1.0,
            arrivals: None,
        }],
        warnings: reading.warnings,
        bursts: Vec::new(),
        due_s: recorded.due_times(),
        plans: vec![Plan {
            origin: Origin::Recorded(Arc::new(recorded)),
            history: History::Answers,
            headers: Vec::new(),
            body: serde_json::Map::new(),
        }],
    })
}

/// The text of a workload file. Data files are looked for in `folder`.
pub(crate) fn parse(text: &str, origin: &str, folder: &Path) -> Result<Workload, WorkloadError> {
    let table = table_of(text, origin)?;
    let mut file = Reader {
        origin,
        folder,
        hasher: Xxh3::new(),
        warnings: Vec::new(),
    };
    file.hasher.update(text.as_bytes());
    if table.version != VERSION {
        let reason = format!("is {}; this program reads version {VERSION}", table.version);
        return Err(file.fault("version", reason));
    }
    if table.name.trim().is_empty() {
        return Err(file.fault("name", "is empty"));
    }
    let num_classes = table.class.len();
    if num_classes == 0 || num_classes > LIMITS.classes_max {
        let reason = format!(
            "has {num_classes} entries; it takes 1 to {}",
            LIMITS.classes_max
        );
        return Err(file.fault("class", reason));
    }
    let shares = file.shares(&table)?;
    let bursts = file.bursts(&table)?;
    let mut classes = Vec::with_capacity(num_classes);
    let mut plans = Vec::with_capacity(num_classes);
    for (idx, class) in table.class.into_iter().enumerate() {
        let at = format!("class[{idx}]");
        // Whether conversations of the run's own numbering go to others, too: then data cannot be told apart from
        // its end.
        let is_alone = shares[idx] >= 1.0 && bursts.is_empty() || class.arrivals.is_some();
        let (class, plan) = file.class(class, &at, shares[idx], is_alone)?;
        if classes.iter().any(|other: &Class| other.name == class.name) {
            return Err(file.fault(
                &format!("{at}.name"),
                format!("{:?} is there twice", class.name),
            ));
        }
        classes.push(class);
        plans.push(plan);
    }
    let due_s = due_times(&classes, &plans, &bursts);
    let hash_bits = file.hasher.digest();
    Ok(Workload {
        name: table.name,
        description: table.description,
        hash: format!("{hash_bits:016x}"),
        classes,
        warnings: file.warnings,
        plans,
        bursts,
        hash_bits,
        due_s,
    })
}

/// The times of the one class that everything belongs to, if it is a trace in its own order.
fn due_times(classes: &[Class], plans: &[Plan], bursts: &[Burst]) -> Option<Arc<[f64]>> {
    let idx = classes.iter().position(|class| class.share >= 1.0)?;
    let Origin::Recorded(recorded) = &plans[idx].origin else {
        return None;
    };
    let is_trace =
        bursts.is_empty() && recorded.order == Order::File && recorded.repeat == Repeat::Never;
    recorded.due_times().filter(|_| is_trace)
}

fn table_of(text: &str, origin: &str) -> Result<WorkloadTable, WorkloadError> {
    let syntax = |key: String, error: &toml::de::Error| WorkloadError::Syntax {
        origin: origin.to_owned(),
        key,
        reason: error.to_string().trim_end().to_owned(),
    };
    let document =
        toml::Deserializer::parse(text).map_err(|error| syntax(String::new(), &error))?;
    serde_path_to_error::deserialize(document)
        .map_err(|error| syntax(error.path().to_string(), error.inner()))
}

/// The bytes of a file that may not be larger than `bytes_max`.
fn read_bounded(path: &Path, bytes_max: u64) -> Result<Vec<u8>, WorkloadError> {
    let unreadable = |source| WorkloadError::Unreadable {
        path: path.to_owned(),
        source,
    };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(bytes_max + 1)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    match bytes.len() as u64 > bytes_max {
        false => Ok(bytes),
        true => Err(WorkloadError::TooLarge {
            path: path.to_owned(),
            bytes_max,
        }),
    }
}

/// What reading one workload file takes along.
struct Reader<'a> {
    origin: &'a str,
    folder: &'a Path,
    hasher: Xxh3,
    warnings: Vec<crate::summary::Warning>,
}

impl Reader<'_> {
    fn fault(&self, key: &str, reason: impl Into<String>) -> WorkloadError {
        WorkloadError::Value {
            origin: self.origin.to_owned(),
            key: key.to_owned(),
            reason: reason.into(),
        }
    }

    /// Shares of classes, adding up to 1 (or all 0).
    fn shares(&self, table: &WorkloadTable) -> Result<Vec<f64>, WorkloadError> {
        let num_classes = table.class.len();
        let mut shares = Vec::with_capacity(num_classes);
        for (idx, class) in table.class.iter().enumerate() {
            let key = format!("class[{idx}].share");
            let share = match (class.share, &class.arrivals) {
                (Some(_), Some(_)) => {
                    return Err(self.fault(&key, "means nothing for a class with its own arrivals"));
                }
                (None, Some(_)) => 0.0,
                (Some(share), None) if share.is_finite() && share >= 0.0 => share,
                (Some(share), None) => {
                    return Err(self.fault(&key, format!("is {share}; it must be 0 or more")));
                }
                (None, None) if num_classes == 1 => 1.0,
                (None, None) => {
                    return Err(self.fault(&key, "is missing: there are several classes"));
                }
            };
            shares.push(share);
        }
        let total: f64 = shares.iter().sum();
        let all_on_their_own = table.class.iter().all(|class| class.arrivals.is_some());
        if !total.is_finite() || total <= 0.0 && !all_on_their_own {
            return Err(self.fault("class[0].share", "no class has a share above 0"));
        }
        if total > 0.0 {
            shares.iter_mut().for_each(|share| *share /= total);
        }
        Ok(shares)
    }

    fn bursts(&self, table: &WorkloadTable) -> Result<Vec<Burst>, WorkloadError> {
        if table.burst.len() > LIMITS.bursts_max {
            let reason = format!(
                "has {} entries, at most {}",
                table.burst.len(),
                LIMITS.bursts_max
            );
            return Err(self.fault("burst", reason));
        }
        let burst_of = |(idx, burst): (usize, &BurstTable)| {
            let at = |key: &str| format!("burst[{idx}].{key}");
            let class = table
                .class
                .iter()
                .position(|class| class.name == burst.class);
            let class = class.ok_or_else(|| {
                self.fault(
                    &at("class"),
                    format!("no class is called {:?}", burst.class),
                )
            })?;
            if table.class[class].arrivals.is_some() {
                return Err(self.fault(&at("class"), "has its own arrivals"));
            }
            if burst.size == 0 {
                return Err(self.fault(&at("size"), "is 0; it must be 1 or more"));
            }
            let when = match (burst.every, burst.probability) {
                (Some(every), None) if every >= burst.size => BurstWhen::Every(every),
                (Some(every), None) => {
                    return Err(self.fault(
                        &at("every"),
                        format!("is {every}, below size = {}", burst.size),
                    ));
                }
                (None, Some(chance)) if (0.0..=1.0).contains(&chance) => {
                    BurstWhen::Probability(chance)
                }
                (None, Some(chance)) => {
                    return Err(self.fault(
                        &at("probability"),
                        format!("is {chance}; it must be from 0 to 1"),
                    ));
                }
                _ => return Err(self.fault(&at("every"), "takes either every or probability")),
            };
            Ok(Burst {
                class,
                size: burst.size,
                when,
            })
        };
        table.burst.iter().enumerate().map(burst_of).collect()
    }

    fn class(
        &mut self,
        table: ClassTable,
        at: &str,
        share: f64,
        is_alone: bool,
    ) -> Result<(Class, Plan), WorkloadError> {
        if table.name.trim().is_empty() {
            return Err(self.fault(&format!("{at}.name"), "is empty"));
        }
        let slo = match &table.slo {
            None => Slo::default(),
            Some(text) => text.parse().map_err(|error: crate::slo::SloError| {
                self.fault(&format!("{at}.slo"), error.to_string())
            })?,
        };
        let history = table.history.unwrap_or(History::Answers);
        self.check_headers(&table.headers, at)?;
        if let Some(taken) = BODY_TAKEN.iter().find(|key| table.body.contains_key(**key)) {
            return Err(self.fault(&format!("{at}.body.{taken}"), "is the client's own"));
        }
        let origin = match &table.data {
            None => Origin::Drawn(Box::new(self.drawn(&table, at, history)?)),
            Some(data) => Origin::Recorded(Arc::new(self.recorded(&table, data, at, is_alone)?)),
        };
        let (shared_share, trace) = match &origin {
            Origin::Drawn(drawn) => (drawn.shared_share(history), None),
            Origin::Recorded(recorded) if !recorded.supports(history) => {
                let reason = "the data does not tell every answer that a later turn repeats";
                return Err(self.fault(&format!("{at}.history"), reason));
            }
            Origin::Recorded(recorded) => (recorded.shared_share(), recorded.due_times()),
        };
        let arrivals = match &table.arrivals {
            None => None,
            Some(arrivals) => Some(self.arrivals(arrivals, &format!("{at}.arrivals"), trace)?),
        };
        let class = Class {
            name: table.name,
            slo,
            shared_share,
            share,
            arrivals,
        };
        let plan = Plan {
            origin,
            history,
            headers: table.headers.into_iter().collect(),
            body: table.body,
        };
        Ok((class, plan))
    }

    fn drawn(
        &self,
        table: &ClassTable,
        at: &str,
        history: History,
    ) -> Result<Drawn, WorkloadError> {
        if history == History::Recorded {
            return Err(self.fault(
                &format!("{at}.history"),
                "recorded takes data that tells the answers",
            ));
        }
        let key = |name: &str| format!("{at}.{name}");
        let prompt = table
            .prompt
            .as_ref()
            .ok_or_else(|| self.fault(&key("prompt"), "is missing"))?;
        let prompt = self.length(prompt, &key("prompt"))?;
        let output = table
            .output
            .as_ref()
            .ok_or_else(|| self.fault(&key("output"), "is missing"))?;
        let turns = match &table.turns {
            None => Distribution::fixed(1.0),
            Some(turns) => {
                self.distribution(turns, &key("turns"), bounds(1.0, LIMITS.turns_max as f64))?
            }
        };
        let has_turns = turns.bounds().1 > 1.0;
        for (name, is_there) in [
            ("follow_up", table.follow_up.is_some()),
            ("think", table.think.is_some()),
            ("history", table.history.is_some()),
        ] {
            if is_there && !has_turns {
                return Err(self.fault(&key(name), "means nothing for conversations of one turn"));
            }
        }
        Ok(Drawn {
            follow_up: match &table.follow_up {
                None => prompt.clone(),
                Some(written) => self.length(written, &key("follow_up"))?,
            },
            prompt,
            output: self.output(output, &key("output"))?,
            prefix: match &table.shared_prefix {
                None => None,
                Some(prefix) => Some(self.prefix(prefix, &key("shared_prefix"))?),
            },
            turns,
            think: self.think(table, at)?,
        })
    }

    fn recorded(
        &mut self,
        table: &ClassTable,
        data: &DataTable,
        at: &str,
        is_alone: bool,
    ) -> Result<Recorded, WorkloadError> {
        let key = |name: &str| format!("{at}.{name}");
        for (name, is_there) in [
            ("prompt", table.prompt.is_some()),
            ("follow_up", table.follow_up.is_some()),
            ("shared_prefix", table.shared_prefix.is_some()),
            ("turns", table.turns.is_some()),
        ] {
            if is_there {
                return Err(self.fault(&key(name), "means nothing beside data"));
            }
        }
        let reading = self.read_data(data, at)?;
        let has_times = reading.records.iter().all(|record| record.due_s.is_some());
        let order = data.order.unwrap_or(Order::File);
        if order == Order::Shuffled && has_times {
            return Err(self.fault(&key("data.order"), "a trace is asked in its own order"));
        }
        let repeat = match data.repeat {
            Some(true) => Repeat::Always,
            Some(false) | None => Repeat::Never,
        };
        if repeat == Repeat::Never && !is_alone {
            let reason = "must be true where other classes or bursts take part: a class has no end of its own";
            return Err(self.fault(&key("data.repeat"), reason));
        }
        self.warnings.extend(reading.warnings);
        Ok(Recorded {
            records: reading.records,
            order,
            repeat,
            block_tokens: data
                .block_tokens
                .unwrap_or(TraceOptions::default().block_tokens),
            output: match &table.output {
                None => None,
                Some(written) => Some(self.output(written, &key("output"))?),
            },
            think: self.think(table, at)?,
        })
    }

    fn read_data(&mut self, data: &DataTable, at: &str) -> Result<Reading, WorkloadError> {
        let key = |name: &str| format!("{at}.data.{name}");
        let is_mooncake = data.format == Format::Mooncake;
        match (is_mooncake, data.timestamps) {
            (true, None) => {
                let reason = "is missing: say whether timestamps are \"delta\" or \"cumulative\"";
                return Err(self.fault(&key("timestamps"), reason));
            }
            (false, Some(_)) => return Err(self.fault(&key("timestamps"), "is for mooncake only")),
            _ => {}
        }
        match (is_mooncake, data.block_tokens) {
            (true, Some(0)) => {
                return Err(self.fault(&key("block_tokens"), "is 0; it must be 1 or more"));
            }
            (false, Some(_)) => {
                return Err(self.fault(&key("block_tokens"), "is for mooncake only"));
            }
            _ => {}
        }
        match (data.format, data.turns_max) {
            (_, None) => {}
            (Format::Sharegpt, Some(turns)) if (1..=LIMITS.turns_max).contains(&turns) => {}
            (Format::Sharegpt, Some(turns)) => {
                let reason = format!("is {turns}; it must be from 1 to {}", LIMITS.turns_max);
                return Err(self.fault(&key("turns_max"), reason));
            }
            _ => return Err(self.fault(&key("turns_max"), "is for sharegpt only")),
        }
        let path = self.folder.join(&data.file);
        let bytes = read_bounded(&path, LIMITS.data_bytes_max)?;
        self.hasher.update(&bytes);
        let options = TraceOptions {
            format: Some(data.format),
            timestamps: data.timestamps,
            block_tokens: data
                .block_tokens
                .unwrap_or(TraceOptions::default().block_tokens),
            turns_max: data.turns_max.unwrap_or(LIMITS.turns_max),
        };
        readers::read(&path, &bytes, &options)
    }

    fn length(&self, written: &Written, key: &str) -> Result<Length, WorkloadError> {
        let bounds = Bounds {
            unit: Allowed::Yes,
            ..bounds(1.0, LIMITS.text_tokens_max as f64)
        };
        Ok(Length {
            distribution: self.distribution(written, key, bounds)?,
            unit: written.unit().unwrap_or(Unit::Tokens),
        })
    }

    fn output(&self, written: &Written, key: &str) -> Result<Output, WorkloadError> {
        let bounds = Bounds {
            exact: Allowed::Yes,
            ..bounds(1.0, LIMITS.text_tokens_max as f64)
        };
        Ok(Output {
            distribution: self.distribution(written, key, bounds)?,
            meant: match written.exact() {
                Some(false) => OutputLength::AtMost,
                Some(true) | None => OutputLength::Exact,
            },
        })
    }

    fn think(&self, table: &ClassTable, at: &str) -> Result<Distribution, WorkloadError> {
        match &table.think {
            None => Ok(Distribution::fixed(0.0)),
            Some(think) => self.distribution(
                think,
                &format!("{at}.think"),
                bounds(0.0, LIMITS.think_s_max),
            ),
        }
    }

    fn distribution(
        &self,
        written: &Written,
        key: &str,
        bounds: Bounds,
    ) -> Result<Distribution, WorkloadError> {
        written
            .read(bounds)
            .map_err(|Fault { key: inner, reason }| self.fault(&format!("{key}.{inner}"), reason))
    }

    fn prefix(&self, table: &PrefixTable, key: &str) -> Result<Prefix, WorkloadError> {
        let prefix = Prefix {
            num_words: table.tokens,
            groups: table.groups.unwrap_or(1),
            share: table.share.unwrap_or(1.0),
        };
        if !(1..=LIMITS.text_tokens_max).contains(&prefix.num_words) {
            let reason = format!(
                "is {}; it must be from 1 to {}",
                prefix.num_words, LIMITS.text_tokens_max
            );
            return Err(self.fault(&format!("{key}.tokens"), reason));
        }
        if prefix.groups == 0 {
            return Err(self.fault(&format!("{key}.groups"), "is 0; it must be 1 or more"));
        }
        if !(0.0..=1.0).contains(&prefix.share) {
            let reason = format!("is {}; it must be from 0 to 1", prefix.share);
            return Err(self.fault(&format!("{key}.share"), reason));
        }
        Ok(prefix)
    }

    fn check_headers(
        &self,
        headers: &BTreeMap<String, String>,
        at: &str,
    ) -> Result<(), WorkloadError> {
        if headers.len() > LIMITS.headers_max {
            let reason = format!(
                "has {} entries, at most {}",
                headers.len(),
                LIMITS.headers_max
            );
            return Err(self.fault(&format!("{at}.headers"), reason));
        }
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        let is_value = |byte: u8| byte == b'\t' || (b' '..=b'~').contains(&byte);
        for (name, value) in headers {
            let key = format!("{at}.headers.{name:?}");
            if name.is_empty() || !name.bytes().all(is_name) {
                return Err(self.fault(&key, "is no name of a header"));
            }
            if !value.bytes().all(is_value) {
                return Err(self.fault(&key, "has a value that no header can have"));
            }
        }
        Ok(())
    }

    fn arrivals(
        &self,
        table: &ArrivalsTable,
        at: &str,
        trace: Option<Arc<[f64]>>,
    ) -> Result<Process, WorkloadError> {
        let name = table.process;
        let keys = [
            (
                "rate",
                table.rate,
                matches!(
                    name,
                    ProcessName::Constant | ProcessName::Poisson | ProcessName::Gamma
                ),
            ),
            ("burstiness", table.burstiness, name == ProcessName::Gamma),
            ("from", table.from, name == ProcessName::Ramp),
            ("to", table.to, name == ProcessName::Ramp),
            ("seconds", table.seconds, name == ProcessName::Ramp),
            ("speed", table.speed, name == ProcessName::Replay),
        ];
        for (key, value, is_wanted) in keys {
            let reason = match (value, is_wanted) {
                (Some(_), false) => "means nothing for this process",
                (None, true) if key != "speed" => "is missing",
                _ => continue,
            };
            return Err(self.fault(&format!("{at}.{key}"), reason));
        }
        let of = |value: Option<f64>| value.unwrap_or(1.0);
        let process = match name {
            ProcessName::Constant => Process::Constant {
                rate: of(table.rate),
            },
            ProcessName::Poisson => Process::Poisson {
                rate: of(table.rate),
            },
            ProcessName::Gamma => Process::Gamma {
                rate: of(table.rate),
                burstiness: of(table.burstiness),
            },
            ProcessName::Ramp => Process::Ramp {
                from: of(table.from),
                to: of(table.to),
                seconds: of(table.seconds),
            },
            ProcessName::Replay => Process::Replay {
                times: trace.ok_or_else(|| {
                    self.fault(
                        &format!("{at}.process"),
                        "replay takes data that says when requests were made",
                    )
                })?,
                speed: of(table.speed),
            },
        };
        process
            .check()
            .map_err(|error| self.fault(at, error.to_string()))?;
        Ok(process)
    }
}

/// Bounds of a plain number.
fn bounds(min: f64, max: f64) -> Bounds {
    Bounds {
        min,
        max,
        unit: Allowed::No,
        exact: Allowed::No,
    }
}
