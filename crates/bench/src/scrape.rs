//! The server's own metrics during a run, in Prometheus' text format.
//!
//! The one idea: what the server counts is beside what its users felt, on the same clock. Only series that changed are
//! kept, and only so many; histograms' buckets are left out, because the run has better distributions of its own.
//!
//! Not here: which of them matter (the reader's).

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::client::{Client, Connection, Waits};
use crate::summary::ServerSeries;

/// Bounds of what is kept.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of one answer.
    pub page_bytes_max: usize,
    /// Series.
    pub series_max: usize,
    /// Points of a series; beyond, every other one is forgotten.
    pub points_max: usize,
}

/// The bounds in force.
pub const LIMITS: Limits = Limits {
    page_bytes_max: 8 << 20,
    series_max: 512,
    points_max: 600,
};

/// Often enough for a picture, seldom enough to be no load.
const EVERY: Duration = Duration::from_secs(1);
/// A server that does not answer in this time is asked again later.
const PATIENCE: Duration = Duration::from_secs(5);

/// Reading in progress; it ends with [`Scraping::finish`] or when dropped.
#[derive(Debug)]
pub struct Scraping {
    stop: CancellationToken,
    task: JoinHandle<Book>,
}

impl Scraping {
    /// What was read, without what never changed.
    pub async fn finish(self) -> Vec<ServerSeries> {
        self.stop.cancel();
        self.task.await.map_or_else(|_| Vec::new(), Book::changed)
    }
}

/// Reads `client`'s endpoint every second, path and all, on the runtime that calls.
///
/// # Panics
///
/// Outside a runtime.
pub fn start(client: Client) -> Scraping {
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    let task = tokio::spawn(async move {
        let begun = Instant::now();
        let mut book = Book::default();
        let mut line = None;
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        while stopped.run_until_cancelled(ticks.tick()).await.is_some() {
            let reading = tokio::time::timeout(PATIENCE, page(&client, &mut line));
            if let Ok(Some(page)) = reading.await {
                book.take(begun.elapsed().as_secs_f64(), &page);
            }
        }
        book
    });
    Scraping { stop, task }
}

/// The page as it is now; none if it could not be read.
async fn page(client: &Client, line: &mut Option<Connection>) -> Option<String> {
    let mut kept = line.take();
    if let Some(connection) = &mut kept
        && !connection.is_usable().await
    {
        kept = None;
    }
    let mut connection = match kept {
        Some(connection) => connection,
        None => client.connect().await.ok()?.0,
    };
    let request = client.get("").ok()?;
    let never = CancellationToken::new();
    let waits = Waits {
        timeouts: client.timeouts,
        cancel: &never,
    };
    let (status, bytes) = connection
        .fetch(request, LIMITS.page_bytes_max, waits)
        .await
        .ok()?;
    *line = Some(connection);
    (status == 200).then(|| String::from_utf8_lossy(&bytes).into_owned())
}

/// Series by name.
#[derive(Debug, Default)]
struct Book {
    series: BTreeMap<String, Vec<(f64, f64)>>,
}

impl Book {
    fn take(&mut self, at: f64, page: &str) {
        for (name, value) in page.lines().filter_map(sample) {
            if self.series.len() >= LIMITS.series_max && !self.series.contains_key(name) {
                continue;
            }
            let points = self.series.entry(name.to_owned()).or_default();
            points.push((at, value));
            if points.len() > LIMITS.points_max {
                let mut idx = 0;
                points.retain(|_| {
                    idx += 1;
                    idx % 2 == 1
                });
            }
        }
    }

    fn changed(self) -> Vec<ServerSeries> {
        self.series
            .into_iter()
            .filter(|(_, points)| points.windows(2).any(|pair| pair[0].1 != pair[1].1))
            .map(|(name, points)| ServerSeries { name, points })
            .collect()
    }
}

/// Name with labels, and value, of a line; none of comments, buckets, and what is no number.
fn sample(line: &str) -> Option<(&str, f64)> {
    let line = line.trim();
    if line.starts_with('#') {
        return None;
    }
    // Labels may hold spaces; a time stamp may follow the value.
    let end = match line.rfind('}') {
        Some(at) => at + 1,
        None => line.find(char::is_whitespace)?,
    };
    let (name, rest) = line.split_at(end);
    let bare = name.split('{').next().unwrap_or(name);
    let value: f64 = rest.split_whitespace().next()?.parse().ok()?;
    (!bare.ends_with("_bucket") && value.is_finite()).then_some((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# HELP x y\n# TYPE a_total counter\na_total 3\n\
        b{model=\"one } two\",k=\"v\"} 1.5e3 1700000000\nc_bucket{le=\"+Inf\"} 9\nd NaN\nnonsense\n";

    #[test]
    fn a_page_is_read_without_comments_buckets_and_nonsense() {
        let read: Vec<_> = PAGE.lines().filter_map(sample).collect();
        assert_eq!(
            read,
            [("a_total", 3.0), ("b{model=\"one } two\",k=\"v\"}", 1500.0)]
        );
    }

    #[test]
    fn what_never_changes_is_not_told() {
        let mut book = Book::default();
        book.take(0.0, "a 1\nb 2\n");
        book.take(1.0, "a 1\nb 3\n");
        let told = book.changed();
        assert_eq!(told.len(), 1);
        assert_eq!(
            (told[0].name.as_str(), told[0].points.as_slice()),
            ("b", &[(0.0, 2.0), (1.0, 3.0)][..])
        );
    }

    #[test]
    fn a_long_run_and_a_large_page_stay_bounded() {
        let mut book = Book::default();
        let page: String = (0..1_000).map(|idx| format!("s{idx} {idx}\n")).collect();
        for second in 0..2_000 {
            book.take(
                f64::from(second),
                if second == 0 { &page } else { "s0 1\n" },
            );
        }
        assert_eq!(book.series.len(), LIMITS.series_max);
        let points = &book.series["s0"];
        assert!(points.len() <= LIMITS.points_max);
        assert!(points.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }
}
