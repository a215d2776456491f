//! The table on the terminal: what a user reads first, and often all that is read.
//!
//! Fits 100 columns. Nothing is said in colour alone: styled, the same words stand in bold.

use comfy_table::{Cell, CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};

use super::words::{self, cell, number, percent};
use crate::summary::{ClassFigures, Counts, Level, Summary};

/// Different errors told: the rest are in `summary.json`.
const ERRORS_MAX: usize = 5;

/// Whether escape codes may stand in the text. The caller knows whether it is a terminal, and `NO_COLOR`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Text and nothing else.
    Plain,
    /// Bold and dim, for a terminal.
    Terminal,
}

/// The run as a table, with its operating point, SLO and warnings below.
pub fn table(summary: &Summary, style: Style) -> String {
    let mut text = format!(
        "{}\n\n",
        wrapped_lines(&printable_lines(&words::headline(summary)))
    );
    text += &levels(summary);
    if words::has_classes(summary) {
        text += &format!("\n{}\n{}", style.bold("By class"), classes(summary));
    }
    text += &outcomes(summary, style);
    text += &warnings(summary, style);
    text += "\n";
    for (name, meaning) in words::DEFINITIONS {
        text += &style.dim(&format!("{name}: {meaning}"));
        text.push('\n');
    }
    text
}

fn levels(summary: &Summary) -> String {
    let mut table = columns(&[
        words::load_unit(summary),
        "ok/failed",
        "req/s",
        "out\ntok/s",
        "in\ntok/s",
        "TTFT\np50 ms",
        "\np95",
        "\np99",
        "TPOT\np50 ms",
        "\np99",
        "ITL\np99 ms",
        "E2E\np50 s",
        "\np95",
    ]);
    for level in &summary.levels {
        table.add_row(right(vec![
            load(level),
            counts(&level.requests),
            number(Some(level.requests_per_s)),
            number(level.output_tokens_per_s),
            number(level.input_tokens_per_s),
            cell(&level.ttft_ms, "p50", 1.0),
            cell(&level.ttft_ms, "p95", 1.0),
            cell(&level.ttft_ms, "p99", 1.0),
            cell(&level.tpot_ms, "p50", 1.0),
            cell(&level.tpot_ms, "p99", 1.0),
            cell(&level.itl_ms, "p99", 1.0),
            cell(&level.e2e_ms, "p50", 1e-3),
            cell(&level.e2e_ms, "p95", 1e-3),
        ]));
    }
    render(&table)
}

fn classes(summary: &Summary) -> String {
    let mut table = columns(&[
        words::load_unit(summary),
        "class",
        "ok/failed",
        "req/s",
        "good/s",
        "attained",
        "TTFT\np50 ms",
        "\np95",
        "\np99",
        "TPOT\np50 ms",
        "\np99",
        "slowed\ntimes",
    ]);
    for (level, name, class) in words::class_rows(summary) {
        table.add_row(right(class_cells(level, name, class)));
    }
    format!(
        "{}slowed: its median TPOT over the one at the lightest load\n",
        render(&table)
    )
}

fn class_cells(level: &Level, name: &str, class: &ClassFigures) -> Vec<String> {
    vec![
        load(level),
        printable(name),
        counts(&class.requests),
        number(Some(class.requests_per_s)),
        number(Some(class.goodput_rps)),
        percent(class.attainment),
        cell(&class.ttft_ms, "p50", 1.0),
        cell(&class.ttft_ms, "p95", 1.0),
        cell(&class.ttft_ms, "p99", 1.0),
        cell(&class.tpot_ms, "p50", 1.0),
        cell(&class.tpot_ms, "p99", 1.0),
        class
            .interference
            .map_or("-".to_owned(), |times| number(Some(times))),
    ]
}

fn load(level: &Level) -> String {
    match level.users {
        Some(users) => users.to_string(),
        None => number(level.offered_rps),
    }
}

fn outcomes(summary: &Summary, style: Style) -> String {
    let mut lines = vec![String::new()];
    lines.extend(words::needs(summary));
    for level in &summary.levels {
        let failures = words::failures(&level.requests);
        if !failures.is_empty() {
            lines.push(format!("failed at {}: {failures}", words::load(level)));
        }
    }
    for (error, num) in words::errors(summary).into_iter().take(ERRORS_MAX) {
        lines.push(format!("  {num} x {}", printable(error)));
    }
    let flags = words::flags(summary);
    if !flags.is_empty() {
        lines.push(format!("flags: {}", flags.join(", ")));
    }
    if let Some(point) = &summary.operating_point {
        lines.push(style.bold(&words::operating_point(point)));
    }
    if let Some(outcome) = &summary.slo {
        lines.extend(words::slo(outcome, words::load_unit(summary)));
    }
    lines
        .iter()
        .map(|line| format!("{}\n", wrapped(line)))
        .collect()
}

fn warnings(summary: &Summary, style: Style) -> String {
    let told = summary.warnings.iter().map(|warning| {
        let text = format!(
            "{} {} {}",
            style.bold(&format!("warning[{}]:", warning.code)),
            words::sentence(&printable(&warning.text)),
            words::sentence(&printable(&warning.advice)),
        );
        format!("{}\n", wrapped(&text))
    });
    told.collect()
}

fn counts(counts: &Counts) -> String {
    format!("{}/{}", counts.ok, words::num_failed(counts))
}

/// Lines of at most 100 columns, those after the first set in.
fn wrapped(text: &str) -> String {
    let words = text.trim_start();
    let mut lines: Vec<String> = vec![" ".repeat(text.len() - words.len())];
    for word in words.split(' ') {
        let line = lines.last_mut().expect("there is one from the start");
        if !line.trim().is_empty() && line.chars().count() + 1 + word.chars().count() > 100 {
            lines.push(format!("  {word}"));
        } else {
            if !line.trim().is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.join("\n")
}

fn wrapped_lines(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(wrapped).collect();
    lines.join("\n")
}

fn printable_lines(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(printable).collect();
    lines.join("\n")
}

/// A foreign text without what would move a cursor: a server's error must not rewrite the terminal.
pub(super) fn printable(text: &str) -> String {
    let mut told: String = text
        .chars()
        .take(200)
        .map(|letter| if letter.is_control() { ' ' } else { letter })
        .collect();
    if text.chars().count() > 200 {
        told.push('…');
    }
    told
}

fn columns(names: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_style(TableStyle::new().header_separator(LineStyle::none().fill('─')))
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(right(names.iter().map(|name| (*name).to_owned()).collect()));
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table
}

fn right(cells: Vec<String>) -> Vec<Cell> {
    cells
        .into_iter()
        .map(|cell| Cell::new(cell).set_alignment(CellAlignment::Right))
        .collect()
}

fn render(table: &Table) -> String {
    let mut text = String::new();
    for line in table.lines() {
        text += line.trim_end();
        text.push('\n');
    }
    text
}

impl Style {
    fn bold(self, text: &str) -> String {
        self.with("1", text)
    }

    fn dim(self, text: &str) -> String {
        self.with("2", text)
    }

    fn with(self, code: &str, text: &str) -> String {
        match self {
            Style::Plain => text.to_owned(),
            Style::Terminal => format!("\x1b[{code}m{text}\x1b[0m"),
        }
    }
}

#[cfg(test)]
mod tests;
