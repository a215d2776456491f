//! Tables with all figures and their intervals.

use super::escape;
use crate::report::words::{self, cell, number, percent};
use crate::summary::{ClassFigures, Figure, Level, Summary};

const METRICS: [&str; 11] = [
    "TTFT ms",
    "TTFO ms",
    "TPOT ms",
    "ITL ms",
    "E2E ms",
    "TTFT from sent ms",
    "E2E from sent ms",
    "lag ms",
    "connect ms",
    "queue ms",
    "residual ms",
];

/// One row per level: what the terminal shows, with intervals.
pub fn levels(summary: &Summary) -> String {
    let rows = summary.levels.iter().map(|level| {
        let rate =
            |value: Option<f64>, key: &str| with_interval(number(value), level.rates_ci95.get(key));
        let figure = |figure: &Figure, name: &str| {
            with_interval(cell(figure, name, 1.0), figure.ci95.get(name))
        };
        vec![
            words::load(level),
            format!(
                "{} / {}",
                level.requests.ok,
                words::num_failed(&level.requests)
            ),
            rate(Some(level.requests_per_s), "requests_per_s"),
            rate(level.output_tokens_per_s, "output_tokens_per_s"),
            rate(level.input_tokens_per_s, "input_tokens_per_s"),
            figure(&level.ttft_ms, "p50"),
            figure(&level.ttft_ms, "p95"),
            figure(&level.ttft_ms, "p99"),
            figure(&level.tpot_ms, "p50"),
            figure(&level.tpot_ms, "p99"),
            figure(&level.itl_ms, "p99"),
            figure(&level.e2e_ms, "p50"),
            rate(Some(level.goodput_rps), "goodput_rps"),
            percent(level.attainment),
        ]
    });
    let names = [
        "load",
        "ok / failed",
        "req/s",
        "out tok/s",
        "in tok/s",
        "TTFT p50 ms",
        "p95",
        "p99",
        "TPOT p50 ms",
        "p99",
        "ITL p99 ms",
        "E2E p50 ms",
        "good req/s",
        "attained",
    ];
    let needs = words::needs(summary).map_or(String::new(), |needs| format!(" {needs}."));
    let caption = format!("Small: 95 % intervals.{needs}");
    table(&caption, &names, rows)
}

/// Every figure of every level.
pub fn figures(summary: &Summary) -> String {
    let mut text = String::new();
    for level in &summary.levels {
        let figures = [
            &level.ttft_ms,
            &level.ttfo_ms,
            &level.tpot_ms,
            &level.itl_ms,
            &level.e2e_ms,
            &level.service_ttft_ms,
            &level.service_e2e_ms,
            &level.lag_ms,
            &level.connect_ms,
            &level.queue_ms,
            &level.residual_ms,
        ];
        let rows = METRICS
            .iter()
            .zip(figures)
            .filter(|(_, figure)| figure.n > 0)
            .map(|(name, figure)| figure_row(name, figure));
        let mut content = table(&level_caption(level), &FIGURE_NAMES, rows);
        if level.classes.len() > 1 {
            for (name, class) in &level.classes {
                content += &class_table(name, class);
            }
        }
        text += &format!(
            "<details><summary>{}</summary>\n{content}</details>\n",
            escape(&words::load(level))
        );
    }
    text
}

const FIGURE_NAMES: [&str; 8] = ["", "n", "mean", "p50", "p90", "p95", "p99", "max"];

fn figure_row(name: &str, figure: &Figure) -> Vec<String> {
    let mut cells = vec![escape(name), figure.n.to_string()];
    for name in &FIGURE_NAMES[2..] {
        cells.push(with_interval(
            cell(figure, name, 1.0),
            figure.ci95.get(*name),
        ));
    }
    cells
}

fn class_table(name: &str, class: &ClassFigures) -> String {
    let mut caption = format!(
        "class {name}: {} ok, {} failed, {} req/s, {} good req/s, attained {}",
        class.requests.ok,
        words::num_failed(&class.requests),
        number(Some(class.requests_per_s)),
        number(Some(class.goodput_rps)),
        percent(class.attainment)
    );
    if !class.slo.is_empty() {
        caption += &format!(" ({})", class.slo);
    }
    if let Some(times) = class.interference {
        caption += &format!(
            ", median TPOT {} times that at the lightest load",
            number(Some(times))
        );
    }
    let figures = [&class.ttft_ms, &class.tpot_ms, &class.itl_ms, &class.e2e_ms];
    let names = ["TTFT ms", "TPOT ms", "ITL ms", "E2E ms"];
    let rows = names
        .iter()
        .zip(figures)
        .map(|(name, figure)| figure_row(name, figure));
    table(&caption, &FIGURE_NAMES, rows)
}

fn level_caption(level: &Level) -> String {
    let mut parts = vec![
        format!(
            "{} s from {} s, steady for {} s, ended by {}",
            number(Some(level.duration_s)),
            number(Some(level.start_s)),
            number(Some(level.steady_s)),
            level.stopped_by.name()
        ),
        format!("tokens counted by {}", level.token_source),
    ];
    if let (Some(offered), Some(achieved)) = (level.offered_rps, level.achieved_rps) {
        parts.push(format!(
            "{} req/s due, {} sent",
            number(Some(offered)),
            number(Some(achieved))
        ));
    }
    if let Some(law) = &level.littles_law {
        parts.push(format!(
            "Little's law: {} in flight, {} by rate times time (ratio {})",
            number(Some(law.in_flight)),
            number(Some(law.rate_times_time)),
            number(Some(law.ratio))
        ));
    }
    if let Some(cache) = &level.cache {
        parts.push(format!(
            "prompt tokens found in a cache: {} (declared {})",
            percent(Some(cache.measured)),
            percent(cache.declared)
        ));
    }
    if !level.flags.is_empty() {
        parts.push(format!("flags {}", level.flags.join(", ")));
    }
    parts.join("; ")
}

