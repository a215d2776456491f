//! One line per level and class, for spreadsheets and scripts: `class` is `*` for a whole level.
//!
//! Columns are named as in `summary.json`; an empty cell is its `null`.

use super::words;
use crate::summary::{Counts, Figure, Summary};

const PERCENTILES: [&str; 6] = ["mean", "p50", "p90", "p95", "p99", "max"];
const METRICS: [&str; 4] = ["ttft_ms", "tpot_ms", "itl_ms", "e2e_ms"];

/// The run as CSV (RFC 4180, with a header).
pub fn csv(summary: &Summary) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let mut write = |cells: Vec<String>| {
        writer
            .write_record(cells)
            .expect("rows have one length and go to memory");
    };
    write(header());
    for level in &summary.levels {
        let load = [
            level.users.map_or(String::new(), |users| users.to_string()),
            cell(level.offered_rps),
        ];
        let mut cells = vec![load[0].clone(), load[1].clone(), "*".to_owned()];
        cells.extend(outcomes(&level.requests));
        cells.extend([
            cell(Some(level.requests_per_s)),
            cell(level.output_tokens_per_s),
            cell(level.input_tokens_per_s),
            cell(Some(level.goodput_rps)),
            cell(level.attainment),
            cell(Some(level.steady_s)),
        ]);
        cells.extend(figures([
            &level.ttft_ms,
            &level.tpot_ms,
            &level.itl_ms,
            &level.e2e_ms,
        ]));
        write(cells);
        for (name, class) in &level.classes {
            let mut cells = vec![load[0].clone(), load[1].clone(), name.clone()];
            cells.extend(outcomes(&class.requests));
            cells.extend([
                cell(Some(class.requests_per_s)),
                cell(class.output_tokens_per_s),
                String::new(),
                cell(Some(class.goodput_rps)),
                cell(class.attainment),
                cell(Some(level.steady_s)),
            ]);
            cells.extend(figures([
                &class.ttft_ms,
                &class.tpot_ms,
                &class.itl_ms,
                &class.e2e_ms,
            ]));
            write(cells);
        }
    }
    let bytes = writer.into_inner().expect("memory takes everything");
    String::from_utf8(bytes).expect("cells are text")
}

fn header() -> Vec<String> {
    let fixed = [
        "users",
        "offered_rps",
        "class",
        "ok",
        "failed",
        "cancelled",
        "requests_per_s",
        "output_tokens_per_s",
        "input_tokens_per_s",
        "goodput_rps",
        "attainment",
        "steady_s",
    ];
    let mut names: Vec<String> = fixed.iter().map(|name| (*name).to_owned()).collect();
    for metric in METRICS {
        names.push(format!("{metric}_n"));
        for percentile in PERCENTILES {
            names.push(format!("{metric}_{percentile}"));
            if percentile != "max" {
                names.push(format!("{metric}_{percentile}_low"));
                names.push(format!("{metric}_{percentile}_high"));
            }
        }
    }
    names
}

fn outcomes(counts: &Counts) -> [String; 3] {
    [counts.ok, words::num_failed(counts), counts.cancelled].map(|num| num.to_string())
}

fn figures(figures: [&Figure; 4]) -> Vec<String> {
    let mut cells = Vec::new();
    for figure in figures {
        cells.push(figure.n.to_string());
        for percentile in PERCENTILES {
            cells.push(cell(words::percentile(figure, percentile)));
            if percentile != "max" {
                let interval = figure.ci95.get(percentile);
                cells.push(cell(interval.map(|interval| interval[0])));
                cells.push(cell(interval.map(|interval| interval[1])));
            }
        }
    }
    cells
}

fn cell(value: Option<f64>) -> String {
    value.map_or(String::new(), |value| value.to_string())
}
