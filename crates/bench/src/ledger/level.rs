//! A level's summary, from the timeline and the level's rows.

use std::collections::BTreeMap;

use crate::operating_point::{Block, LoadPoint};
use crate::sample::{ClassId, LevelId, Pacing};
use crate::slo::{Metric, Objective};
use crate::stats::{CONFIDENCE, Resampler, batches, quantile, quantile_interval, t_interval};
use crate::summary::{ClassFigures, Counts, Level, LittlesLaw};

use super::book::{self, Answer, Book};
use super::gaps::Pool;
use super::timeline::Arrivals;
use super::view::{ValueOf, View};
use super::window::{Window, window_of};
use super::{Estimate, Ledger, Load};

/// How much work a summary may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detail {
    /// Everything.
    Full,
    /// For a page that is drawn again every second.
    Glance,
}

/// Stretches that a window is cut into for the intervals of its rates.
const RATE_BLOCKS_MAX: usize = 64;
/// With fewer, a rate has no interval.
const RATE_BLOCKS_MIN: usize = 8;
/// Stretches that the operating point resamples.
const POINT_BLOCKS: usize = 20;
/// Rows that the operating point resamples.
const POINT_ROWS_MAX: usize = 2_000;

/// Rates over a window, a second.
struct Rates {
    per_s: Arrivals,
    blocks: Vec<Arrivals>,
    len: f64,
}

impl Ledger {
    pub(super) fn book(&self, id: LevelId) -> &Book {
        &self.books[id.0 as usize]
    }

    pub(super) fn window(&self, id: LevelId) -> Window {
        window_of(self.book(id), &self.timeline, self.latest)
    }

    pub(super) fn summarise(&self, id: LevelId, detail: Detail) -> Level {
        let book = self.book(id);
        let window = self.window(id);
        let view = View::of(book, &window, None);
        let mut counts = Counts::default();
        book.counts
            .iter()
            .for_each(|of_class| book::add(&mut counts, of_class));
        let mut level = Level {
            users: match book.load {
                Load::Users(users) => Some(users),
                Load::Rate(_) | Load::Ramp(_) => None,
            },
            ramp_rps: match book.load {
                Load::Ramp(ramp) => Some([ramp.from, ramp.to]),
                Load::Users(_) | Load::Rate(_) => None,
            },
            start_s: book.start,
            duration_s: book.end.unwrap_or(self.latest).max(book.start) - book.start,
            steady_from_s: window.from - book.start,
            steady_s: window.len(),
            stopped_by: book.stopped_by,
            requests: counts,
            lag_ms: view.figure_of_all(|answer| Some(answer.row.lag), |failure| Some(failure.lag)),
            held_ms: view
                .figure_of_all(|answer| Some(answer.row.held), |failure| Some(failure.held)),
            connect_ms: view.figure_of_all(|answer| answer.row.connect, |failure| failure.connect),
            cache: view.cache(|class| self.config.classes[class].shared_share),
            littles_law: self.littles_law(&view, &window),
            flags: self.flags(book, &window, &view),
            token_source: book.token_source().to_owned(),
            errors: book.errors(),
            ..Level::default()
        };
        if book.load.pacing() == Pacing::Open {
            level.offered_rps = Some(load_in(book, &window));
            let sent = self.timeline.opened(window.from, window.to);
            level.achieved_rps = (window.len() > 0.0).then(|| sent / window.len());
        }
        self.put_rates(&mut level, &window, &view);
        self.put_latencies(&mut level, book, &view, detail);
        if detail == Detail::Full {
            level.classes = self.classes(id, &window);
        }
        level
    }

    fn put_rates(&self, level: &mut Level, window: &Window, view: &View<'_>) {
        let rates = self.rates(None, window);
        level.requests_per_s = rates.per_s.whole;
        level.events_per_s = rates.per_s.events;
        level.goodput_rps = rates.per_s.good;
        level.output_tokens_per_s = self.tokens_of(&rates.per_s);
        level.input_tokens_per_s = (rates.per_s.prompt > 0.0).then_some(rates.per_s.prompt);
        let mut put = |name: &str, of_block: &dyn Fn(&Arrivals) -> f64| {
            if let Some(interval) = rates.interval(of_block) {
                level.rates_ci95.insert(name.to_owned(), interval);
            }
        };
        put("requests_per_s", &|sum| sum.whole);
        put("events_per_s", &|sum| sum.events);
        put("goodput_rps", &|sum| sum.good);
        if level.output_tokens_per_s.is_some() {
            put("output_tokens_per_s", &|sum| {
                self.tokens_of(sum).unwrap_or(0.0)
            });
        }
        if level.input_tokens_per_s.is_some() {
            put("input_tokens_per_s", &|sum| sum.prompt);
        }
        if let Some((attainment, interval)) = view.attainment() {
            level.attainment = Some(attainment);
            level.rates_ci95.insert("attainment".to_owned(), interval);
        }
    }

