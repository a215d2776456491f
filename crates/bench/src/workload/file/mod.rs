//! Workload files: TOML in, a [`Workload`] out.
//!
//! The one idea: nothing in a file is silently ignored. A key that is unknown, that has no use where it stands, or
//! whose value cannot be meant is refused with its path.
//!
//! Not here: drawing. The format is described in `docs/guides/workloads.md`.

// Its keys.
mod tables;
// What a class makes of them.
mod class;

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use xxhash_rust::xxh3::Xxh3;

use super::distribution::Distribution;
use super::readers::{self, TraceOptions};
use super::recorded::{Order, Recorded, Repeat};
use super::{Burst, BurstWhen, Class, History, LIMITS, Origin, Plan, Workload, WorkloadError};
use crate::slo::Slo;
use crate::summary::Warning;

use tables::{BurstTable, WorkloadTable};

/// The one version of the format.
const VERSION: u32 = 1;

/// What comes with the program.
pub(super) const SHIPPED: [(&str, &str); 7] = [
    ("mixed", include_str!("../../../workloads/mixed.toml")),
    ("shared", include_str!("../../../workloads/shared.toml")),
    ("chat", include_str!("../../../workloads/chat.toml")),
    ("rag", include_str!("../../../workloads/rag.toml")),
    ("agents", include_str!("../../../workloads/agents.toml")),
    (
        "summarise",
        include_str!("../../../workloads/summarise.toml"),
    ),
    (
        "longburst",
        include_str!("../../../workloads/longburst.toml"),
    ),
];

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
    warnings: Vec<Warning>,
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
}
