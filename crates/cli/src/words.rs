//! How errors are told: one line, then a hint the user can act on.

use std::fmt;
use std::io::Write as _;

use anyhow::Context as _;

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

/// Prints text to stdout. A reader that has gone away is no error: it had enough.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(()),
    }
}

/// Text of a foreign file as it may be shown: control characters escaped, so that it cannot
/// forge lines or steer the terminal, and cut where it is longer than anybody reads.
pub fn printable(text: &str) -> String {
    /// Longer than any name or message that means something.
    const CHARS_MAX: usize = 2000;
    let mut shown = String::new();
    for character in text.chars().take(CHARS_MAX) {
        if character.is_control() {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    if text.chars().nth(CHARS_MAX).is_some() {
        shown.push_str(" …");
    }
    shown
}

/// Prints an error to stderr.
pub fn print_error(error: &anyhow::Error) {
    eprintln!("error: {}", printable(&format!("{error:#}")));
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
    fn foreign_text_cannot_steer_the_terminal() {
        assert_eq!(printable("a\nb\u{1b}[31mc"), "a\\nb\\u{1b}[31mc");
        assert_eq!(printable("größe"), "größe");
        assert!(printable(&"x".repeat(3_000_000)).len() < 3000);
    }

    #[test]
    fn sizes_read_like_a_download_page() {
        assert_eq!(megabytes(98_362_432), "98.4 MB");
        assert_eq!(megabytes(1_500_000_000), "1.50 GB");
        assert_eq!(megabytes(0), "0.0 MB");
    }
}
