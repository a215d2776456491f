//! Where an axis begins and ends, and where its ticks stand.

use std::ops::Range;

use plotters::coord::ranged1d::{
    KeyPointHint, KeyPointWeight, NoDefaultFormatting, Ranged, ValueFormatter,
};

use super::{Axis, Scale};
use crate::report::words::number;

/// Ticks that an axis has room for.
const TICKS_MAX: usize = 8;

/// An axis as plotters sees it: a plain range, logarithms of values where the scale is [`Scale::Log`].
#[derive(Clone, Debug)]
pub struct Plane {
    scale: Scale,
    /// Its lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// Between them.
    pub ticks: Vec<f64>,
}

/// The plane for values; none if none of them can be drawn.
pub fn plane(axis: &Axis, values: impl Iterator<Item = f64>) -> Option<Plane> {
    let (low, high) = values
        .filter(|value| value.is_finite() && (axis.scale != Scale::Log || *value > 0.0))
        .map(|value| of_value(axis.scale, value))
        .fold(None, |ends: Option<(f64, f64)>, value| {
            let (low, high) = ends.unwrap_or((value, value));
            Some((low.min(value), high.max(value)))
        })?;
    let (low, high) = match axis.scale {
        Scale::Linear => (low.min(0.0), if high > 0.0 { high * 1.08 } else { 1.0 }),
        Scale::Span => (low, if high > low { high } else { low + 1.0 }),
        // A margin of a thirtieth, and at least a third of an octave: one level alone is a plane, too.
        Scale::Log => {
            let margin = ((high - low) / 30.0).max(if high > low { 0.0 } else { 0.15 });
            (low - margin, high + margin)
        }
    };
    let wanted: Vec<f64> = match axis.ticks.is_empty() {
        true => round_ticks(axis.scale, low, high),
        false => thinned(&axis.ticks, axis.scale, high - low),
    };
    Some(Plane {
        scale: axis.scale,
        low,
        high,
        ticks: wanted
            .into_iter()
            .filter(|tick| (low..=high).contains(tick))
            .collect(),
    })
}

impl Plane {
    /// Where a value stands; none if it is not on the plane.
    pub fn inside(&self, value: f64) -> Option<f64> {
        let at = of_value(self.scale, value);
        (at.is_finite() && at >= self.low && at <= self.high).then_some(at)
    }

    /// Where a value stands, or the end that it lies beyond; none if it is no number.
    pub fn clamped(&self, value: f64) -> Option<f64> {
        let at = of_value(self.scale, value);
        (!at.is_nan()).then(|| at.clamp(self.low, self.high))
    }

    /// What stands at a tick.
    pub fn label(&self, at: f64) -> String {
        let value = match self.scale {
            Scale::Log => 10f64.powf(at),
            Scale::Linear | Scale::Span => at,
        };
        let text = match value.abs() {
            large if large >= 9_999.5 => format!("{}k", number(Some(value / 1e3))),
            _ => number(Some(value)),
        };
        match text.contains('.') && !text.contains('e') {
            true => text
                .replace("0k", "k")
                .trim_end_matches('0')
                .trim_end_matches('.')
                .replace(".k", "k"),
            false => text,
        }
    }
}

