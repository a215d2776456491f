//! Durations as people write them: a number and a unit, `800ms`, `1.5s`, `24h`.

use std::time::Duration;

/// No promise is longer than a year.
pub(super) const DURATION_MAX: Duration = Duration::from_secs(366 * 24 * 3600);

/// Reads a duration above 0 and at most `max`.
///
/// # Errors
///
/// What is expected, in words, without repeating what was written.
pub(super) fn duration(text: &str, max: Duration) -> Result<Duration, String> {
    let expected = || {
        format!(
            "must be a duration above 0 and at most {} s: a number and ms, s, m, h or d, as in \"800ms\"",
            max.as_secs()
        )
    };
    let digits = text.len()
        - text
            .trim_start_matches(|c: char| c.is_ascii_digit() || c == '.')
            .len();
    let (number, unit) = text.split_at(digits);
    let seconds_each = match unit.trim() {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return Err(expected()),
    };
    let seconds = decimal(number).ok_or_else(expected)? * seconds_each;
    let duration = Duration::try_from_secs_f64(seconds).map_err(|_| expected())?;
    match duration > Duration::ZERO && duration <= max {
        true => Ok(duration),
        false => Err(expected()),
    }
}

/// A plain decimal number: digits, maybe a point and digits. No sign, no exponent, no `nan`.
pub(super) fn decimal(text: &str) -> Option<f64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    if !is_number(whole) || !is_number(part) || text.len() > 24 {
        return None;
    }
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_and_a_unit_are_a_duration() {
        let read = |text| duration(text, DURATION_MAX).unwrap();
        assert_eq!(read("800ms"), Duration::from_millis(800));
        assert_eq!(read("1.5s"), Duration::from_millis(1500));
        assert_eq!(read("2 m"), Duration::from_secs(120));
        assert_eq!(read("24h"), Duration::from_secs(86_400));
        assert_eq!(read("366d"), DURATION_MAX);
    }

    #[test]
    fn everything_else_is_none() {
        for hostile in [
            "",
            "ms",
            "5",
            "0s",
            "0.0ms",
            "-1s",
            "+1s",
            "1e3s",
            "nans",
            "infs",
            ".5s",
            "1.s",
            "1..5s",
            "1 s s",
            "367d",
            "99999999999999999999999999s",
            "1w",
            "١s",
        ] {
            assert!(duration(hostile, DURATION_MAX).is_err(), "{hostile:?}");
        }
        assert!(duration("2s", Duration::from_secs(1)).is_err());
    }
}
