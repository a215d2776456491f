//! Which charts a report has, and what each of them says.

use super::{escape, section};
use crate::report::chart::{Axis, Chart, Curve, Ink, Point, Rule, Scale, Shade, Shape, svg};
use crate::report::series::{LevelEcdf, Series, TimelinePoint};
use crate::report::words::{self, number};
use crate::slo::Metric;
use crate::summary::{ClassFigures, Figure, Level, Summary};

/// Levels whose distributions are drawn.
const DISTRIBUTIONS_MAX: usize = 8;
/// Classes drawn.
const CLASSES_MAX: usize = 6;
/// The server's series drawn.
const SERVER_SERIES_MAX: usize = 24;

const NORMAL: [u32; 2] = [480, 300];
const WIDE: [u32; 2] = [1000, 240];

/// All charts that have something to show.
pub fn all(summary: &Summary, series: &Series) -> String {
    let run = Run::new(summary);
    let mut text = grid(
        "By load",
        [
            figure(
                &throughput(&run),
                "shaded: the operating point's interval; bands: 95 %",
            ),
            figure(
                &latency(&run, "TTFT", |level| &level.ttft_ms),
                "logarithmic; bands: 95 %",
            ),
            figure(
                &latency(&run, "TPOT", |level| &level.tpot_ms),
                "per token after the first event; bands: 95 %",
            ),
            figure(
                &trade(&run),
                "each point is a level: right is more work done, down is sooner",
            ),
        ],
    );
    text += &grid(
        "Distributions",
        [
            figure(
                &distribution(&run, series, Metric::Ttft),
                "share of whole answers whose TTFT is at most so long, of the steady window",
            ),
            figure(
                &distribution(&run, series, Metric::Tpot),
                "share of whole answers whose TPOT is at most so long, of the steady window",
            ),
            figure(
                &distribution(&run, series, Metric::E2e),
                "share of whole answers that were whole after at most so long, of the steady window",
            ),
            figure(
                &distribution(&run, series, Metric::Itl),
                "share of gaps between tokens that are at most so long, of the steady window",
            ),
        ],
    );
    text += &grid(
        "Over the run",
        [
            wide(
                &timeline(&run, series, "tokens/s", |point| point.tokens_per_s),
                "tokens by their arrival; shaded: steady windows, which rates are over",
            ),
            wide(
                &timeline(&run, series, "answers/s", |point| {
                    Some(point.requests_per_s)
                }),
                "whole answers by their end",
            ),
            wide(
                &timeline(&run, series, "in flight", |point| Some(point.in_flight)),
                "requests sent and not ended",
            ),
        ],
    );
    if words::has_classes(summary) {
        text += &grid(
            "By class",
            [
                figure(
                    &classes(&run, "TTFT p50 ms", Scale::Log, |class| class.ttft_ms.p50),
                    "the median",
                ),
                figure(
                    &classes(&run, "TPOT p50 ms", Scale::Log, |class| class.tpot_ms.p50),
                    "the median",
                ),
                figure(
                    &classes(&run, "attained %", Scale::Linear, |class| {
                        class.attainment.map(|share| share * 100.0)
                    }),
                    "requests that met every objective, of those attempted",
                ),
                figure(
                    &classes(&run, "good req/s", Scale::Linear, |class| {
                        Some(class.goodput_rps)
                    }),
                    "goodput",
                ),
            ],
        );
    }
    text + &server(summary)
}

/// What every chart by load needs.
struct Run<'a> {
    summary: &'a Summary,
    /// Levels that have a load, the lightest first.
    levels: Vec<(f64, &'a Level)>,
    axis: Axis,
}

