//! What arrived when, over the whole run and whichever level asked for it.
//!
//! Time is cut in slices of 100 ms. When there are more than [`SLICES_MAX`], neighbours are joined and slices are
//! twice as wide, so memory does not depend on how long a run is.
//!
//! ```text
//! slices |  0  |  1  |  2  | ...      requests in flight in a slice:
//! opened |  +2 |     |  +1 |            all opened before it, less all closed before it,
//! closed |     |  -1 |     |            plus for each opened or closed in it the part of the slice that is left
//! ```
//!
//! A stretch that begins or ends within a slice takes its share of it.

/// Slices that are kept.
pub(super) const SLICES_MAX: usize = 8_192;
const FIRST_WIDTH_S: f64 = 0.1;
/// Requests whose tokens are not yet known may be such a share of those in flight, or one hung request would hide
/// everything after it.
const UNKNOWN_SHARE_MAX: f64 = 0.05;

/// Sums over a stretch of time, for one class or all.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Arrivals {
    /// Tokens whose number is known.
    pub tokens: f64,
    /// Content events of requests whose tokens nobody counted.
    pub uncounted: f64,
    /// Content events.
    pub events: f64,
    /// Prompt tokens of answers that began.
    pub prompt: f64,
    /// Whole answers that ended.
    pub whole: f64,
    /// Of those, such that met every objective.
    pub good: f64,
}

