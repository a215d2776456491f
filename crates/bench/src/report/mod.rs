//! How a result is shown: the table on the terminal, CSV, Markdown, JSON, one offline page, and the live page of a
//! run that goes on.
//!
//! The one idea: everything is a pure function of the [`Summary`] (and, for curves, of [`Series`]), so a report can
//! be made again from a run directory, and nothing is shown that the files do not say. What a figure means stands
//! beside it, because the same word means another number elsewhere.
//!
//! Not here: how figures come about (`stats`, `ledger`, `operating_point`), and files (`directory`).

// Cells, sentences and definitions that every form shares.
mod words;
// Curves.
mod series;
// Tables for people.
mod table;
// Tables for programs.
mod csv;
// Tables for pull requests.
mod markdown;

// Charts as SVG.
mod chart;
// The page.
mod html;
// A run while it goes on.
pub mod live;

#[cfg(test)]
pub(crate) mod example;
#[cfg(test)]
mod reference;

pub use self::csv::csv;
pub use self::html::html;
pub use self::markdown::markdown;
pub use self::series::{LevelEcdf, SERIES_SCHEMA, Series, TimelinePoint};
pub use self::table::{Style, table};

use crate::summary::Summary;

/// The summary as it stands in `summary.json`.
pub fn json(summary: &Summary) -> String {
    let mut text = serde_json::to_string_pretty(summary).expect("a summary has string keys");
    text.push('\n');
    text
}
