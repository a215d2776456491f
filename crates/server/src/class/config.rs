//! From the text of `fulcrum.toml` to classes, tenants and keys, or to why not: the place in the
//! file, its line, and what was expected. Nothing is clamped and nothing passed over.

use std::collections::BTreeMap;
use std::time::Duration;

use sha2::{Digest, Sha256};
use toml::de::{DeTable, DeValue};

use super::quantity::{DURATION_MAX, duration};
use super::sketch::{ClassTable, File, KeyTable, Number, OverloadWord, SloTable, TenantTable};
use super::{Class, ClassId, NamedKey, NamedTenant, Overload, Plain, Slo, TenantTerms, Traffic};

/// Classes of one server, the built-in ones included: each is a label of metrics and a queue.
pub const NUM_CLASSES_MAX: usize = 16;
/// Tenants that a configuration may name.
pub const NUM_TENANTS_MAX: usize = 1024;
/// Keys that a configuration may name: each is compared with every request's.
pub const NUM_KEYS_MAX: usize = 1024;
/// Bytes of a file; one with all of the above has less.
pub const TEXT_BYTES_MAX: usize = 1 << 20;
/// Longer names are no names.
const NAME_BYTES_MAX: usize = 64;
/// No first token and no gap may be promised for later than this.
const TOKEN_TARGET_MAX: Duration = Duration::from_secs(3600);
const QUEUE_MAX: u64 = 1_000_000;
/// No model has a longer context.
const TOKENS_MAX: u64 = 1 << 28;
const WEIGHT_MAX: f64 = 1e6;
const TOKENS_PER_MINUTE_MAX: u64 = 1_000_000_000_000;
/// What may have a class of its own: the routes that ask the engine for work.
const ROUTES: &[&str] = &[
    "/v1/chat/completions",
    "/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/embeddings",
];

/// What is wrong with a configuration, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{}{reason}", if path.is_empty() { String::new() } else { format!("{path}: ") }, line.map_or(String::new(), |line| format!("line {line}: ")))]
pub struct ConfigError {
    /// The place, as in `class.batch.share_min`; empty for the file as a whole.
    pub path: String,
    /// Counted from 1.
    pub line: Option<usize>,
    /// What is wrong there; never a value of the file that could be a secret.
    pub reason: String,
}

impl Traffic {
    /// Reads a configuration. `variable` tells the value of an environment variable, for keys
    /// that are declared with `env`.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong, with its place.
    pub fn parse(
        text: &str,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Traffic, ConfigError> {
        if text.len() > TEXT_BYTES_MAX {
            let reason = format!("the file has more than {TEXT_BYTES_MAX} bytes");
            return Err(ConfigError {
                path: String::new(),
                line: None,
                reason,
            });
        }
        let file = read(text)?;
        let document = DeTable::parse(text).map_err(|error| of_toml(text, "", &error))?;
        let check = Check {
            text,
            document: document.get_ref(),
        };
        check.bounded("class", file.class.len(), NUM_CLASSES_MAX)?;
        check.bounded("tenant", file.tenant.len(), NUM_TENANTS_MAX)?;
        check.bounded("key", file.key.len(), NUM_KEYS_MAX)?;
        let mut keys = check.keys(&file.key, variable)?;
        let (classes, plain) = check.classes(&file.class)?;
        let id_of = |name: &str| {
            let place = classes.iter().position(|class| class.name == name);
            let place = place.expect("each of the file's is among all");
            ClassId(u8::try_from(place).expect("bounded"))
        };
        let mut routes: Vec<(String, ClassId)> = Vec::new();
        for (name, table) in &file.class {
            check.routes(name, table, id_of(name), &mut routes)?;
            check.pins(name, table, id_of(name), &mut keys)?;
        }
        let (default_terms, tenants) = check.tenants(&file.tenant, &mut keys)?;
        Ok(Traffic {
            classes,
            plain,
            routes,
            keys,
            default_terms,
            tenants,
        })
    }
}

fn read(text: &str) -> Result<File, ConfigError> {
    let document = toml::Deserializer::parse(text).map_err(|error| of_toml(text, "", &error))?;
    serde_path_to_error::deserialize(document).map_err(|error| {
        let path = error.path().to_string();
        of_toml(text, &path, error.inner())
    })
}

fn of_toml(text: &str, path: &str, error: &toml::de::Error) -> ConfigError {
    let is_of_key = path == "key" || path.starts_with("key.");
    ConfigError {
        path: if path == "." { "" } else { path }.to_owned(),
        line: error.span().map(|span| line_at(text, span.start)),
        // The parser repeats what it found, which may be somebody's key.
        reason: match is_of_key {
            true => "a key is declared as [key.NAME] with sha256 = \"…\" or env = \"VARIABLE\", and nothing else".to_owned(),
            false => error.message().trim_end().to_owned(),
        },
    }
}

fn line_at(text: &str, at: usize) -> usize {
    let before = &text.as_bytes()[..at.min(text.len())];
    1 + before.iter().filter(|&&byte| byte == b'\n').count()
}

/// The built-in classes: name, rank, and what they promise.
fn built_in() -> [Class; 3] {
    let class = |name: &str, rank| Class {
        name: name.to_owned(),
        rank,
        slo: Slo::default(),
        share_min: 0.0,
        overload: Overload::Queue,
        queue_max: None,
        output_tokens_max: None,
        context_tokens_max: None,
        timeout: None,
    };
    [
        Class {
            slo: Slo {
                ttft_p95: Some(Duration::from_millis(800)),
                itl_p99: Some(Duration::from_millis(120)),
                deadline: None,
            },
            ..class("interactive", 100)
        },
        class("standard", 200),
        Class {
            slo: Slo {
                deadline: Some(Duration::from_secs(24 * 3600)),
                ..Slo::default()
            },
            share_min: 0.05,
            ..class("batch", 300)
        },
    ]
}

/// The file, for saying where something stands.
struct Check<'a> {
    text: &'a str,
    document: &'a DeTable<'a>,
}