impl Arrivals {
    fn add(&mut self, other: &Arrivals, times: f64) {
        self.tokens += other.tokens * times;
        self.uncounted += other.uncounted * times;
        self.events += other.events * times;
        self.prompt += other.prompt * times;
        self.whole += other.whole * times;
        self.good += other.good * times;
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Traffic {
    opened: f64,
    closed: f64,
    /// Request-seconds in this slice of what opened in it, less those of what closed in it.
    area: f64,
    /// Opened here and not closed yet.
    pending: f64,
}

#[derive(Clone, Debug)]
pub(super) struct Timeline {
    width: f64,
    num_classes: usize,
    traffic: Vec<Traffic>,
    /// `[slices, classes]`
    arrivals: Vec<Arrivals>,
}

impl Timeline {
    pub fn new(num_classes: usize) -> Timeline {
        Timeline {
            width: FIRST_WIDTH_S,
            num_classes: num_classes.max(1),
            traffic: Vec::new(),
            arrivals: Vec::new(),
        }
    }

    /// How finely it tells times, in seconds.
    pub fn width(&self) -> f64 {
        self.width
    }

    /// A request was handed over.
    pub fn open(&mut self, at: f64) {
        let slice = self.slice_of(at);
        let left = self.left_of(slice, at);
        let traffic = &mut self.traffic[slice];
        traffic.opened += 1.0;
        traffic.pending += 1.0;
        traffic.area += left;
    }

    /// It ended.
    pub fn close(&mut self, opened: f64, at: f64) {
        let slice = self.slice_of(at);
        let left = self.left_of(slice, at);
        self.traffic[slice].closed += 1.0;
        self.traffic[slice].area -= left;
        let slice = self.slice_of(opened);
        self.traffic[slice].pending -= 1.0;
    }

    /// Something arrived.
    pub fn add(&mut self, class: usize, at: f64, what: &Arrivals) {
        let slice = self.slice_of(at);
        let class = class.min(self.num_classes - 1);
        self.arrivals[slice * self.num_classes + class].add(what, 1.0);
    }

    /// What arrived from `from` to `to`, of one class or of all.
    pub fn sum(&self, class: Option<usize>, from: f64, to: f64) -> Arrivals {
        let mut sum = Arrivals::default();
        for (slice, share) in self.shares(from, to) {
            let begin = slice * self.num_classes;
            let classes = match class {
                Some(class) => begin + class..begin + class + 1,
                None => begin..begin + self.num_classes,
            };
            for arrivals in &self.arrivals[classes] {
                sum.add(arrivals, share);
            }
        }
        sum
    }

    /// The same in `num` stretches of equal length.
    pub fn sums(&self, class: Option<usize>, from: f64, to: f64, num: usize) -> Vec<Arrivals> {
        let step = (to - from) / num as f64;
        (0..num)
            .map(|idx| {
                let from = from + step * idx as f64;
                self.sum(class, from, from + step)
            })
            .collect()
    }

    /// Requests that were handed over from `from` to `to`.
    pub fn opened(&self, from: f64, to: f64) -> f64 {
        self.shares(from, to)
            .map(|(slice, share)| self.traffic[slice].opened * share)
            .sum()
    }

    /// Requests that ended from `from` to `to`, however they did.
    pub fn closed(&self, from: f64, to: f64) -> f64 {
        self.shares(from, to)
            .map(|(slice, share)| self.traffic[slice].closed * share)
            .sum()
    }

    /// Requests in flight on average, in `num` stretches of equal length.
    pub fn in_flight(&self, from: f64, to: f64, num: usize) -> Vec<f64> {
        let areas = self.areas();
        let step = (to - from) / num as f64;
        (0..num)
            .map(|idx| {
                let from = from + step * idx as f64;
                let shares = self.shares(from, from + step);
                let area: f64 = shares.map(|(slice, share)| areas[slice] * share).sum();
                (area / step).max(0.0)
            })
            .collect()
    }

    /// Requests in flight now.
    pub fn num_open(&self) -> f64 {
        let open: f64 = self
            .traffic
            .iter()
            .map(|traffic| traffic.opened - traffic.closed)
            .sum();
        open.max(0.0)
    }

    /// Until when all that arrived is known, at most `now`: the tokens of a request are told when it ends.
    pub fn known_until(&self, now: f64) -> f64 {
        let (mut open, mut pending) = (0.0, 0.0);
        for (slice, traffic) in self.traffic.iter().enumerate() {
            let most = open + traffic.opened;
            open = most - traffic.closed;
            pending += traffic.pending;
            if pending > UNKNOWN_SHARE_MAX * f64::max(most, 1.0) {
                return now.min(slice as f64 * self.width);
            }
        }
        now
    }

    /// Request-seconds of each slice.
    fn areas(&self) -> Vec<f64> {
        let mut open = 0.0;
        self.traffic
            .iter()
            .map(|traffic| {
                let area = open * self.width + traffic.area;
                open += traffic.opened - traffic.closed;
                area
            })
            .collect()
    }

    /// Slices that overlap with a stretch, and the share of each that does.
    fn shares(&self, from: f64, to: f64) -> impl Iterator<Item = (usize, f64)> {
        let first = (from.max(0.0) / self.width).floor() as usize;
        let last = (to.max(0.0) / self.width).ceil() as usize;
        (first..last.min(self.traffic.len())).filter_map(move |slice| {
            let begin = slice as f64 * self.width;
            let overlap = to.min(begin + self.width) - from.max(begin);
            (overlap > 0.0).then_some((slice, overlap / self.width))
        })
    }

    fn left_of(&self, slice: usize, at: f64) -> f64 {
        ((slice + 1) as f64 * self.width - at.max(0.0)).clamp(0.0, self.width)
    }

    /// The slice of a moment, made if it is not there. What is no moment is the beginning.
    fn slice_of(&mut self, at: f64) -> usize {
        let at = if at.is_finite() { at.max(0.0) } else { 0.0 };
        while at / self.width >= SLICES_MAX as f64 {
            self.widen();
        }
        let slice = (at / self.width) as usize;
        if slice >= self.traffic.len() {
            self.traffic.resize(slice + 1, Traffic::default());
            let num_cells = (slice + 1) * self.num_classes;
            self.arrivals.resize(num_cells, Arrivals::default());
        }
        slice
    }

    fn widen(&mut self) {
        let num_classes = self.num_classes;
        let num_halves = self.traffic.len().next_multiple_of(2);
        self.traffic.resize(num_halves, Traffic::default());
        self.arrivals
            .resize(num_halves * num_classes, Arrivals::default());
        for slice in 0..num_halves / 2 {
            let (early, late) = (self.traffic[2 * slice], self.traffic[2 * slice + 1]);
            self.traffic[slice] = Traffic {
                opened: early.opened + late.opened,
                closed: early.closed + late.closed,
                // What opened in the first half was open through the second.
                area: early.area + (early.opened - early.closed) * self.width + late.area,
                pending: early.pending + late.pending,
            };
            for class in 0..num_classes {
                let mut joined = self.arrivals[2 * slice * num_classes + class];
                joined.add(&self.arrivals[(2 * slice + 1) * num_classes + class], 1.0);
                self.arrivals[slice * num_classes + class] = joined;
            }
        }
        self.traffic.truncate(num_halves / 2);
        self.arrivals.truncate(num_halves / 2 * num_classes);
        self.width *= 2.0;
    }
}