/// How requests failed, if one did.
pub fn failures(summary: &Summary) -> String {
    let is_any = summary
        .levels
        .iter()
        .any(|level| words::num_failed(&level.requests) > 0);
    if !is_any {
        return String::new();
    }
    let rows = summary.levels.iter().map(|level| {
        let counts = &level.requests;
        let kinds = [
            counts.truncated,
            counts.error_event,
            counts.http_error,
            counts.timeout,
            counts.connect,
            counts.protocol,
            counts.empty,
            counts.cancelled,
        ];
        let mut cells = vec![words::load(level), counts.ok.to_string()];
        cells.extend(kinds.map(|num| num.to_string()));
        cells
    });
    let names = [
        "load",
        "ok",
        "truncated",
        "error event",
        "http error",
        "timeout",
        "connect",
        "protocol",
        "empty",
        "cancelled",
    ];
    let mut text = table(
        "How requests ended. Cancelled: the run ended before they did.",
        &names,
        rows,
    );
    let errors = words::errors(summary);
    if !errors.is_empty() {
        let rows: String = errors
            .iter()
            .map(|(error, num)| {
                format!(
                    "<tr><td>{num}</td><td class=\"text\">{}</td></tr>\n",
                    escape(error)
                )
            })
            .collect();
        text += &format!(
            "<h3>In the server's words</h3>\n<div class=\"scroll\" tabindex=\"0\"><table>\n<thead><tr><th scope=\"col\">times</th><td class=\"text\">error</td></tr></thead>\n<tbody>\n{rows}</tbody>\n</table></div>\n"
        );
    }
    super::section("Failures", &text)
}

/// The client, the command and the run.
pub fn environment(summary: &Summary) -> String {
    let client = &summary.client;
    let ms = |value: Option<f64>| {
        value.map_or("not calibrated".to_owned(), |_| {
            format!("{} ms", number(value))
        })
    };
    let bound = match client.bound {
        true => "yes: the client, not the server, limited a level",
        false => "no",
    };
    let entries = [
        ("endpoint", summary.endpoint.clone()),
        (
            "model",
            summary
                .model
                .clone()
                .unwrap_or_else(|| "none named".to_owned()),
        ),
        ("API", format!("{} over {}", summary.api, summary.protocol)),
        (
            "workload",
            format!("{}, hash {}", summary.workload.name, summary.workload.hash),
        ),
        (
            "prompt tokens from",
            summary.workload.prompt_tokens_from.clone(),
        ),
        ("seed", summary.seed.to_string()),
        ("started", summary.started.clone()),
        ("took", format!("{} s", number(Some(summary.duration_s)))),
        ("client's own floor, p99", ms(client.floor_ms_p99)),
        ("client's own floor, p50", ms(client.floor_ms_p50)),
        ("client-bound", bound.to_owned()),
        (
            "client's processor",
            format!(
                "{} s, {} of one core",
                number(Some(client.cpu_s)),
                percent(Some(client.cpu_share))
            ),
        ),
        (
            "client's memory, at most",
            format!(
                "{} MiB",
                number(Some(client.memory_peak_bytes as f64 / 1_048_576.0))
            ),
        ),
        ("connections, at most", client.connections_max.to_string()),
        ("fulcrum", summary.fulcrum.clone()),
    ];
    let terms: String = entries
        .iter()
        .map(|(name, value)| format!("<dt>{}</dt><dd>{}</dd>\n", escape(name), escape(value)))
        .collect();
    format!(
        "<dl>\n{terms}</dl>\n<h3>Command</h3>\n<pre>{}</pre>\n",
        escape(&summary.command.join(" "))
    )
}

/// Cells are HTML already; caption and names are not.
fn table(caption: &str, names: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let heads: String = names
        .iter()
        .map(|name| match name.is_empty() {
            true => "<td></td>".to_owned(),
            false => format!("<th scope=\"col\">{}</th>", escape(name)),
        })
        .collect();
    let body: String = rows
        .map(|cells| {
            let (first, rest) = cells.split_first().expect("rows begin with their name");
            let rest: String = rest.iter().map(|cell| format!("<td>{cell}</td>")).collect();
            format!("<tr><th scope=\"row\">{first}</th>{rest}</tr>\n")
        })
        .collect();
    format!(
        "<div class=\"scroll\" tabindex=\"0\"><table>\n<caption>{}</caption>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{body}</tbody>\n</table></div>\n",
        escape(caption)
    )
}

fn with_interval(value: String, interval: Option<&[f64; 2]>) -> String {
    let value = escape(&value);
    match interval {
        Some([low, high]) => format!(
            "{value}<small>{} – {}</small>",
            number(Some(*low)),
            number(Some(*high))
        ),
        None => value,
    }
}