impl Check<'_> {
    fn wrong(&self, path: &[&str], reason: impl Into<String>) -> ConfigError {
        ConfigError {
            path: path.join("."),
            line: self.line_of(path),
            reason: reason.into(),
        }
    }

    /// The line of the deepest part of `path` that the file has.
    fn line_of(&self, path: &[&str]) -> Option<usize> {
        let mut table = Some(self.document);
        let mut at = None;
        for part in path {
            let Some((key, value)) =
                table.and_then(|table| table.iter().find(|(key, _)| key.get_ref() == part))
            else {
                break;
            };
            at = Some(key.span().start);
            table = match value.get_ref() {
                DeValue::Table(inner) => Some(inner),
                _ => None,
            };
        }
        at.map(|at| line_at(self.text, at))
    }

    fn bounded(&self, table: &str, num: usize, num_max: usize) -> Result<(), ConfigError> {
        match num <= num_max {
            true => Ok(()),
            false => Err(self.wrong(
                &[table],
                format!("{num} are declared, at most {num_max} may be"),
            )),
        }
    }

    /// Names stand in headers, labels and logs as they are.
    fn name(&self, path: &[&str]) -> Result<(), ConfigError> {
        let name = path.last().copied().unwrap_or_default();
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        match (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(plain) {
            true => Ok(()),
            false => {
                let reason = format!(
                    "a name has 1 to {NAME_BYTES_MAX} of the characters a-z, A-Z, 0-9, _, - and ."
                );
                Err(self.wrong(&path[..path.len() - 1], reason))
            }
        }
    }

    fn whole(
        &self,
        path: &[&str],
        value: Option<u64>,
        max: u64,
    ) -> Result<Option<u64>, ConfigError> {
        match value {
            Some(value) if value == 0 || value > max => {
                Err(self.wrong(path, format!("must be a whole number from 1 to {max}")))
            }
            value => Ok(value),
        }
    }

    fn time(
        &self,
        path: &[&str],
        value: Option<&String>,
        max: Duration,
    ) -> Result<Option<Duration>, ConfigError> {
        let read = |text: &String| duration(text, max).map_err(|reason| self.wrong(path, reason));
        value.map(read).transpose()
    }

    /// The built-in classes as changed, and the file's own, by rank.
    fn classes(
        &self,
        tables: &BTreeMap<String, ClassTable>,
    ) -> Result<(Vec<Class>, Plain), ConfigError> {
        let mut classes = built_in().to_vec();
        for (name, table) in tables {
            self.name(&["class", name])?;
            match classes.iter_mut().find(|class| class.name == *name) {
                Some(class) => self.change(class, table)?,
                None => classes.push(self.own(name, table)?),
            }
        }
        self.bounded("class", classes.len(), NUM_CLASSES_MAX)?;
        classes.sort_by_key(|class| class.rank);
        for pair in classes.windows(2) {
            if pair[0].rank == pair[1].rank {
                let reason = format!("has the rank of {}, {}", pair[0].name, pair[0].rank);
                return Err(self.wrong(&["class", &pair[1].name], reason));
            }
        }
        let share_sum: f64 = classes.iter().map(|class| class.share_min).sum();
        if share_sum > 1.0 {
            let reason =
                format!("the share_min of all classes together are {share_sum}, more than 1");
            return Err(self.wrong(&["class"], reason));
        }
        let id = |name: &str| {
            let place = classes.iter().position(|class| class.name == name);
            ClassId(u8::try_from(place.expect("built in")).expect("bounded"))
        };
        let plain = Plain {
            interactive: id("interactive"),
            standard: id("standard"),
            batch: id("batch"),
        };
        Ok((classes, plain))
    }

    fn own(&self, name: &str, table: &ClassTable) -> Result<Class, ConfigError> {
        let Some(rank) = table.rank else {
            let reason = "needs a rank: classes go by ascending rank, interactive is 100, standard 200, batch 300";
            return Err(self.wrong(&["class", name], reason));
        };
        let [_, standard, _] = built_in();
        let mut class = Class {
            name: name.to_owned(),
            rank,
            ..standard
        };
        self.change(&mut class, table)?;
        Ok(class)
    }

    /// What the table says counts; what it leaves out stays.
    fn change(&self, class: &mut Class, table: &ClassTable) -> Result<(), ConfigError> {
        let name = class.name.clone();
        let at = |field| ["class", name.as_str(), field];
        class.rank = table.rank.unwrap_or(class.rank);
        if let Some(slo) = &table.slo {
            class.slo = self.slo(&name, slo)?;
        }
        if let Some(Number(share)) = table.share_min {
            if !(0.0..=1.0).contains(&share) {
                return Err(self.wrong(&at("share_min"), "must be a number from 0 to 1"));
            }
            class.share_min = share;
        }
        class.overload = match table.overload {
            None => class.overload,
            Some(OverloadWord::Queue) => Overload::Queue,
            Some(OverloadWord::Refuse) => Overload::Refuse,
        };
        if class.overload == Overload::Refuse && class.slo.ttft_p95.is_none() {
            let reason = "\"refuse\" needs a target to refuse by: slo.ttft_p95";
            return Err(self.wrong(&at("overload"), reason));
        }
        let whole = |field, value, max| self.whole(&at(field), value, max);
        if let Some(bound) = whole("queue_max", table.queue_max, QUEUE_MAX)? {
            class.queue_max = Some(bound as usize);
        }
        if let Some(bound) = whole("max_output_tokens", table.max_output_tokens, TOKENS_MAX)? {
            class.output_tokens_max = Some(bound as u32);
        }
        if let Some(bound) = whole("max_context_tokens", table.max_context_tokens, TOKENS_MAX)? {
            class.context_tokens_max = Some(bound as u32);
        }
        if let Some(timeout) = self.time(&at("timeout"), table.timeout.as_ref(), DURATION_MAX)? {
            class.timeout = Some(timeout);
        }
        Ok(())
    }

    /// A table of targets replaces the class's targets as a whole: an empty one promises nothing.
    fn slo(&self, name: &str, table: &SloTable) -> Result<Slo, ConfigError> {
        let time = |field, value, max| self.time(&["class", name, "slo", field], value, max);
        Ok(Slo {
            ttft_p95: time("ttft_p95", table.ttft_p95.as_ref(), TOKEN_TARGET_MAX)?,
            itl_p99: time("itl_p99", table.itl_p99.as_ref(), TOKEN_TARGET_MAX)?,
            deadline: time("deadline", table.deadline.as_ref(), DURATION_MAX)?,
        })
    }

    fn routes(
        &self,
        name: &str,
        table: &ClassTable,
        class: ClassId,
        routes: &mut Vec<(String, ClassId)>,
    ) -> Result<(), ConfigError> {
        let path = ["class", name, "routes"];
        for route in &table.routes {
            if !ROUTES.contains(&route.as_str()) {
                let reason = format!(
                    "{route:?} is no route that has a class; there are {}",
                    ROUTES.join(", ")
                );
                return Err(self.wrong(&path, reason));
            }
            if routes.iter().any(|(other, _)| other == route) {
                return Err(self.wrong(
                    &path,
                    format!("{route:?} stands here or in another class already"),
                ));
            }
            routes.push((route.clone(), class));
        }
        Ok(())
    }

    /// Keys that a class or tenant names, as indices. What is written there is not repeated:
    /// somebody will write a key instead of its name.
    fn named(
        &self,
        path: &[&str],
        names: &[String],
        keys: &[NamedKey],
    ) -> Result<Vec<usize>, ConfigError> {
        let index = |(idx, name): (usize, &String)| {
            let found = keys.iter().position(|key| key.name == *name);
            found.ok_or_else(|| {
                let reason = format!(
                    "entry {} is the name of no key; keys are declared as [key.NAME]",
                    idx + 1
                );
                self.wrong(path, reason)
            })
        };
        names.iter().enumerate().map(index).collect()
    }

    fn pins(
        &self,
        name: &str,
        table: &ClassTable,
        class: ClassId,
        keys: &mut [NamedKey],
    ) -> Result<(), ConfigError> {
        let path = ["class", name, "keys"];
        for idx in self.named(&path, &table.keys, keys)? {
            if keys[idx].class.replace(class).is_some() {
                let reason = format!("{} stands here or in another class already", keys[idx].name);
                return Err(self.wrong(&path, reason));
            }
        }
        Ok(())
    }

    fn tenants(
        &self,
        tables: &BTreeMap<String, TenantTable>,
        keys: &mut [NamedKey],
    ) -> Result<(TenantTerms, Vec<NamedTenant>), ConfigError> {
        let mut default_terms = TenantTerms {
            weight: 1.0,
            tokens_per_minute: None,
        };
        let mut tenants = Vec::new();
        for (name, table) in tables {
            self.name(&["tenant", name])?;
            let path = ["tenant", name.as_str(), "keys"];
            let terms = self.terms(name, table)?;
            if name == "default" {
                if !table.keys.is_empty() {
                    return Err(self.wrong(
                        &path,
                        "the default tenant is everybody who has no other, with any key",
                    ));
                }
                default_terms = terms;
                continue;
            }
            for idx in self.named(&path, &table.keys, keys)? {
                if keys[idx].tenant.replace(tenants.len()).is_some() {
                    let reason = format!(
                        "{} stands here or in another tenant already",
                        keys[idx].name
                    );
                    return Err(self.wrong(&path, reason));
                }
            }
            tenants.push(NamedTenant {
                name: name.clone(),
                terms,
                has_keys: !table.keys.is_empty(),
            });
        }
        Ok((default_terms, tenants))
    }

    fn terms(&self, name: &str, table: &TenantTable) -> Result<TenantTerms, ConfigError> {
        let weight = table.weight.map_or(1.0, |Number(weight)| weight);
        // So that no NaN, and no weight next to nothing, divides the others' shares.
        if !(1.0 / WEIGHT_MAX..=WEIGHT_MAX).contains(&weight) {
            let reason = format!("must be a number from {} to {WEIGHT_MAX}", 1.0 / WEIGHT_MAX);
            return Err(self.wrong(&["tenant", name, "weight"], reason));
        }
        let path = ["tenant", name, "tokens_per_minute"];
        let tokens_per_minute =
            self.whole(&path, table.tokens_per_minute, TOKENS_PER_MINUTE_MAX)?;
        Ok(TenantTerms {
            weight,
            tokens_per_minute,
        })
    }

    fn keys(
        &self,
        tables: &BTreeMap<String, KeyTable>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Vec<NamedKey>, ConfigError> {
        let mut keys: Vec<NamedKey> = Vec::new();
        for (name, table) in tables {
            let path = ["key", name.as_str()];
            self.name(&path)?;
            let digest = match (&table.sha256, &table.env) {
                (Some(hex), None) => digest_of_hex(hex).ok_or_else(|| {
                    let reason = "must be the 64 hexadecimal digits of the key's SHA-256 (printf %s KEY | sha256sum)";
                    self.wrong(&["key", name, "sha256"], reason)
                })?,
                (None, Some(env)) => digest_of_variable(env, &variable)
                    .map_err(|reason| self.wrong(&["key", name, "env"], reason))?,
                (None, None) | (Some(_), Some(_)) => {
                    return Err(self.wrong(&path, "needs either sha256 or env"));
                }
            };
            if let Some(same) = keys.iter().find(|key| key.digest == digest) {
                let reason = format!("is the same key as {}", same.name);
                return Err(self.wrong(&path, reason));
            }
            keys.push(NamedKey {
                name: name.clone(),
                digest,
                class: None,
                tenant: None,
            });
        }
        Ok(keys)
    }
}

fn digest_of_hex(hex: &str) -> Option<[u8; 32]> {
    let mut digest = [0; 32];
    if hex.len() != 64 || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (byte, idx) in digest.iter_mut().zip((0..64).step_by(2)) {
        *byte = u8::from_str_radix(&hex[idx..idx + 2], 16).ok()?;
    }
    Some(digest)
}

fn digest_of_variable(
    name: &str,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<[u8; 32], String> {
    let key =
        variable(name).ok_or("the environment has no variable of this name, or it is no text")?;
    match key.trim() {
        "" => Err("the variable is empty".to_owned()),
        key => Ok(Sha256::digest(key.as_bytes()).into()),
    }
}
