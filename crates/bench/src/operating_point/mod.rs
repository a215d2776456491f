//! Where to run a server: from measured levels of load to a load, with its interval.
//!
//! The operating point is the load at which throughput has flattened while TTFT has not yet left its light-load level.
//! Exactly, with `N` the load (users, or requests a second of an open loop):
//!
//! ```text
//! X(N)   throughput: block means, monotone up to the peak (isotonic regression); tokens/s, or requests/s if nobody counts tokens
//! X_max  the largest value of that fit; loads behind a fall of throughput do not count
//! F      flattened: the smallest N with X(N) >= 0.9 X_max
//! S      saturated: F / 0.9, but not beyond the first level that reaches X_max.
//!        From S on, a server that grew in proportion up to F is at X_max: more load only waits.
//! T(N)   TTFT p95, isotonic in N;  T_0 = T at the lowest load
//! L      left: the largest N with T(N) <= max(2 T_0, T_0 + 20 ms)
//! D      dropped: behind the peak, the smallest N with X(N) < 0.9 X_max
//! point  min(S, L, D)
//! ```
//!
//! It exists if `F <= L` and `D >= 2 F` (flat over a doubling). If not, that is a *cliff*, and the point is the most that
//! can be had. If the last doubling up to the largest load still gained more than 10 %, the point was *not reached*.
//!
//! Between two levels nobody has measured. A concave `X` lies above its chord and below the extensions of the
//! neighbouring chords; a convex `T` the other way round. So `F` and `L` have an earliest and a latest place:
//!
//! ```text
//! X |        .--o-----------o      .  extensions: K slots, a sharp knee
//!   |      ./  /                   /  chord: the latest that a concave curve can be
//!   |     ./ /
//!   |     o                        F lies between where the two cross 0.9 X_max
//!   +----------------------- N
//! ```
//!
//! The interval is a bootstrap: each replicate resamples the blocks and the requests of every level and fits again.
//! `low` is the percentile 2.5 of the point with the earliest `F` and `L`, `high` the percentile 97.5 of that with the
//! latest, so the interval tells noise and gaps between levels together, and closer levels narrow it. The point is the
//! median with places drawn log-uniformly in between.
//!
//! Beside it stands `N* = X_max R_0` (requests a second times the mean E2E at the lowest load): Little's law says that
//! beyond it somebody waits, whatever the server does. Users who think between requests come on top.
//!
//! Sources: D. Lazowska et al., *Quantitative System Performance*, ch. 5 (asymptotic bounds); R. Barlow et al.,
//! *Statistical Inference under Order Restrictions* (isotonic regression).
//!
//! Not here: how a level is measured (`load`), and which of its seconds are steady (`stats`).

// One load after the other, condensed.
mod levels;
// Monotone fits, and where they cross a value.
mod curve;
// F, S, L and D of one set of levels.
mod place;
// Many resampled sets.
mod replicate;
// Which load to measure next.
mod search;
// The largest load that keeps a promise.
mod capacity;

pub use capacity::{next_level_for_slo, slo_capacity};
pub use search::{Next, Search, next_level};

use crate::sample::Pacing;
use crate::summary::{OperatingPoint, Verdict};
use levels::Condensed;
use place::{Course, Place};
use replicate::Replicates;

/// What one level of load tells of a server: the steady window of one `summary::Level`, before it is condensed.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadPoint {
    /// Whether `load` counts users or requests a second.
    pub pacing: Pacing,
    /// Closed loop: users; open loop: requests a second that were due. Positive.
    pub load: f64,
    /// The steady window in time blocks of equal length (20 or so), in order. Empty if nothing was steady.
    pub blocks: Vec<Block>,
    /// TTFT in seconds of whole answers of the window: all of them, or an evenly thinned sample, in time order.
    pub ttft: Vec<f64>,
    /// E2E in seconds of the same requests, in the same order.
    pub e2e: Vec<f64>,
}

/// The throughput of a stretch of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Block {
    /// Tokens that arrived, a second; none if nobody counts tokens.
    pub tokens_per_s: Option<f64>,
    /// Whole answers a second.
    pub requests_per_s: f64,
}

/// What counts as flat, as light, and as clear.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Criteria {
    /// The share of `X_max` from which throughput counts as flattened, in (0, 1).
    pub flat_share: f64,
    /// TTFT p95 has left its light-load level when it exceeds so many times that level...
    pub ttft_factor: f64,
    /// ... and that level by so many seconds: a factor alone means nothing of a few milliseconds.
    pub ttft_floor_s: f64,
    /// The interval is clear if its upper end is at most so many times the lower.
    pub clear_ratio: f64,
}

impl Criteria {
    /// Those of the module's definition.
    pub const STANDARD: Criteria = Criteria {
        flat_share: 0.9,
        ttft_factor: 2.0,
        ttft_floor_s: 0.02,
        clear_ratio: 1.6,
    };
}

/// The share of replicates that must agree before a cliff is told: a gap between levels must not look like one.
const CLIFF_SHARE: f64 = 0.9;

