//! How errors are told: one line, then a hint the user can act on.

use std::fmt;

/// An error with a hint; the hint is printed on its own line.
#[derive(Debug)]
pub struct Hinted {
    /// What went wrong.
    pub error: anyhow::Error,
    /// What the user can do about it.
    pub hint: String,
}

impl fmt::Display for Hinted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", self.error)
    }
}

impl std::error::Error for Hinted {}

/// Adds a hint to a failed result.
pub trait WithHint<T> {
    /// The same error, followed by `hint:` and what `hint` says.
    fn hint(self, hint: impl FnOnce() -> String) -> anyhow::Result<T>;
}

impl<T, E: Into<anyhow::Error>> WithHint<T> for Result<T, E> {
    fn hint(self, hint: impl FnOnce() -> String) -> anyhow::Result<T> {
        self.map_err(|error| {
            Hinted {
                error: error.into(),
                hint: hint(),
            }
            .into()
        })
    }
}

/// Prints an error to stderr.
pub fn print_error(error: &anyhow::Error) {
    eprintln!("error: {error:#}");
    if let Some(hinted) = error
        .chain()
        .find_map(|cause| cause.downcast_ref::<Hinted>())
    {
        eprintln!("hint: {}", hinted.hint);
    }
}

/// `98362432` → `98.4 MB`: decimal units, as disks and downloads are sold.
pub fn megabytes(num_bytes: u64) -> String {
    const MEGA: f64 = 1e6;
    let megabytes = num_bytes as f64 / MEGA;
    if megabytes >= 1000.0 {
        format!("{:.2} GB", megabytes / 1000.0)
    } else {
        format!("{megabytes:.1} MB")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_like_a_download_page() {
        assert_eq!(megabytes(98_362_432), "98.4 MB");
        assert_eq!(megabytes(1_500_000_000), "1.50 GB");
        assert_eq!(megabytes(0), "0.0 MB");
    }
}