impl Run<'_> {
    fn new(summary: &Summary) -> Run<'_> {
        let loads = summary.levels.iter().filter_map(|level| {
            let load = level.users.map(f64::from).or(level.offered_rps)?;
            Some((load, level))
        });
        let mut levels: Vec<(f64, &Level)> = loads.collect();
        levels.sort_by(|left, right| left.0.total_cmp(&right.0));
        let axis = Axis {
            label: match words::load_unit(summary) {
                "users" => "users".to_owned(),
                _ => "requests due, a second".to_owned(),
            },
            scale: Scale::Log,
            ticks: levels.iter().map(|(load, _)| *load).collect(),
        };
        Run {
            summary,
            levels,
            axis,
        }
    }

    fn curve(
        &self,
        name: &str,
        ink: Ink,
        point: impl Fn(&Level) -> Option<(f64, Option<[f64; 2]>)>,
    ) -> Curve {
        let points = self.levels.iter().filter_map(|(load, level)| {
            let (y, interval) = point(level)?;
            Some(Point {
                x: *load,
                y,
                interval,
                title: title(&words::load(level), name, y, interval),
                label: String::new(),
            })
        });
        Curve {
            name: name.to_owned(),
            ink,
            shape: Shape::Marked,
            points: points.collect(),
        }
    }

    fn chart(&self, title: &str, y: Axis, curves: Vec<Curve>) -> Chart {
        Chart {
            title: title.to_owned(),
            size: NORMAL,
            x: self.axis.clone(),
            y,
            curves,
            shades: Vec::new(),
            rules: Vec::new(),
        }
    }
}

fn throughput(run: &Run<'_>) -> Chart {
    let has_tokens = run
        .levels
        .iter()
        .any(|(_, level)| level.output_tokens_per_s.is_some());
    let (label, key) = match has_tokens {
        true => ("output tokens/s", "output_tokens_per_s"),
        false => ("content events/s", "events_per_s"),
    };
    let curve = run.curve(label, Ink::Kind(0), |level| {
        let rate = match has_tokens {
            true => level.output_tokens_per_s?,
            false => level.events_per_s,
        };
        Some((rate, level.rates_ci95.get(key).copied()))
    });
    let mut chart = run.chart("Throughput against load", linear(label), vec![curve]);
    if let Some(point) = &run.summary.operating_point {
        chart.shades.push(Shade {
            range: [point.low, point.high],
            title: words::operating_point(point),
        });
        let marked = [
            (point.users.or(point.rps), "operating point"),
            (point.n_star, "N*"),
        ];
        for (at, name) in marked {
            chart.rules.extend(at.map(|at| Rule {
                at,
                label: format!("{name} {}", number(Some(at))),
            }));
        }
    }
    chart
}

fn latency(run: &Run<'_>, name: &str, of: fn(&Level) -> &Figure) -> Chart {
    let percentiles = [
        ("p50", Ink::Kind(0)),
        ("p95", Ink::Kind(1)),
        ("p99", Ink::Kind(3)),
    ];
    let curves = percentiles.map(|(percentile, ink)| {
        run.curve(&format!("{name} {percentile}"), ink, |level| {
            let figure = of(level);
            let value = words::percentile(figure, percentile)?;
            Some((value, figure.ci95.get(percentile).copied()))
        })
    });
    let title = format!("{name} against load");
    run.chart(&title, log(&format!("{name} ms")), Vec::from(curves))
}

fn trade(run: &Run<'_>) -> Chart {
    let points = run.levels.iter().filter_map(|(_, level)| {
        let (x, y) = (
            level.output_tokens_per_s.unwrap_or(level.events_per_s),
            level.e2e_ms.p50? / 1e3,
        );
        let load = words::load(level);
        Some(Point {
            x,
            y,
            interval: None,
            title: format!(
                "{load}: {} tokens/s, E2E p50 {} s",
                number(Some(x)),
                number(Some(y))
            ),
            label: load.split(' ').next().unwrap_or_default().to_owned(),
        })
    });
    let curve = Curve {
        name: String::new(),
        ink: Ink::Kind(2),
        shape: Shape::Marked,
        points: points.collect(),
    };
    let mut chart = run.chart(
        "Time of an answer against throughput",
        log("E2E p50 s"),
        vec![curve],
    );
    chart.x = linear("output tokens/s");
    chart
}