impl Ranged for Plane {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, at: &f64, (first, last): (i32, i32)) -> i32 {
        let share = (at - self.low) / (self.high - self.low);
        first + (share * f64::from(last - first)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        // Ticks are bold lines; there are no light ones between them.
        match hint.weight() {
            KeyPointWeight::Bold => self.ticks.clone(),
            KeyPointWeight::Any => Vec::new(),
        }
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

impl ValueFormatter<f64> for Plane {
    fn format(at: &f64) -> String {
        at.to_string()
    }

    fn format_ext(&self, at: &f64) -> String {
        self.label(*at)
    }
}

fn of_value(scale: Scale, value: f64) -> f64 {
    match scale {
        // What is not positive lies below every plane.
        Scale::Log if value <= 0.0 => f64::NEG_INFINITY,
        Scale::Log => value.log10(),
        Scale::Linear | Scale::Span => value,
    }
}

/// Round values: 1, 2, 2.5 or 5 times a power of ten.
fn round_ticks(scale: Scale, low: f64, high: f64) -> Vec<f64> {
    if scale != Scale::Log {
        let rough = (high - low) / 5.0;
        let power = 10f64.powf(rough.log10().floor());
        let factor = [1.0, 2.0, 2.5, 5.0, 10.0]
            .into_iter()
            .find(|factor| factor * power >= rough)
            .unwrap_or(10.0);
        let step = factor * power;
        let first = (low / step).ceil();
        return (0..=TICKS_MAX)
            .map(|idx| (first + idx as f64) * step)
            .collect();
    }
    let factors: &[f64] = match high - low {
        wide if wide > 3.0 => &[1.0],
        middle if middle > 1.2 => &[1.0, 3.0],
        narrow if narrow > 0.5 => &[1.0, 2.0, 5.0],
        _ => &[1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0],
    };
    let powers = low.floor() as i32..=high.ceil() as i32;
    powers
        .flat_map(|power| {
            factors
                .iter()
                .map(move |factor| factor.log10() + f64::from(power))
        })
        .collect()
}

/// The wanted ticks that do not stand too close to each other.
fn thinned(wanted: &[f64], scale: Scale, width: f64) -> Vec<f64> {
    let mut ticks: Vec<f64> = wanted.iter().map(|&value| of_value(scale, value)).collect();
    ticks.retain(|tick| tick.is_finite());
    ticks.sort_by(f64::total_cmp);
    let mut kept: Vec<f64> = Vec::new();
    for tick in ticks {
        let is_far = kept
            .last()
            .is_none_or(|last| tick - last >= width / (TICKS_MAX as f64 + 2.0));
        if is_far {
            kept.push(tick);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(scale: Scale) -> Axis {
        Axis {
            label: String::new(),
            scale,
            ticks: Vec::new(),
        }
    }

    fn labels(scale: Scale, values: &[f64]) -> Vec<String> {
        let plane = plane(&axis(scale), values.iter().copied()).expect("values");
        plane.ticks.iter().map(|&tick| plane.label(tick)).collect()
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(
            labels(Scale::Linear, &[3.0, 334.0]),
            ["0", "100", "200", "300"]
        );
        assert_eq!(
            labels(Scale::Log, &[190.0, 8_000.0]),
            ["300", "1000", "3000"]
        );
        assert_eq!(
            labels(Scale::Log, &[0.2, 120_000.0]),
            ["1", "10", "100", "1000", "10k", "100k"]
        );
        assert_eq!(
            labels(Scale::Linear, &[0.0, 0.034]),
            ["0", "0.01", "0.02", "0.03"]
        );
    }

    #[test]
    fn one_value_is_a_plane() {
        for scale in [Scale::Linear, Scale::Span, Scale::Log] {
            let plane = plane(&axis(scale), [8.0].into_iter()).expect("a value");
            assert!(plane.low < plane.high);
            assert!(plane.inside(8.0).is_some());
        }
    }

    #[test]
    fn what_cannot_be_drawn_makes_no_plane() {
        assert!(plane(&axis(Scale::Log), [0.0, -1.0, f64::NAN].into_iter()).is_none());
        assert!(plane(&axis(Scale::Linear), [f64::INFINITY].into_iter()).is_none());
        assert!(plane(&axis(Scale::Linear), std::iter::empty()).is_none());
    }

    #[test]
    fn levels_are_ticks_as_far_as_there_is_room() {
        let axis = Axis {
            ticks: (1..=64).map(f64::from).collect(),
            ..axis(Scale::Log)
        };
        let plane = plane(&axis, (1..=64).map(f64::from)).expect("values");
        assert!(plane.ticks.len() <= TICKS_MAX + 3, "{}", plane.ticks.len());
        assert_eq!(plane.label(plane.ticks[0]), "1");
    }
}
