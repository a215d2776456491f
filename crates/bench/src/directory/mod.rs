//! The run directory: what a run leaves behind, and how it is found again.
//!
//! ```text
//! bench-2026-12-01T04-24-08Z/
//!   requests.jsonl.zst   the run, each level and each request, one line each; grows while the run goes on
//!   series.json          curves too long for the summary: what the report is drawn from
//!   report.html          the page
//!   summary.json         the figures; written last, so where it stands the directory is whole
//! ```
//!
//! The one idea: what was written is never at risk. Lines are compressed in frames that stand alone, so a run that
//! is killed leaves every frame but the last; whole files appear under their name only when they are on the disk;
//! and a directory that exists is somebody's, so the next run gets another name.
//!
//! Not here: a clock (the writer is told the time), and what the figures mean (`summary`, `report`).

// The kinds of line.
mod line;
// Writing.
mod write;
// Reading, whatever was left.
mod read;

use std::io;
use std::path::{Path, PathBuf};

pub use self::line::{Events, LevelLine, Line, REQUESTS_SCHEMA, Request, RunLine};
pub use self::read::{Lines, Run, Tail, lines, read};
pub use self::write::{RunWriter, write_whole};

/// The file of requests.
pub const REQUESTS: &str = "requests.jsonl.zst";
/// The file of figures.
pub const SUMMARY: &str = "summary.json";
/// The file of curves.
pub const SERIES: &str = "series.json";
/// The page.
pub const REPORT: &str = "report.html";

/// Bounds of a run directory.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of lines after which a frame ends: what a kill may cost, and what the writer holds.
    pub frame_bytes_max: usize,
    /// Seconds after which a frame ends: what a kill may cost of a slow run.
    pub frame_s_max: f64,
    /// Bytes of one line read. An answer of 100,000 events has about 1.5 MB.
    pub line_bytes_max: usize,
    /// Bytes of all lines read: a few kilobytes of zstd can claim to be terabytes.
    pub lines_bytes_max: u64,
    /// The decompressor's window, as a power of two: its memory.
    pub window_log_max: u32,
    /// Requests that [`read()`] keeps.
    pub requests_max: usize,
    /// Bytes of `summary.json` or `series.json` read.
    pub json_bytes_max: u64,
    /// Names tried (`-2`, `-3`, ...) before giving up.
    pub names_max: u32,
}

/// The bounds in force.
pub const LIMITS: Limits = Limits {
    frame_bytes_max: 256 << 10,
    frame_s_max: 1.0,
    line_bytes_max: 32 << 20,
    lines_bytes_max: 64 << 30,
    window_log_max: 27,
    requests_max: 10_000_000,
    json_bytes_max: 256 << 20,
    names_max: 10_000,
};

/// What went wrong with a run directory.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// No name was free.
    #[error(
        "{} exists, and so do all of its numbered names up to -{names_max}\n  hint: name another directory with --out",
        wanted.display()
    )]
    Taken {
        /// The directory asked for.
        wanted: PathBuf,
        /// How many names were tried.
        names_max: u32,
    },
    /// The disk is full, or the quota is used up.
    #[error(
        "cannot write {}: the disk is full; what was there before is untouched\n  hint: free some space, or write elsewhere with --out",
        path.display()
    )]
    Full {
        /// The file.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// Another failure to write.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file or directory.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// A failure to read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// There is nothing of a run.
    #[error(
        "{} is no run directory: neither {SUMMARY} nor {REQUESTS} is in it\n  hint: name the directory that `fulcrum bench` printed at its end",
        path.display()
    )]
    NoRun {
        /// The directory asked for.
        path: PathBuf,
    },
    /// A file that is not what its name says.
    #[error("{} is damaged: {why}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        why: String,
    },
    /// A file of another schema: of a later version, or not ours.
    #[error("{} has the schema {found:?}; this version reads {expected:?}", path.display())]
    Schema {
        /// The file.
        path: PathBuf,
        /// The schema that this version reads.
        expected: &'static str,
        /// The schema that stands in it.
        found: String,
    },
    /// A file of a size that no run writes.
    #[error("{} has {bytes} bytes; at most {bytes_max} are read", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
        /// The bound.
        bytes_max: u64,
    },
}

impl DirectoryError {
    fn write(path: &Path, source: io::Error) -> DirectoryError {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                DirectoryError::Full { path, source }
            }
            _ => DirectoryError::Write { path, source },
        }
    }

    fn read(path: &Path, source: io::Error) -> DirectoryError {
        DirectoryError::Read {
            path: path.to_owned(),
            source,
        }
    }
}

#[cfg(test)]
mod tests;