fn distribution(run: &Run<'_>, series: &Series, metric: Metric) -> Chart {
    let levels = &run.summary.levels;
    let mut drawn: Vec<&LevelEcdf> = series
        .ecdf
        .iter()
        .filter(|ecdf| {
            ecdf.metric == metric && ecdf.level < levels.len() && !ecdf.points.is_empty()
        })
        .collect();
    drawn.sort_by(|left, right| {
        let load = |idx: usize| {
            levels[idx]
                .users
                .map(f64::from)
                .or(levels[idx].offered_rps)
                .unwrap_or(0.0)
        };
        load(left.level).total_cmp(&load(right.level))
    });
    let kept = spread(drawn.len(), DISTRIBUTIONS_MAX);
    let curves = kept.iter().enumerate().map(|(place, &idx)| {
        let ecdf = drawn[idx];
        let name = words::load(&levels[ecdf.level]);
        let points = ecdf
            .points
            .iter()
            .enumerate()
            .map(|(rank, &(ms, share))| Point {
                x: ms,
                y: share * 100.0,
                interval: None,
                // A title at every fortieth: more would lie on top of each other.
                title: match rank % 40 {
                    0 => format!(
                        "{name}: {} % up to {} ms",
                        number(Some(share * 100.0)),
                        number(Some(ms))
                    ),
                    _ => String::new(),
                },
                label: String::new(),
            });
        Curve {
            name: name.clone(),
            ink: Ink::Step(place, kept.len()),
            shape: Shape::Steps,
            points: points.collect(),
        }
    });
    let name = metric.name().to_uppercase();
    let mut chart = run.chart(
        &format!("Distribution of {name}"),
        linear("% of values"),
        curves.collect(),
    );
    chart.x = log(&format!("{name} ms"));
    chart
}

fn timeline(
    run: &Run<'_>,
    series: &Series,
    label: &str,
    of: fn(&TimelinePoint) -> Option<f64>,
) -> Chart {
    let points = series.timeline.iter().filter_map(|point| {
        Some(Point {
            x: point.at_s,
            y: of(point)?,
            interval: None,
            title: String::new(),
            label: String::new(),
        })
    });
    let curve = Curve {
        name: String::new(),
        ink: Ink::Kind(0),
        shape: Shape::Line,
        points: points.collect(),
    };
    let mut chart = run.chart(&format!("{label} over the run"), linear(label), vec![curve]);
    chart.size = WIDE;
    chart.x = seconds();
    chart.shades = steady_windows(run.summary);
    chart
}

fn steady_windows(summary: &Summary) -> Vec<Shade> {
    let windows = summary.levels.iter().filter(|level| level.steady_s > 0.0);
    windows
        .map(|level| {
            let from = level.start_s + level.steady_from_s;
            Shade {
                range: [from, from + level.steady_s],
                title: format!(
                    "{}: steady for {} s",
                    words::load(level),
                    number(Some(level.steady_s))
                ),
            }
        })
        .collect()
}

fn classes(
    run: &Run<'_>,
    label: &str,
    scale: Scale,
    of: fn(&ClassFigures) -> Option<f64>,
) -> Chart {
    let mut names: Vec<&str> = words::class_rows(run.summary)
        .map(|(_, name, _)| name)
        .collect();
    names.sort_unstable();
    names.dedup();
    let curves = names
        .iter()
        .take(CLASSES_MAX)
        .enumerate()
        .map(|(idx, name)| {
            run.curve(name, Ink::Kind(idx), |level| {
                Some((of(level.classes.get(*name)?)?, None))
            })
        });
    let axis = Axis {
        label: label.to_owned(),
        scale,
        ticks: Vec::new(),
    };
    run.chart(
        &format!("{label} of each class against load"),
        axis,
        curves.collect(),
    )
}

