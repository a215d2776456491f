//! One chart as SVG: curves with bands over a linear or logarithmic plane.
//!
//! plotters lays it out; its SVG backend estimates the width of text by its length, so no font is looked up. Logarithmic
//! axes are ours (a plane of logarithms with ticks of our own), because levels of load are few and must be the ticks.
//!
//! Colours are [`Ink`]s: written as the light page has them, and mapped to the dark page by the style sheet, which
//! matches the attribute. What a pointer tells (`<title>`) is laid over the drawing. Coordinates are whole numbers, so
//! everything is drawn at twice its size.
//!
//! Not here: what is drawn (`html::plots`).

// Where ticks stand.
mod ticks;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::html::escape;

/// Points of the drawing to one of the page.
const SCALE: u32 = 2;
/// Text, in points of the drawing. The backend divides by 1.24.
const TEXT: f64 = 12.5 * SCALE as f64 * 1.24;

type DrawError = DrawingAreaErrorKind<std::io::Error>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Coordinates = Cartesian2d<ticks::Plane, ticks::Plane>;
type Context<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Coordinates>;

/// How an axis is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Evenly, from zero.
    Linear,
    /// Evenly, over just the values there are.
    Span,
    /// By factors; what is not positive is not drawn.
    Log,
}

/// An axis.
#[derive(Clone, Debug)]
pub struct Axis {
    /// What it measures, with the unit.
    pub label: String,
    /// How.
    pub scale: Scale,
    /// Values that must be ticks, if there is room; none for round ones.
    pub ticks: Vec<f64>,
}

/// What a curve's ink is: which of the page's colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ink {
    /// One of several things that differ in kind.
    Kind(usize),
    /// One of `.1` steps of one thing, from little to much.
    Step(usize, usize),
}

/// How a curve is drawn, besides its ink: nothing is told by colour alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A line with a mark at each point; the mark's form follows the ink.
    Marked,
    /// A line.
    Line,
    /// A line that is flat between points.
    Steps,
}

/// A point of a curve.
#[derive(Clone, Debug)]
pub struct Point {
    /// Across.
    pub x: f64,
    /// Up.
    pub y: f64,
    /// Its 95 % interval, if there is one.
    pub interval: Option<[f64; 2]>,
    /// What it tells when pointed at; empty for nothing.
    pub title: String,
    /// What stands beside it; empty for nothing.
    pub label: String,
}

/// A curve.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Its name in the legend; empty if the chart has one curve only.
    pub name: String,
    /// Its colour.
    pub ink: Ink,
    /// Its form.
    pub shape: Shape,
    /// In order of x.
    pub points: Vec<Point>,
}

/// A stretch of x that is shaded.
#[derive(Clone, Debug)]
pub struct Shade {
    /// From, to.
    pub range: [f64; 2],
    /// What it tells when pointed at.
    pub title: String,
}

/// A line across the chart at one x.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Where.
    pub at: f64,
    /// What stands beside it.
    pub label: String,
}

/// A chart.
#[derive(Clone, Debug)]
pub struct Chart {
    /// For those who do not see it.
    pub title: String,
    /// Its size on the page, where the page is wide enough.
    pub size: [u32; 2],
    /// Across.
    pub x: Axis,
    /// Up.
    pub y: Axis,
    /// What is drawn.
    pub curves: Vec<Curve>,
    /// What is shaded behind.
    pub shades: Vec<Shade>,
    /// What is marked.
    pub rules: Vec<Rule>,
}

/// The chart as an `<svg>` element; none if no point can be drawn.
pub fn svg(chart: &Chart) -> Option<String> {
    let across = ticks::plane(&chart.x, xs(chart))?;
    let up = ticks::plane(&chart.y, ys(chart))?;
    let mut drawing = String::new();
    let drawn = {
        let backend = SVGBackend::with_string(&mut drawing, size(chart));
        draw(chart, &backend.into_drawing_area(), &across, &up)
    };
    let overlay = drawn.expect("a string takes everything");
    Some(framed(chart, &drawing, &overlay))
}

