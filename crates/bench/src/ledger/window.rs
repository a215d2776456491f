//! Which part of a level is steady.
//!
//! A level begins with a transient: users who all start at once, or a backlog that fills. It ends where the level stops
//! sending, because from there on the load falls. Where the first ends is read off throughput, requests in flight and
//! TTFT; whichever takes longest to settle decides, but at most half of the level is left out.

use crate::sample::Pacing;
use crate::stats::{Rise, is_growing, mean, warm_up};
use crate::summary::StoppedBy;

use super::book::{Answer, Book};
use super::timeline::Timeline;

/// A stretch of the run, in seconds since it began.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Window {
    pub from: f64,
    pub to: f64,
    /// Whether load or latency grew all along.
    pub is_growing: bool,
    /// Whether it reaches beyond the level's end, for want of anything within.
    pub has_drain: bool,
}

/// Stretches that a level is cut into to see when it settles.
const BLOCKS_MAX: usize = 80;
/// With fewer, nothing can be told; a block holds at least two slices of the timeline.
const BLOCKS_MIN: usize = 16;
/// TTFTs are averaged in batches of so many, as MSER-5 does.
const BATCH: usize = 5;
/// A backlog that grows by less within a window may be one that comes and goes.
const BACKLOG_RISE: Rise = Rise(1.25);
/// What is warm-up differs from the rest by such a share of it. TTFT varies more, and a burst of prompts more than that.
const THROUGHPUT_DEPARTURE: f64 = 0.1;
const TTFT_DEPARTURE: f64 = 0.25;
/// TTFT varies more.
const TTFT_RISE: Rise = Rise(1.5);

impl Window {
    pub fn len(&self) -> f64 {
        self.to - self.from
    }

    pub fn holds(&self, asked: f64) -> bool {
        self.from <= asked && asked <= self.to
    }
}

/// The steady window of a level, with what is known `now`.
pub(super) fn window_of(book: &Book, timeline: &Timeline, now: f64) -> Window {
    let start = book.start;
    let end = book.end.unwrap_or(now).max(start);
    let known = timeline.known_until(now);
    let mut to = end.min(known).max(start);
    // So few requests that most of them ended after the last was sent: then the drain is all there is.
    let num_whole = book.counts.iter().map(|counts| counts.ok).sum::<u64>() as f64;
    let has_drain = book.end.is_some()
        && matches!(book.stopped_by, StoppedBy::Requests | StoppedBy::TraceEnd)
        && known > end
        && timeline.sum(None, start, end).whole < 0.5 * num_whole;
    if has_drain {
        to = book.last_ended.min(known).max(to);
        return Window {
            from: start,
            to,
            is_growing: false,
            has_drain,
        };
    }
    let ttfts = ttfts_of(book, start, to);
    let from = settled(book, timeline, &ttfts, (start, to));
    let later = ttfts.iter().filter(|&&(asked, _)| asked >= from);
    let later: Vec<f64> = later.map(|&(_, ttft)| ttft).collect();
    let num_blocks = num_blocks(timeline, from, to).min(BLOCKS_MIN);
    let backlog_grows = book.load.pacing() == Pacing::Open
        && is_growing(&timeline.in_flight(from, to, num_blocks), BACKLOG_RISE);
    let is_growing = backlog_grows || is_growing(&means(&later), TTFT_RISE);
    Window {
        from,
        to,
        is_growing,
        has_drain,
    }
}

/// When everything has settled; the beginning if it was from the start, or if the level is too short to tell.
fn settled(book: &Book, timeline: &Timeline, ttfts: &[(f64, f64)], (start, to): (f64, f64)) -> f64 {
    let num_blocks = num_blocks(timeline, start, to);
    if num_blocks < BLOCKS_MIN {
        return start;
    }
    let step = (to - start) / num_blocks as f64;
    let events = timeline.sums(None, start, to, num_blocks);
    let events: Vec<f64> = events.iter().map(|sum| sum.events).collect();
    let mut cut_s = warm_up(&events, THROUGHPUT_DEPARTURE) as f64 * step;
    if book.load.pacing() == Pacing::Open {
        let in_flight = timeline.in_flight(start, to, num_blocks);
        cut_s = cut_s.max(warm_up(&in_flight, THROUGHPUT_DEPARTURE) as f64 * step);
    }
    let values: Vec<f64> = ttfts.iter().map(|&(_, ttft)| ttft).collect();
    let num_cut = warm_up(&means(&values), TTFT_DEPARTURE) * BATCH;
    if let Some(&(asked, _)) = ttfts.get(num_cut).filter(|_| num_cut > 0) {
        cut_s = cut_s.max(asked - start);
    }
    start + cut_s.clamp(0.0, 0.5 * (to - start))
}

fn num_blocks(timeline: &Timeline, from: f64, to: f64) -> usize {
    ((to - from) / (2.0 * timeline.width())).min(BLOCKS_MAX as f64) as usize
}

/// When each whole answer was asked for, and its TTFT, in order.
fn ttfts_of(book: &Book, start: f64, to: f64) -> Vec<(f64, f64)> {
    let answers = book.answers.kept().iter();
    let mut ttfts: Vec<(f64, f64)> = answers
        .filter_map(|Answer { row, .. }| Some((book.asked(row.due, row.sent), row.ttft?)))
        .filter(|&(asked, _)| start <= asked && asked <= to)
        .collect();
    ttfts.sort_by(|left, right| left.0.total_cmp(&right.0));
    ttfts
}

fn means(values: &[f64]) -> Vec<f64> {
    values.chunks_exact(BATCH).filter_map(mean).collect()
}