fn server(summary: &Summary) -> String {
    let figures = summary
        .server_metrics
        .iter()
        .take(SERVER_SERIES_MAX)
        .map(|series| {
            let points = series.points.iter().map(|&(at, value)| Point {
                x: at,
                y: value,
                interval: None,
                title: String::new(),
                label: String::new(),
            });
            let chart = Chart {
                title: format!("{} over the run", series.name),
                size: NORMAL,
                x: seconds(),
                y: linear(""),
                curves: vec![Curve {
                    name: String::new(),
                    ink: Ink::Kind(2),
                    shape: Shape::Steps,
                    points: points.collect(),
                }],
                shades: steady_windows(summary),
                rules: Vec::new(),
            };
            figure(&chart, "by the server's own account")
        });
    let mut text = grid("The server's own metrics", figures);
    let num_left = summary
        .server_metrics
        .len()
        .saturating_sub(SERVER_SERIES_MAX);
    if num_left > 0 {
        text += &format!(
            "<p class=\"quiet\">{num_left} more series are in <code>summary.json</code>.</p>\n"
        );
    }
    text
}

fn grid(title: &str, figures: impl IntoIterator<Item = String>) -> String {
    let content: String = figures.into_iter().collect();
    match content.is_empty() {
        true => String::new(),
        false => section(title, &format!("<div class=\"plots\">\n{content}</div>\n")),
    }
}

fn figure(chart: &Chart, note: &str) -> String {
    framed(chart, note, "")
}

fn wide(chart: &Chart, note: &str) -> String {
    framed(chart, note, " class=\"wide\"")
}

/// Nothing if the chart has nothing to show.
fn framed(chart: &Chart, note: &str, class: &str) -> String {
    let Some(drawing) = svg(chart) else {
        return String::new();
    };
    format!(
        "<figure{class}>\n<figcaption>{}<span>{}</span></figcaption>\n{}{drawing}\n</figure>\n",
        escape(&chart.title),
        escape(note),
        legend(chart)
    )
}

fn legend(chart: &Chart) -> String {
    let named = chart
        .curves
        .iter()
        .filter(|curve| !curve.name.is_empty() && !curve.points.is_empty());
    let entries: String = named
        .map(|curve| {
            format!(
                "<li><span class=\"ink\" style=\"color:{}\" aria-hidden=\"true\">{}</span> {}</li>",
                curve.ink.css(),
                curve.ink.mark(),
                escape(&curve.name)
            )
        })
        .collect();
    match chart.curves.len() {
        0 | 1 => String::new(),
        _ => format!("<ul class=\"legend\">{entries}</ul>\n"),
    }
}

fn title(load: &str, name: &str, value: f64, interval: Option<[f64; 2]>) -> String {
    let value = number(Some(value));
    match interval {
        Some([low, high]) => {
            format!(
                "{load}: {name} {value} (95 %: {} to {})",
                number(Some(low)),
                number(Some(high))
            )
        }
        None => format!("{load}: {name} {value}"),
    }
}

fn linear(label: &str) -> Axis {
    Axis {
        label: label.to_owned(),
        scale: Scale::Linear,
        ticks: Vec::new(),
    }
}

fn log(label: &str) -> Axis {
    Axis {
        label: label.to_owned(),
        scale: Scale::Log,
        ticks: Vec::new(),
    }
}

fn seconds() -> Axis {
    Axis {
        label: "seconds since the run began".to_owned(),
        scale: Scale::Span,
        ticks: Vec::new(),
    }
}

/// At most `num_max` of `num` places, evenly, both ends among them.
fn spread(num: usize, num_max: usize) -> Vec<usize> {
    match num <= num_max {
        true => (0..num).collect(),
        false => (0..num_max)
            .map(|idx| idx * (num - 1) / (num_max - 1))
            .collect(),
    }
}