fn draw(
    chart: &Chart,
    area: &Area<'_>,
    across: &ticks::Plane,
    up: &ticks::Plane,
) -> Result<String, DrawError> {
    let mut context = ChartBuilder::on(area)
        .margin(6 * SCALE)
        .margin_right(18 * SCALE)
        .margin_top(14 * SCALE)
        .x_label_area_size(38 * SCALE)
        .y_label_area_size(62 * SCALE)
        .build_cartesian_2d(across.clone(), up.clone())?;
    let text = ("sans-serif", TEXT, &TEXT_INK).into_text_style(area);
    context
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID_INK.stroke_width(SCALE))
        .axis_style(AXIS_INK.stroke_width(SCALE))
        .label_style(text.clone())
        .axis_desc_style(text)
        .x_desc(chart.x.label.clone())
        .y_desc(chart.y.label.clone())
        .x_labels(across.ticks.len())
        .y_labels(up.ticks.len())
        .x_label_formatter(&|at| across.label(*at))
        .y_label_formatter(&|at| up.label(*at))
        .draw()?;
    let mut overlay = String::new();
    shades(chart, &mut context, [across, up], &mut overlay)?;
    for curve in &chart.curves {
        curve_of(curve, &mut context, [across, up], &mut overlay)?;
    }
    rules(chart, &mut context, [across, up])?;
    area.present()?;
    Ok(overlay)
}

fn shades(
    chart: &Chart,
    context: &mut Context<'_, '_>,
    [across, up]: [&ticks::Plane; 2],
    overlay: &mut String,
) -> Result<(), DrawError> {
    for shade in &chart.shades {
        let (Some(from), Some(to)) = (
            across.clamped(shade.range[0]),
            across.clamped(shade.range[1]),
        ) else {
            continue;
        };
        let corners = [(from, up.low), (to, up.high)];
        context.draw_series([Rectangle::new(corners, SHADE_INK.mix(0.22).filled())])?;
        let [low, high] = corners.map(|corner| context.backend_coord(&corner));
        *overlay += &format!(
            "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill-opacity=\"0\"><title>{}</title></rect>",
            low.0,
            high.1,
            (high.0 - low.0).max(1),
            low.1 - high.1,
            escape(&shade.title)
        );
    }
    Ok(())
}

fn rules(
    chart: &Chart,
    context: &mut Context<'_, '_>,
    [across, up]: [&ticks::Plane; 2],
) -> Result<(), DrawError> {
    for (idx, rule) in chart.rules.iter().enumerate() {
        let Some(at) = across.inside(rule.at) else {
            continue;
        };
        let line = [(at, up.low), (at, up.high)];
        context.draw_series(DashedLineSeries::new(
            line,
            5 * SCALE,
            4 * SCALE,
            TEXT_INK.stroke_width(SCALE),
        ))?;
        let is_left = at > (across.low + across.high) / 2.0;
        let side = if is_left { HPos::Right } else { HPos::Left };
        let shift = if is_left { -8 } else { 8 };
        let row = (idx as i32 + 1) * (16 * SCALE as i32);
        let style = ("sans-serif", TEXT, &TEXT_INK)
            .into_text_style(context.plotting_area())
            .pos(Pos::new(side, VPos::Bottom));
        let label =
            EmptyElement::at((at, up.high)) + Text::new(rule.label.clone(), (shift, row), style);
        context.draw_series([label])?;
    }
    Ok(())
}

