//! The page of a run that goes on.
//!
//! ```text
//! endpoint, model, workload                     0:42, 3:10 left
//! ┌ 8 users: measuring ──────────────────────────────────────┐
//! │ in flight, outcomes, tokens a second          bar of time │
//! │ TTFT, TPOT                                                │
//! └───────────────────────────────────────────────────────────┘
//! tokens/s second by second
//! levels that ended
//! warnings
//! what keys do
//! ```
//!
//! What does not fit is left out from the bottom; no size makes it fail.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, LineGauge, Paragraph, Row, Sparkline, Table, Wrap};

use super::{LiveLevel, LiveView, Phase, clock};
use crate::report::table::printable;
use crate::report::words::{self, number};

/// Warnings shown: the latest.
const WARNINGS_MAX: usize = 3;

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const DIM: Style = Style::new().add_modifier(Modifier::DIM);

/// Draws the page over the whole frame.
pub fn draw(frame: &mut Frame<'_>, view: &LiveView) {
    let num_warnings = view.warnings.len().min(WARNINGS_MAX) as u16;
    let [head, now, spark, levels, warnings, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(5),
        Constraint::Length(4),
        Constraint::Min(0),
        Constraint::Length(num_warnings),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    draw_head(frame, head, view);
    draw_now(frame, now, view);
    draw_spark(frame, spark, view);
    draw_levels(frame, levels, view);
    draw_warnings(frame, warnings, view);
    let keys_text = match view.phase {
        Phase::Stopping => "q or Ctrl-C again: stop at once, figures so far are kept",
        _ => "q or Ctrl-C: stop and report what was measured",
    };
    frame.render_widget(Paragraph::new(keys_text).style(DIM), keys);
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, view: &LiveView) {
    let mut time = clock(view.elapsed_s);
    if let Some(left) = view.left_s {
        time += &format!(", about {} left", clock(left));
    }
    let [what, when] = Layout::horizontal([
        Constraint::Min(0),
        Constraint::Length(time.len() as u16 + 1),
    ])
    .areas(area);
    let mut parts = vec![Span::styled(printable(&view.endpoint), BOLD)];
    for part in [&view.model, &view.workload] {
        if !part.is_empty() {
            parts.push(Span::raw(format!("  {}", printable(part))));
        }
    }
    frame.render_widget(Paragraph::new(Line::from(parts)), what);
    frame.render_widget(Paragraph::new(time).right_aligned(), when);
}

fn draw_now(frame: &mut Frame<'_>, area: Rect, view: &LiveView) {
    let title = match view.phase {
        Phase::Calibrating => format!(" {} ", view.phase.words()),
        _ => format!(" {}: {} ", printable(&view.load), view.phase.words()),
    };
    let block = Block::bordered().title(Span::styled(title, BOLD));
    let inside = block.inner(area);
    frame.render_widget(block, area);
    let [counts, latencies, bar] = Layout::vertical([Constraint::Length(1); 3]).areas(inside);
    let failures = words::failures(&view.requests);
    let failed = match failures.is_empty() {
        true => "0 failed".to_owned(),
        false => format!("{} failed ({failures})", words::num_failed(&view.requests)),
    };
    frame.render_widget(
        Paragraph::new(format!(
            "{} in flight   {} ok   {failed}   {} tok/s",
            view.in_flight,
            view.requests.ok,
            number(Some(view.tokens_per_s))
        )),
        counts,
    );
    frame.render_widget(
        Paragraph::new(format!(
            "TTFT p50 {} p95 {} ms   TPOT p50 {} p95 {} ms",
            number(view.ttft_ms[0]),
            number(view.ttft_ms[1]),
            number(view.tpot_ms[0]),
            number(view.tpot_ms[1])
        )),
        latencies,
    );
    let (share, told) = match view.level_planned_s.filter(|planned| *planned > 0.0) {
        Some(planned) => (
            (view.level_elapsed_s / planned).clamp(0.0, 1.0),
            format!("{} of {}", clock(view.level_elapsed_s), clock(planned)),
        ),
        None => (0.0, clock(view.level_elapsed_s)),
    };
    // A share that is no number would be the widget's panic.
    let share = if share.is_finite() { share } else { 0.0 };
    frame.render_widget(
        LineGauge::default()
            .ratio(share)
            .label(told)
            .filled_symbol("━")
            .unfilled_symbol("┄"),
        bar,
    );
}

fn draw_spark(frame: &mut Frame<'_>, area: Rect, view: &LiveView) {
    let width = usize::from(area.width);
    let before = &view.tokens_per_s_before;
    let shown: Vec<u64> = before[before.len().saturating_sub(width)..]
        .iter()
        .map(|rate| rate.max(0.0).round() as u64)
        .collect();
    let most = shown.iter().copied().max().unwrap_or(0);
    let block = Block::new().title(Span::styled(format!("tokens/s, at most {most}"), DIM));
    frame.render_widget(Sparkline::default().data(shown).block(block), area);
}

fn draw_levels(frame: &mut Frame<'_>, area: Rect, view: &LiveView) {
    if view.levels.is_empty() || area.height < 2 {
        return;
    }
    // The latest ones, if not all of them fit.
    let num_shown = usize::from(area.height - 1).min(view.levels.len());
    let rows = view.levels[view.levels.len() - num_shown..].iter().map(row);
    let names = [
        "load",
        "ok/failed",
        "req/s",
        "tok/s",
        "TTFT p50",
        "p95 ms",
        "TPOT p50",
        "p95 ms",
    ];
    let header = Row::new(names.map(right)).style(BOLD);
    let widths = [12, 11, 7, 7, 9, 8, 9, 8].map(Constraint::Length);
    frame.render_widget(
        Table::new(rows, widths).header(header).column_spacing(1),
        area,
    );
}

fn row(level: &LiveLevel) -> Row<'static> {
    let cells = [
        printable(&level.load),
        format!("{}/{}", level.num_ok, level.num_failed),
        number(Some(level.requests_per_s)),
        number(Some(level.tokens_per_s)),
        number(level.ttft_ms[0]),
        number(level.ttft_ms[1]),
        number(level.tpot_ms[0]),
        number(level.tpot_ms[1]),
    ];
    Row::new(cells.map(right))
}

fn right(cell: impl Into<String>) -> Line<'static> {
    Line::from(cell.into()).right_aligned()
}

fn draw_warnings(frame: &mut Frame<'_>, area: Rect, view: &LiveView) {
    let shown = &view.warnings[view.warnings.len().saturating_sub(WARNINGS_MAX)..];
    let lines: Vec<Line<'_>> = shown
        .iter()
        .map(|warning| Line::from(format!("warning: {}", printable(warning))))
        .collect();
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: true }), area);
}
