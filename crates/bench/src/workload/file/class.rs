//! One class of a workload file: its table in, its plan out.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::tables::{ArrivalsTable, ClassTable, DataTable, PrefixTable, ProcessName};
use super::{Reader, read_bounded};
use crate::arrival::Process;
use crate::slo::{Slo, SloError};
use crate::workload::distribution::{Allowed, Bounds, Distribution, Fault, Unit, Written};
use crate::workload::drawn::{Drawn, Length, Output, Prefix};
use crate::workload::readers::{self, Format, Reading, TraceOptions};
use crate::workload::recorded::{Order, Recorded, Repeat};
use crate::workload::{Class, History, LIMITS, Origin, OutputLength, Plan, WorkloadError};

/// Body fields that are the client's own.
const BODY_TAKEN: [&str; 4] = ["messages", "prompt", "stream", "stream_options"];

impl Reader<'_> {
    pub(super) fn class(
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
            Some(text) => text
                .parse()
                .map_err(|error: SloError| self.fault(&format!("{at}.slo"), error.to_string()))?,
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
