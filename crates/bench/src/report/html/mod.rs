//! The page: one file that needs no network, no script and no font, and looks the same in ten years.
//!
//! Text of servers, files and flags is foreign: all of it goes through [`escape`], and the page forbids itself to run
//! or load anything. It is well-formed XML, so a test can parse it strictly.
//!
//! Not here: how a chart is drawn (`chart`).

// Which charts there are.
mod plots;
// Tables with all figures.
mod tables;

use super::chart::DARK;
use super::series::Series;
use super::words;
use crate::summary::Summary;

const STYLE: &str = include_str!("style.css");

/// A run as one HTML page. Without curves, timeline and distributions are left out.
pub fn html(summary: &Summary, series: &Series) -> String {
    let title = format!("fulcrum bench: {}", summary.endpoint);
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\">\n<head>\n<meta charset=\"utf-8\" />\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\" />\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\" />\n\
         <meta name=\"color-scheme\" content=\"light dark\" />\n<title>{}</title>\n<style>\n{STYLE}{}</style>\n</head>\n<body>\n",
        escape(&title),
        inks()
    );
    page += &header(summary);
    page += "<main>\n";
    page += &verdicts(summary);
    page += &section("Levels", &tables::levels(summary));
    page += &plots::all(summary, series);
    page += &section("All figures", &tables::figures(summary));
    page += &tables::failures(summary);
    page += &section("What the figures mean", &definitions());
    page += &section("How it was measured", &tables::environment(summary));
    page += "</main>\n";
    page += &format!(
        "<footer class=\"quiet\"><p>Measured by fulcrum {} from outside, at the endpoint's socket. The figures behind this page are in <code>summary.json</code> (schema <code>{}</code>), each request in <code>requests.jsonl.zst</code>.</p></footer>\n</body>\n</html>\n",
        escape(&summary.fulcrum),
        escape(&summary.schema)
    );
    page
}

/// A foreign text as text, in elements and attributes. Control characters, and those that would turn the direction
/// of what follows, become a replacement character.
pub(super) fn escape(text: &str) -> String {
    let mut told = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '<' => told.push_str("&lt;"),
            '>' => told.push_str("&gt;"),
            '&' => told.push_str("&amp;"),
            '"' => told.push_str("&quot;"),
            '\'' => told.push_str("&#39;"),
            '\n' | '\r' | '\t' => told.push(' '),
            letter if letter.is_control() || is_unfit(letter) => told.push('\u{fffd}'),
            letter => told.push(letter),
        }
    }
    told
}

/// Overrides of direction, and what XML has no place for.
fn is_unfit(letter: char) -> bool {
    matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{fffe}' | '\u{ffff}')
}

/// The dark page's colours for what charts are drawn in.
fn inks() -> String {
    let rules: String = DARK
        .iter()
        .map(|(light, dark)| {
            format!("svg [fill=\"{light}\"]{{fill:{dark}}}svg [stroke=\"{light}\"]{{stroke:{dark}}}.ink[style*=\"{light}\"]{{color:{dark}!important}}")
        })
        .collect();
    format!("@media (prefers-color-scheme:dark){{{rules}}}\n")
}

fn section(title: &str, content: &str) -> String {
    format!("<section>\n<h2>{title}</h2>\n{content}</section>\n")
}

fn header(summary: &Summary) -> String {
    let lines: Vec<String> = words::headline(summary)
        .lines()
        .map(|line| format!("<p class=\"quiet\">{}</p>\n", escape(line)))
        .collect();
    let model = summary.model.as_deref().unwrap_or(&summary.endpoint);
    format!(
        "<header>\n<h1>{}</h1>\n{}</header>\n",
        escape(model),
        lines.concat()
    )
}

fn verdicts(summary: &Summary) -> String {
    let mut text = String::new();
    if let Some(point) = &summary.operating_point {
        text += &format!(
            "<p><strong>{}</strong></p>\n",
            escape(&words::operating_point(point))
        );
    }
    if let Some(outcome) = &summary.slo {
        for line in words::slo(outcome, words::load_unit(summary)) {
            text += &format!("<p>{}</p>\n", escape(line.trim()));
        }
    }
    if !text.is_empty() {
        text = format!("<div class=\"verdict\">\n{text}</div>\n");
    }
    for warning in &summary.warnings {
        text += &format!(
            "<div class=\"warning\" role=\"note\"><p><strong>Warning</strong> <code>{}</code>: {} {}</p></div>\n",
            escape(&warning.code),
            escape(&words::sentence(&warning.text)),
            escape(&words::sentence(&warning.advice))
        );
    }
    text
}

fn definitions() -> String {
    let terms: String = words::DEFINITIONS
        .iter()
        .chain(words::MORE_DEFINITIONS)
        .map(|(name, meaning)| format!("<dt>{}</dt><dd>{}</dd>\n", escape(name), escape(meaning)))
        .collect();
    format!("<dl>\n{terms}</dl>\n")
}

#[cfg(test)]
mod tests;
