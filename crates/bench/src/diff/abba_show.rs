//! Ratios of two endpoints as text.

use super::{AbbaMetric, AbbaReport};

const HEAD: [&str; 5] = ["metric", "B / A", "95 %", "pairs", "drift a round"];

impl AbbaReport {
    /// Plain text in columns.
    pub fn to_table(&self) -> String {
        let rows: Vec<[String; 5]> = std::iter::once(HEAD.map(str::to_owned))
            .chain(self.metrics.iter().map(cells))
            .collect();
        let width = |column: usize| {
            let cells = rows.iter().map(|row| row[column].chars().count());
            cells.max().unwrap_or(0)
        };
        let mut text = String::new();
        for row in &rows {
            text.push_str(&format!("{:<width$}", row[0], width = width(0)));
            for (column, cell) in row.iter().enumerate().skip(1) {
                text.push_str(&format!("  {cell:>width$}", width = width(column)));
            }
            text.push('\n');
        }
        text.push_str(&format!("\n{}\n", self.note()));
        text
    }

    /// A table for a comment on a change.
    pub fn to_markdown(&self) -> String {
        let mut text = format!("| {} |\n|---|--:|--:|--:|--:|\n", HEAD.join(" | "));
        for metric in &self.metrics {
            text.push_str(&format!("| {} |\n", cells(metric).join(" | ")));
        }
        text.push_str(&format!("\n{}\n", self.note()));
        text
    }

    fn note(&self) -> String {
        format!(
            "{} rounds, in the order A B B A. B / A: median over pairs of neighbours; times above 1 and rates below 1 \
             are worse for B. 95 %: Student's interval of the geometric mean; it takes two pairs.",
            self.num_rounds
        )
    }
}

fn cells(metric: &AbbaMetric) -> [String; 5] {
    let ratio = |value: Option<f64>| value.map_or("n/a".to_owned(), |value| format!("{value:.3}"));
    let interval = metric.ci95.map_or("n/a".to_owned(), |[low, high]| {
        format!("{low:.3} to {high:.3}")
    });
    let drift = metric
        .drift_per_round
        .map_or("n/a".to_owned(), |drift| format!("{:+.1} %", drift * 100.0));
    [
        metric.metric.clone(),
        ratio(metric.median),
        interval,
        metric.ratios.len().to_string(),
        drift,
    ]
}

#[cfg(test)]
mod tests {
    use super::super::{Round, Side, abba};

    #[test]
    fn a_table_has_a_line_for_each_metric() {
        let round = |side, value: f64| Round {
            side,
            figures: vec![
                ("ttft.p50".to_owned(), value),
                ("itl.p99".to_owned(), f64::NAN),
            ],
        };
        let rounds = [
            round(Side::A, 10.0),
            round(Side::B, 20.0),
            round(Side::B, 20.0),
            round(Side::A, 10.0),
        ];
        let table = abba(&rounds).to_table();
        let lines: Vec<&str> = table.lines().collect();
        assert!(lines[1].starts_with("ttft.p50  2.000"), "{table}");
        assert!(lines[2].starts_with("itl.p99     n/a"), "{table}");
    }
}