/// The operating point of levels in any order; levels of equal load count as one. None if fewer than two loads had any
/// throughput, or loads of an open and a closed loop are mixed.
///
/// The same `seed` gives the same interval.
///
/// # Cost
///
/// Some hundred passes over all samples.
pub fn operating_point(
    points: &[LoadPoint],
    criteria: &Criteria,
    seed: u64,
) -> Option<OperatingPoint> {
    let levels = Condensed::of(points)?;
    let replicates = Replicates::draw(&levels, criteria, seed);
    Some(told(&levels, &replicates, criteria))
}

fn told(levels: &Condensed, replicates: &Replicates, criteria: &Criteria) -> OperatingPoint {
    let verdict = verdict(replicates, criteria);
    let largest = levels.largest();
    let (low, mut high) = replicates.interval();
    let mut load = replicates.median_of(Place::point);
    if verdict == Verdict::NotReached {
        // Nothing is known above; below, the point is not.
        (load, high) = (largest, largest);
    }
    let place = levels.place(criteria);
    let tokens_at = |value: f64| levels.counts_tokens().then_some(value);
    let closed = levels.pacing() == Pacing::Closed;
    OperatingPoint {
        users: closed.then_some(load),
        rps: (!closed).then_some(load),
        low: low.min(load),
        high: high.max(load),
        verdict,
        n_star: levels.n_star().filter(|_| closed),
        output_tokens_per_s: tokens_at(place.throughput_at(load)),
        output_tokens_per_s_max: tokens_at(place.throughput_max()),
        ttft_ms_p95: place.ttft_at(load).map(|seconds| seconds * 1e3),
        because: because(levels, &place, verdict, replicates),
    }
}

fn verdict(replicates: &Replicates, criteria: &Criteria) -> Verdict {
    let (low, high) = replicates.interval();
    if replicates.share(Place::is_cliff) >= CLIFF_SHARE {
        Verdict::Cliff
    } else if replicates.share(|place| place.course == Course::Climbing) > 0.5 {
        Verdict::NotReached
    } else if low > 0.0 && high <= low * criteria.clear_ratio {
        Verdict::Clear
    } else {
        Verdict::Interval
    }
}

/// One sentence that names the loads and figures a reader can look up in the table of levels.
fn because(levels: &Condensed, place: &Place, verdict: Verdict, replicates: &Replicates) -> String {
    let unit = match levels.pacing() {
        Pacing::Closed => "users",
        Pacing::Open => "requests/s",
    };
    let flat = format!(
        "throughput reaches 90 % of its maximum ({:.4} {}) at about {} {unit}",
        Short(place.throughput_max()),
        if levels.counts_tokens() {
            "tokens/s"
        } else {
            "requests/s"
        },
        Short(replicates.median_of(|place| place.flattened)),
    );
    let ttft = ttft_words(place, replicates, unit);
    let (low, high) = replicates.interval();
    match verdict {
        Verdict::Clear => format!("{flat}, and {ttft}"),
        Verdict::Interval if replicates.share(Place::leaves_before_flat) > 0.1 => {
            format!("{flat}, and {ttft}; which comes first is not settled by these levels")
        }
        Verdict::Interval if place.flattened < levels.smallest() => format!(
            "throughput is flat already at the lowest load, {} {unit}: measure lower ones",
            Short(levels.smallest())
        ),
        Verdict::Interval => format!(
            "{flat}, and {ttft}; the levels place it no closer than {} to {} {unit}",
            Short(low),
            Short(high)
        ),
        Verdict::NotReached => format!(
            "throughput still climbed by {:.0} % over the last doubling, up to {} {unit}, the largest load measured",
            place.gain * 100.0,
            Short(levels.largest())
        ),
        Verdict::Cliff => match place.dropped {
            Some(dropped) if place.left.is_none_or(|left| left >= place.flattened) => format!(
                "{flat} and falls below that again at about {} {unit}: it is never flat",
                Short(dropped)
            ),
            _ => format!("{ttft} before {flat}"),
        },
    }
}

fn ttft_words(place: &Place, replicates: &Replicates, unit: &str) -> String {
    let Some(light) = place.ttft_light() else {
        return "TTFT is not known".to_owned();
    };
    let light_ms = Short(light * 1e3);
    let left = replicates.median_of(|place| place.left.unwrap_or(f64::INFINITY));
    if left.is_finite() {
        format!(
            "TTFT p95 leaves its light-load level ({light_ms} ms) at about {} {unit}",
            Short(left)
        )
    } else {
        format!("TTFT p95 stays at its light-load level ({light_ms} ms) at every load measured")
    }
}

/// A figure with three significant digits or all before the point.
struct Short(f64);

impl std::fmt::Display for Short {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let value = self.0;
        let decimals = match value.abs() {
            size if size >= 100.0 || value.fract() == 0.0 => 0,
            size if size >= 10.0 => 1,
            _ => 2,
        };
        write!(f, "{value:.decimals$}")
    }
}

#[cfg(test)]
mod tests;