fn curve_of(
    curve: &Curve,
    context: &mut Context<'_, '_>,
    [across, up]: [&ticks::Plane; 2],
    overlay: &mut String,
) -> Result<(), DrawError> {
    let ink = curve.ink.color();
    let at = |point: &Point| Some((across.inside(point.x)?, up.inside(point.y)?));
    let points: Vec<(&Point, (f64, f64))> = curve
        .points
        .iter()
        .filter_map(|point| Some((point, at(point)?)))
        .collect();
    band(&points, context, up, ink)?;
    let mut line: Vec<(f64, f64)> = Vec::with_capacity(points.len());
    for &(_, (x, y)) in &points {
        if curve.shape == Shape::Steps
            && let Some(&(_, before)) = line.last()
        {
            line.push((x, before));
        }
        line.push((x, y));
    }
    context.draw_series(LineSeries::new(line, ink.stroke_width(2 * SCALE)))?;
    for &(point, place) in &points {
        if curve.shape == Shape::Marked {
            mark(curve.ink, place, context)?;
        }
        if !point.label.is_empty() {
            let style = ("sans-serif", TEXT, &TEXT_INK)
                .into_text_style(context.plotting_area())
                .pos(Pos::new(HPos::Right, VPos::Bottom));
            let text = Text::new(point.label.clone(), (-12, -8), style);
            context.draw_series([EmptyElement::at(place) + text])?;
        }
        if !point.title.is_empty() {
            let (x, y) = context.backend_coord(&place);
            *overlay += &format!(
                "<circle cx=\"{x}\" cy=\"{y}\" r=\"{}\" fill-opacity=\"0\"><title>{}</title></circle>",
                9 * SCALE,
                escape(&point.title)
            );
        }
    }
    Ok(())
}

/// The intervals of neighbouring points as one band; a point alone has a whisker.
fn band(
    points: &[(&Point, (f64, f64))],
    context: &mut Context<'_, '_>,
    up: &ticks::Plane,
    ink: RGBColor,
) -> Result<(), DrawError> {
    let ends: Vec<(f64, f64, f64)> = points
        .iter()
        .filter_map(|(point, (x, _))| {
            let [low, high] = point.interval?;
            Some((*x, up.clamped(low)?, up.clamped(high)?))
        })
        .collect();
    for &(x, low, high) in &ends {
        let whisker = [(x, low), (x, high)];
        context.draw_series([PathElement::new(whisker, ink.stroke_width(SCALE))])?;
    }
    if ends.len() > 1 {
        let forth = ends.iter().map(|&(x, low, _)| (x, low));
        let back = ends.iter().rev().map(|&(x, _, high)| (x, high));
        let outline: Vec<(f64, f64)> = forth.chain(back).collect();
        context.draw_series([Polygon::new(outline, ink.mix(0.18).filled())])?;
    }
    Ok(())
}

fn mark(ink: Ink, place: (f64, f64), context: &mut Context<'_, '_>) -> Result<(), DrawError> {
    let radius = 4 * SCALE as i32;
    let style = ink.color().filled();
    match ink.mark() {
        "▲" => {
            context.draw_series([TriangleMarker::new(place, radius + 2, style)])?;
        }
        "■" => {
            let square = Rectangle::new([(-radius, -radius), (radius, radius)], style);
            context.draw_series([EmptyElement::at(place) + square])?;
        }
        "✕" => {
            context.draw_series([Cross::new(
                place,
                radius,
                ink.color().stroke_width(2 * SCALE),
            )])?;
        }
        _ => {
            context.draw_series([Circle::new(place, radius, style)])?;
        }
    }
    Ok(())
}

/// The drawing with words for those who do not see it, and what a pointer tells on top.
fn framed(chart: &Chart, drawing: &str, overlay: &str) -> String {
    let inner = drawing
        .split_once('>')
        .and_then(|(_, rest)| rest.rsplit_once("</svg>"))
        .map_or("", |(inner, _)| inner);
    let (width, height) = size(chart);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\">{inner}{overlay}</svg>",
        escape(&chart.title)
    )
}

fn size(chart: &Chart) -> (u32, u32) {
    (chart.size[0] * SCALE, chart.size[1] * SCALE)
}

