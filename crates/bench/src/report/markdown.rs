//! Tables for pull requests and issues.

use super::words::{self, cell, number, percent};
use crate::summary::{Figure, Summary};

/// The run as Markdown (GitHub's tables).
pub fn markdown(summary: &Summary) -> String {
    let mut text = String::from("## fulcrum bench\n\n");
    for line in words::headline(summary).lines() {
        text += &format!("{}  \n", escaped(line));
    }
    text += "\n";
    text += &row(&[
        "load",
        "ok / failed",
        "req/s",
        "out tok/s",
        "in tok/s",
        "TTFT ms p50 / p95 / p99",
        "TPOT ms p50 / p99",
        "ITL ms p99",
        "E2E s p50 / p95",
    ]);
    text += "|---|--:|--:|--:|--:|--:|--:|--:|--:|\n";
    for level in &summary.levels {
        text += &row(&[
            words::load(level),
            format!(
                "{} / {}",
                level.requests.ok,
                words::num_failed(&level.requests)
            ),
            number(Some(level.requests_per_s)),
            number(level.output_tokens_per_s),
            number(level.input_tokens_per_s),
            cells(&level.ttft_ms, &["p50", "p95", "p99"], 1.0),
            cells(&level.tpot_ms, &["p50", "p99"], 1.0),
            number(level.itl_ms.p99),
            cells(&level.e2e_ms, &["p50", "p95"], 1e-3),
        ]);
    }
    if words::has_classes(summary) {
        text += &classes(summary);
    }
    text += "\n";
    text += &outcomes(summary);
    text += "\n<details><summary>What the columns mean</summary>\n\n";
    for (name, meaning) in words::DEFINITIONS {
        text += &format!("- **{name}**: {meaning}\n");
    }
    text += "\n</details>\n";
    text
}

fn classes(summary: &Summary) -> String {
    let mut text = String::from("\n### By class\n\n");
    text += &row(&[
        "load",
        "class",
        "ok / failed",
        "req/s",
        "good/s",
        "attained",
        "TTFT ms p50 / p95 / p99",
        "TPOT ms p50 / p99",
    ]);
    text += "|---|---|--:|--:|--:|--:|--:|--:|\n";
    for (level, name, class) in words::class_rows(summary) {
        text += &row(&[
            words::load(level),
            escaped(name),
            format!(
                "{} / {}",
                class.requests.ok,
                words::num_failed(&class.requests)
            ),
            number(Some(class.requests_per_s)),
            number(Some(class.goodput_rps)),
            percent(class.attainment),
            cells(&class.ttft_ms, &["p50", "p95", "p99"], 1.0),
            cells(&class.tpot_ms, &["p50", "p99"], 1.0),
        ]);
    }
    text
}

fn outcomes(summary: &Summary) -> String {
    let mut lines = Vec::new();
    lines.extend(words::needs(summary));
    lines.extend(summary.operating_point.as_ref().map(words::operating_point));
    if let Some(outcome) = &summary.slo {
        lines.extend(words::slo(outcome, words::load_unit(summary)));
    }
    let mut text: String = lines
        .iter()
        .map(|line| format!("- {}\n", escaped(line.trim())))
        .collect();
    for warning in &summary.warnings {
        text += &format!(
            "- **warning[{}]**: {} {}\n",
            escaped(&warning.code),
            words::sentence(&escaped(&warning.text)),
            words::sentence(&escaped(&warning.advice))
        );
    }
    text
}

fn cells(figure: &Figure, names: &[&str], scale: f64) -> String {
    let told: Vec<String> = names
        .iter()
        .map(|name| cell(figure, name, scale).replace('<', "&lt;"))
        .collect();
    told.join(" / ")
}

fn row(cells: &[impl AsRef<str>]) -> String {
    let cells: Vec<&str> = cells.iter().map(AsRef::as_ref).collect();
    format!("| {} |\n", cells.join(" | "))
}

/// A foreign text as text: no table cell, link, image, mention or HTML comes of it.
fn escaped(text: &str) -> String {
    let mut told = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\n' | '\r' | '\t' => told.push(' '),
            letter if letter.is_control() => (),
            '<' => told.push_str("&lt;"),
            '>' => told.push_str("&gt;"),
            '&' => told.push_str("&amp;"),
            '@' => told.push_str("&#64;"),
            '|' | '*' | '_' | '`' | '[' | ']' | '!' | '\\' | '#' | '~' => {
                told.push('\\');
                told.push(letter);
            }
            letter => told.push(letter),
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_foreign_text_makes_no_markup() {
        assert_eq!(
            escaped("a|b <img src=x> [x](http://y) @all\n`c`"),
            "a\\|b &lt;img src=x&gt; \\[x\\](http://y) &#64;all \\`c\\`"
        );
    }
}
