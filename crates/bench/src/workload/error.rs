//! Why there is no workload.

use std::io;
use std::path::PathBuf;

use super::Workload;

/// Why a workload cannot be used. All of it is the caller's to mend.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// No workload of that name comes with the program.
    #[error(
        "no workload is called {name:?}; there are {}, or give the path of a file",
        names()
    )]
    UnknownName {
        /// The name asked for.
        name: String,
    },
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file is larger than any sound one.
    #[error("{} has more than {bytes_max} bytes", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The limit.
        bytes_max: u64,
    },
    /// A workload file is not TOML, or has keys that mean nothing.
    #[error("{origin}: {}{reason}", at_key(key))]
    Syntax {
        /// The file, or the name of a workload that comes with the program.
        origin: String,
        /// Where in the file, for example `class[0].prompt`; empty if nowhere.
        key: String,
        /// What is wrong, with the line.
        reason: String,
    },
    /// A key of a workload file has a value that cannot be meant.
    #[error("{origin}: {key}: {reason}")]
    Value {
        /// The file, or the name of a workload that comes with the program.
        origin: String,
        /// Which key, for example `class[0].prompt.sigma`.
        key: String,
        /// What is wrong.
        reason: String,
    },
    /// A record of a data file is wrong.
    #[error("{}, line {line}: {reason}", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// 1-based.
        line: u64,
        /// What is wrong.
        reason: String,
    },
    /// A data file as a whole is wrong: empty, without a column, of no known format.
    #[error("{}: {reason}", path.display())]
    Data {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A trace was asked for, and the file does not say when things were asked.
    #[error("{} does not say when requests were made; give it with --workload, and a rate", path.display())]
    NoTimes {
        /// The file.
        path: PathBuf,
    },
}

fn names() -> String {
    Workload::names().collect::<Vec<_>>().join(", ")
}

fn at_key(key: &str) -> String {
    match key {
        "" | "." => String::new(),
        key => format!("{key}: "),
    }
}