fn xs(chart: &Chart) -> impl Iterator<Item = f64> {
    chart
        .curves
        .iter()
        .flat_map(|curve| curve.points.iter().map(|point| point.x))
}

/// All values and what of their intervals a sane chart has room for.
fn ys(chart: &Chart) -> impl Iterator<Item = f64> {
    chart
        .curves
        .iter()
        .flat_map(|curve| &curve.points)
        .flat_map(|point| {
            let [low, high] = point.interval.unwrap_or([point.y; 2]);
            [point.y, low, high.min(point.y * 10.0)]
        })
}

const TEXT_INK: RGBColor = RGBColor(0x3B, 0x41, 0x48);
const GRID_INK: RGBColor = RGBColor(0xDF, 0xE3, 0xE8);
const AXIS_INK: RGBColor = RGBColor(0x8C, 0x95, 0x9F);
const SHADE_INK: RGBColor = RGBColor(0xF2, 0xB7, 0x05);

/// Told apart by people who see fewer colours, too; 4.5 : 1 on white.
const KINDS: [RGBColor; 6] = [
    RGBColor(0x0B, 0x5C, 0xAD),
    RGBColor(0xB4, 0x47, 0x0A),
    RGBColor(0x1A, 0x7F, 0x5A),
    RGBColor(0x8A, 0x3F, 0xA0),
    RGBColor(0x7A, 0x62, 0x00),
    RGBColor(0xA3, 0x19, 0x5B),
];

/// From light to dark: little to much.
const STEPS: [RGBColor; 8] = [
    RGBColor(0x7A, 0xB8, 0xE0),
    RGBColor(0x5B, 0x9B, 0xD5),
    RGBColor(0x3F, 0x7F, 0xC4),
    RGBColor(0x2E, 0x63, 0xA8),
    RGBColor(0x27, 0x50, 0x8F),
    RGBColor(0x2B, 0x3C, 0x7A),
    RGBColor(0x3A, 0x2A, 0x6B),
    RGBColor(0x4B, 0x16, 0x50),
];

/// The inks of the light page with those of the dark one, as CSS colours.
pub const DARK: &[(&str, &str)] = &[
    ("#3B4148", "#C9D1D9"),
    ("#DFE3E8", "#2B313A"),
    ("#8C959F", "#6E7681"),
    ("#0B5CAD", "#6CB6FF"),
    ("#B4470A", "#FFA657"),
    ("#1A7F5A", "#56D4A0"),
    ("#8A3FA0", "#D2A8FF"),
    ("#7A6200", "#E3C64A"),
    ("#A3195B", "#FF7BAC"),
    ("#7AB8E0", "#5A4A9C"),
    ("#5B9BD5", "#5A63B8"),
    ("#3F7FC4", "#5A7ECF"),
    ("#2E63A8", "#5E99E0"),
    ("#27508F", "#6FB3EC"),
    ("#2B3C7A", "#8ECBF2"),
    ("#3A2A6B", "#B2E0F6"),
    ("#4B1650", "#DDF3FB"),
];

impl Ink {
    fn color(self) -> RGBColor {
        match self {
            Ink::Kind(idx) => KINDS[idx % KINDS.len()],
            Ink::Step(idx, of) => {
                STEPS[(idx * (STEPS.len() - 1)) / of.saturating_sub(1).max(1) % STEPS.len()]
            }
        }
    }

    /// Its colour on the light page, as the style sheet and the legend name it.
    pub fn css(self) -> String {
        let RGBColor(red, green, blue) = self.color();
        format!("#{red:02X}{green:02X}{blue:02X}")
    }

    /// The form of its marks, as the legend shows it.
    pub fn mark(self) -> &'static str {
        match self {
            Ink::Kind(idx) => ["●", "▲", "■", "✕"][idx % 4],
            Ink::Step(..) => "━",
        }
    }
}

#[cfg(test)]
mod tests;
