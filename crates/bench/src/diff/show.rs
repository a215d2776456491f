//! A comparison as text: for a terminal, for a forge, and for whoever collects test reports.

use std::fmt::Write;

use super::fail_on::rounded;
use super::{Change, Comparison, LevelComparison, MetricComparison, Ruling};

impl Comparison {
    /// Plain text in columns.
    pub fn to_table(&self) -> String {
        let mut text = format!("A  {}\nB  {}\n", self.a, self.b);
        for level in &self.levels {
            let rows: Vec<[String; 6]> = std::iter::once(HEAD.map(str::to_owned))
                .chain(level.metrics.iter().map(cells))
                .collect();
            let widths: Vec<usize> = (0..HEAD.len())
                .map(|column| {
                    rows.iter()
                        .map(|row| row[column].chars().count())
                        .max()
                        .unwrap_or(0)
                })
                .collect();
            text.push_str(&format!("\n{}\n", heading(level)));
            for row in &rows {
                let mut line = format!("{:<width$}", row[0], width = widths[0]);
                for (cell, width) in row.iter().zip(&widths).skip(1).take(4) {
                    line.push_str(&format!("  {cell:>width$}"));
                }
                text.push_str(&format!("{line}  {}\n", row[5]));
            }
        }
        text.push('\n');
        for line in self.notes() {
            text.push_str(&format!("{line}\n"));
        }
        text
    }

    /// A table for each load, for a comment on a change.
    pub fn to_markdown(&self) -> String {
        let mut text = format!(
            "### Benchmark: B against A\n\n- A: `{}`\n- B: `{}`\n",
            plain(&self.a),
            plain(&self.b)
        );
        for level in &self.levels {
            text.push_str(&format!("\n**{}**\n\n", heading(level)));
            text.push_str(&format!(
                "| {} |\n|---|--:|--:|--:|--:|---|\n",
                HEAD.join(" | ")
            ));
            for metric in &level.metrics {
                text.push_str(&format!("| {} |\n", cells(metric).join(" | ")));
            }
        }
        text.push('\n');
        for line in self.notes() {
            text.push_str(&format!("- {}\n", plain(&line)));
        }
        text
    }

    /// JUnit XML. Each figure at each load is a test case, skipped if inconclusive; each rule is one, and only a broken
    /// rule fails.
    pub fn to_junit(&self) -> String {
        let num_tests = self
            .levels
            .iter()
            .map(|level| level.metrics.len())
            .sum::<usize>()
            + self.fail_on.len();
        let num_broken = self.count(Ruling::Broken);
        let skipped_metrics = self
            .levels
            .iter()
            .flat_map(|level| &level.metrics)
            .filter(|metric| metric.verdict == Change::Inconclusive)
            .count();
        let num_skipped = skipped_metrics + self.count(Ruling::Undecided);
        let mut xml = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n  \
             <testsuite name=\"fulcrum bench diff\" tests=\"{num_tests}\" failures=\"{num_broken}\" \
             errors=\"0\" skipped=\"{num_skipped}\">\n"
        );
        for level in &self.levels {
            for metric in &level.metrics {
                let words = cells(metric)[1..].join(", ");
                let body = match metric.verdict {
                    Change::Inconclusive => element("skipped", &words, ""),
                    _ => format!("<system-out>{}</system-out>", escaped(&words)),
                };
                xml.push_str(&case(&format!("load {}", level.load), &name(metric), &body));
            }
        }
        for outcome in &self.fail_on {
            let words = outcome.because.join("; ");
            let body = match outcome.ruling {
                Ruling::Kept => format!("<system-out>{}</system-out>", escaped(&words)),
                Ruling::Broken => {
                    element("failure", &format!("{} is broken", outcome.rule), &words)
                }
                Ruling::Undecided => element("skipped", &words, ""),
            };
            xml.push_str(&case("fail-on", &outcome.rule, &body));
        }
        xml.push_str("  </testsuite>\n</testsuites>\n");
        xml
    }

    fn count(&self, ruling: Ruling) -> usize {
        self.fail_on
            .iter()
            .filter(|outcome| outcome.ruling == ruling)
            .count()
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = vec![format!(
            "equivalent: the interval lies within ±{} %; {}",
            rounded(self.margin),
            self.chance
        )];
        for outcome in &self.fail_on {
            let ruling = match outcome.ruling {
                Ruling::Kept => "kept",
                Ruling::Broken => "BROKEN",
                Ruling::Undecided => "undecided",
            };
            notes.push(format!(
                "{ruling}: {} ({})",
                outcome.rule,
                outcome.because.join("; ")
            ));
        }
        notes.extend(
            self.warnings
                .iter()
                .map(|warning| format!("warning: {}; {}", warning.text, warning.advice)),
        );
        notes
    }
}

const HEAD: [&str; 6] = ["metric", "A", "B", "B/A", "95 % interval", "verdict"];

fn heading(level: &LevelComparison) -> String {
    let basis = if level.paired {
        format!("{} pairs", level.num_pairs)
    } else {
        format!("not paired: {} and {} requests", level.num_a, level.num_b)
    };
    format!("load {}, {basis}", level.load)
}

fn name(metric: &MetricComparison) -> String {
    if metric.metric.is_rate() {
        return format!("{} /s", metric.metric.name());
    }
    format!("{} {} ms", metric.metric.name(), metric.stat.name())
}

fn cells(metric: &MetricComparison) -> [String; 6] {
    let figure = |value: Option<f64>| value.map_or("n/a".to_owned(), |value| format!("{value:.2}"));
    let ratio = |value: f64| format!("{value:.3}");
    let verdict = match metric.verdict {
        Change::Better => "better",
        Change::Worse => "worse",
        Change::Equivalent => "equivalent",
        Change::Inconclusive => "inconclusive",
    };
    [
        name(metric),
        figure(metric.a),
        figure(metric.b),
        metric.ratio.map_or("n/a".to_owned(), ratio),
        metric.ci95.map_or("n/a".to_owned(), |[low, high]| {
            format!("{} to {}", ratio(low), ratio(high))
        }),
        match &metric.because {
            Some(why) => format!("{verdict} ({why})"),
            None => verdict.to_owned(),
        },
    ]
}

/// Without what would end a table's cell or a code span, or begin a tag.
fn plain(text: &str) -> String {
    text.replace(['`', '|'], "'")
        .replace('<', "&lt;")
        .replace('\n', " ")
}

fn case(class: &str, name: &str, body: &str) -> String {
    format!(
        "    <testcase classname=\"{}\" name=\"{}\" time=\"0\">{body}</testcase>\n",
        escaped(class),
        escaped(name)
    )
}

fn element(tag: &str, message: &str, text: &str) -> String {
    format!(
        "<{tag} message=\"{}\">{}</{tag}>",
        escaped(message),
        escaped(text)
    )
}

/// Text of XML 1.0: five characters have names, and most control characters cannot be written at all.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            '\n' | '\r' | '\t' => {
                let _ = write!(out, "&#{};", u32::from(letter));
            }
            '\u{0}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            _ => out.push(letter),
        }
    }
    out
}