    fn put_latencies(&self, level: &mut Level, book: &Book, view: &View<'_>, detail: Detail) {
        let seed = (detail == Detail::Full).then_some(self.config.seed);
        level.ttft_ms = view.figure(|answer| answer.row.ttft);
        level.ttfo_ms = view.figure(|answer| answer.row.ttfo);
        level.tpot_ms = view.figure(|answer| answer.row.tpot);
        level.e2e_ms = view.figure(|answer| answer.row.e2e);
        let service = |answer: &Answer, latency: Option<f64>| {
            let waited = book.asked(answer.row.due, answer.row.sent) - answer.row.sent;
            Some(latency? + waited.min(0.0))
        };
        level.service_ttft_ms = view.figure(|answer| service(answer, answer.row.ttft));
        level.service_e2e_ms = view.figure(|answer| service(answer, answer.row.e2e));
        level.queue_ms = view.figure(|answer| answer.row.queue);
        level.residual_ms = view.figure(|answer| answer.row.residual);
        level.itl_ms = view.pool().figure(view.missing(), seed);
    }

    fn classes(&self, id: LevelId, window: &Window) -> BTreeMap<String, ClassFigures> {
        let book = self.book(id);
        let lowest = self.lowest_beside(id);
        let lowest = lowest.map(|id| (self.book(id), self.window(id)));
        let classes = self.config.classes.iter().enumerate();
        let figures = classes.map(|(idx, class)| {
            let view = View::of(book, window, Some(idx));
            let rates = self.rates(Some(idx), window).per_s;
            let tpot_ms = view.figure(|answer| answer.row.tpot);
            let alone = lowest.as_ref().and_then(|(book, window)| {
                let view = View::of(book, window, Some(idx));
                view.figure(|answer| answer.row.tpot).p50
            });
            let figures = ClassFigures {
                requests: book.counts[idx],
                requests_per_s: rates.whole,
                output_tokens_per_s: self.tokens_of(&rates),
                goodput_rps: rates.good,
                attainment: view.attainment().map(|(share, _)| share),
                slo: self.slo_of(ClassId(idx as u16)).to_string(),
                ttft_ms: view.figure(|answer| answer.row.ttft),
                itl_ms: view.pool().figure(view.missing(), Some(self.config.seed)),
                e2e_ms: view.figure(|answer| answer.row.e2e),
                interference: tpot_ms
                    .p50
                    .zip(alone.filter(|&alone| alone > 0.0))
                    .map(|(here, alone)| here / alone),
                tpot_ms,
            };
            (class.name.clone(), figures)
        });
        figures.collect()
    }

    /// The level with the lowest load; none if that is this one.
    fn lowest_beside(&self, id: LevelId) -> Option<LevelId> {
        let own = self.book(id).load;
        let alike = self.books.iter().enumerate().filter(|(_, book)| {
            book.load.pacing() == own.pacing() && book.load.value() < own.value()
        });
        let lowest =
            alike.min_by(|(_, left), (_, right)| left.load.value().total_cmp(&right.load.value()));
        lowest.map(|(idx, _)| LevelId(idx as u32))
    }

    fn flags(&self, book: &Book, window: &Window, view: &View<'_>) -> Vec<String> {
        let mut flags = book.flags();
        let num_cancelled = view.num_cancelled().round();
        if num_cancelled > 0.0 {
            flags.push(format!("censored:{num_cancelled}"));
        }
        if book.answers.is_sampled() || book.failures.is_sampled() {
            flags.push(format!("sampled:{}", book.num_rows()));
        }
        if window.is_growing {
            flags.push("not_steady".to_owned());
        }
        if window.has_drain {
            flags.push("drain_included".to_owned());
        }
        flags
    }

    fn littles_law(&self, view: &View<'_>, window: &Window) -> Option<LittlesLaw> {
        if window.len() <= 0.0 {
            return None;
        }
        let in_flight = *self.timeline.in_flight(window.from, window.to, 1).first()?;
        let until = window.to
            + if window.has_drain {
                self.timeline.width()
            } else {
                0.0
            };
        let rate = self.timeline.closed(window.from, until) / window.len();
        let rate_times_time = rate * view.mean_time()?;
        (in_flight > 0.0).then(|| LittlesLaw {
            in_flight,
            rate_times_time,
            ratio: rate_times_time / in_flight,
        })
    }

    fn rates(&self, class: Option<usize>, window: &Window) -> Rates {
        let (len, width) = (window.len(), self.timeline.width());
        let num = (len / width).min(RATE_BLOCKS_MAX as f64) as usize;
        let has_blocks = num >= RATE_BLOCKS_MIN && !window.has_drain;
        // Where the last arrival ends the window, all of its slice is in it.
        let until = window.to + if window.has_drain { width } else { 0.0 };
        let sum = self.timeline.sum(class, window.from, until);
        let per_s = if len > 0.0 { 1.0 / len } else { 0.0 };
        Rates {
            per_s: Arrivals {
                tokens: sum.tokens * per_s,
                uncounted: sum.uncounted * per_s,
                events: sum.events * per_s,
                prompt: sum.prompt * per_s,
                whole: sum.whole * per_s,
                good: sum.good * per_s,
            },
            blocks: match has_blocks {
                true => self.timeline.sums(class, window.from, window.to, num),
                false => Vec::new(),
            },
            len,
        }
    }

    pub(super) fn precision_at(&self, id: LevelId, now: f64) -> Option<f64> {
        let book = self.book(id);
        let window = window_of(book, &self.timeline, self.latest.max(now));
        let rates = self.rates(None, &window);
        let per_s = self.tokens_of(&rates.per_s);
        let interval = match per_s {
            Some(_) => rates.interval(&|sum| self.tokens_of(sum).unwrap_or(0.0)),
            None => rates.interval(&|sum| sum.events),
        };
        let mut widest = half_width(per_s.unwrap_or(rates.per_s.events), interval?)?;
        let view = View::of(book, &window, None);
        let metrics: [ValueOf; 2] = [|answer| answer.row.ttft, |answer| answer.row.tpot];
        for metric in metrics {
            let values = view.answers.iter().filter_map(|answer| metric(answer));
            let mut values: Vec<f64> = values.collect();
            values.sort_by(f64::total_cmp);
            // Answers of one token have no TPOT, and answers in one piece no TTFT, however long one measures.
            if values.is_empty() && !view.answers.is_empty() {
                continue;
            }
            let interval = quantile_interval(&values, 0.5, CONFIDENCE)?;
            widest = widest.max(half_width(quantile(&values, 0.5)?, interval)?);
        }
        Some(widest)
    }

    pub(super) fn load_point(&self, id: LevelId) -> LoadPoint {
        let book = self.book(id);
        let window = self.window(id);
        let step = window.len() / POINT_BLOCKS as f64;
        let blocks = if step >= self.timeline.width() {
            self.timeline
                .sums(None, window.from, window.to, POINT_BLOCKS)
        } else {
            Vec::new()
        };
        let view = View::of(book, &window, None);
        let rows: Vec<(f64, f64)> = view
            .answers
            .iter()
            .filter_map(|Answer { row, .. }| row.ttft.zip(row.e2e))
            .collect();
        let chosen = Resampler::new(self.config.seed).some_of(POINT_ROWS_MAX, rows.len());
        LoadPoint {
            pacing: book.load.pacing(),
            load: load_in(book, &window),
            blocks: blocks
                .iter()
                .map(|sum| Block {
                    tokens_per_s: self.tokens_of(sum).map(|tokens| tokens / step),
                    requests_per_s: sum.whole / step,
                })
                .collect(),
            ttft: chosen.iter().map(|&idx| rows[idx].0).collect(),
            e2e: chosen.iter().map(|&idx| rows[idx].1).collect(),
        }
    }

    pub(super) fn estimate_of(
        &self,
        id: LevelId,
        class: Option<ClassId>,
        objective: &Objective,
    ) -> Option<Estimate> {
        let window = self.window(id);
        let class = class.map(|class| usize::from(class.0));
        let view = View::of(self.book(id), &window, class);
        let q = objective.quantile;
        if !view.missing().spares(q) {
            return None;
        }
        let value_of: ValueOf = match objective.metric {
            Metric::Ttft => |answer| answer.row.ttft,
            Metric::Tpot => |answer| answer.row.tpot,
            Metric::E2e => |answer| answer.row.e2e,
            Metric::Itl => return self.gap_estimate(&view.pool(), q),
        };
        let values = view.answers.iter().filter_map(|answer| value_of(answer));
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        if q >= 1.0 {
            // The largest seen is a fact.
            let value = *values.last()?;
            return Some(Estimate {
                value,
                low: value,
                high: value,
            });
        }
        let [low, high] = quantile_interval(&values, q, CONFIDENCE)?;
        Some(Estimate {
            value: quantile(&values, q)?,
            low,
            high,
        })
    }

    fn gap_estimate(&self, pool: &Pool<'_>, q: f64) -> Option<Estimate> {
        let value = pool.quantile(q)?;
        if q >= 1.0 {
            return Some(Estimate {
                value,
                low: value,
                high: value,
            });
        }
        if pool.needed(q).is_some() {
            return None;
        }
        let intervals = pool.intervals(&[q], self.config.seed)?;
        let [low, high] = intervals[1];
        Some(Estimate { value, low, high })
    }
}

impl Rates {
    fn interval(&self, of_block: &dyn Fn(&Arrivals) -> f64) -> Option<[f64; 2]> {
        let per_s = self.blocks.len() as f64 / self.len;
        let rates: Vec<f64> = self
            .blocks
            .iter()
            .map(|sum| of_block(sum) * per_s)
            .collect();
        let [low, high] = t_interval(&batches(&rates), CONFIDENCE)?;
        Some([low.max(0.0), high])
    }
}

/// The load while figures were taken.
fn load_in(book: &Book, window: &Window) -> f64 {
    let stretch = [window.from, window.to].map(|at| at - book.start);
    book.load.value_within(stretch)
}

/// Relative to the value; none if that is 0.
fn half_width(value: f64, [low, high]: [f64; 2]) -> Option<f64> {
    (value > 0.0).then(|| (high - low) / 2.0 / value)
}
