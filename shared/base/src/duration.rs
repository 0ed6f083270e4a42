//! Durations in the format of Go's `time.ParseDuration` and `Duration.String`, which
//! existing manifests use.

use std::time::Duration;

/// Why a text is not a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// It does not follow the format.
    #[error("must be a duration such as 5m0s, 1h30m or 250ms")]
    Unreadable,
    /// It is negative.
    #[error("must be a duration of zero or more, such as 5m0s")]
    Negative,
    /// It is longer than Go can hold (about 292 years).
    #[error("must be a duration below 2562047h")]
    TooLong,
}

const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Parses a duration: numbers with units, fractions allowed, no spaces. `0` needs no unit.
pub fn parse(text: &str) -> Result<Duration, DurationError> {
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if unsigned == "0" {
        return Ok(Duration::ZERO);
    }
    let nanoseconds = sum_of_parts(unsigned)?;
    match (negative, u64::try_from(nanoseconds)) {
        (true, Ok(0)) => Ok(Duration::ZERO),
        (true, _) => Err(DurationError::Negative),
        (false, Ok(nanoseconds)) if i64::try_from(nanoseconds).is_ok() => {
            Ok(Duration::from_nanos(nanoseconds))
        }
        (false, _) => Err(DurationError::TooLong),
    }
}

fn sum_of_parts(text: &str) -> Result<u128, DurationError> {
    if text.is_empty() {
        return Err(DurationError::Unreadable);
    }
    let mut rest = text;
    let mut total: u128 = 0;
    while !rest.is_empty() {
        let (number, behind) = split_where(rest, |c| !c.is_ascii_digit() && c != '.');
        let (unit, behind) = split_where(behind, |c| c.is_ascii_digit() || c == '.');
        let (_, scale) =
            UNITS.iter().find(|(name, _)| *name == unit).ok_or(DurationError::Unreadable)?;
        total = total.checked_add(scaled(number, *scale)?).ok_or(DurationError::TooLong)?;
        rest = behind;
    }
    Ok(total)
}

fn split_where(text: &str, end: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(end).unwrap_or(text.len()))
}

/// Returns `number`, which may have a fraction, in nanoseconds.
fn scaled(number: &str, scale: u64) -> Result<u128, DurationError> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return Err(DurationError::Unreadable);
    }
    let digits = |text: &str| match text {
        "" => Ok(0),
        text => text.parse::<u64>().map_err(|_| DurationError::TooLong),
    };
    let whole = u128::from(digits(whole)?) * u128::from(scale);
    // Digits beyond the 18th are less than a nanosecond, even of an hour.
    let fraction: String = fraction.chars().take(18).collect();
    let part = u128::from(digits(&fraction)?) * u128::from(scale);
    let divisor = 10_u128.pow(u32::try_from(fraction.len()).unwrap_or(18));
    Ok(whole + part / divisor)
}

/// Formats a duration: `5m0s`, `1h30m0s`, `1.5s`, `250ms`, `0s`.
pub fn format(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if duration.is_zero() {
        return "0s".to_owned();
    }
    if seconds < 60 {
        // Below a minute Rust writes as Go does.
        return format!("{duration:?}");
    }
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    let hours = if hours > 0 { format!("{hours}h") } else { String::new() };
    let rest = format!("{}.{:09}", seconds % 60, duration.subsec_nanos());
    format!("{hours}{minutes}m{}s", rest.trim_end_matches('0').trim_end_matches('.'))
}

/// Formats a duration for people, who do not need the seconds of an hour: `40 s`, `12 min`, `1 h 3
/// min`, `2 d 3 h`.
pub fn in_words(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min"),
        (0, _, _) => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

/// Serialises a duration in Go's format; for `#[serde(serialize_with)]`.
pub fn serialize<S: serde::Serializer>(
    duration: &Duration,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&format(*duration))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        let check = |text: &str, expect: Option<Duration>| {
            assert_eq!(parse(text).ok(), expect, "{text:?}");
        };
        let milliseconds = |count| Some(Duration::from_millis(count));
        check("0", Some(Duration::ZERO));
        check("-0", Some(Duration::ZERO));
        check("0s", Some(Duration::ZERO));
        check("5m0s", milliseconds(300_000));
        check("1h30m", milliseconds(5_400_000));
        check("250ms", milliseconds(250));
        check("1.5s", milliseconds(1_500));
        check(".5s", milliseconds(500));
        check("1.s", milliseconds(1_000));
        check("+3s", milliseconds(3_000));
        check("2m3.5s", milliseconds(123_500));
        check("1us", Some(Duration::from_micros(1)));
        check("1\u{b5}s", Some(Duration::from_micros(1)));
        check("1\u{3bc}s", Some(Duration::from_micros(1)));
        check("7ns", Some(Duration::from_nanos(7)));
        check("0.3333333333333333333333333s", Some(Duration::from_nanos(333_333_333)));
        check("2562047h", Some(Duration::from_hours(2_562_047)));
        for wrong in [
            "",
            "5",
            "-5s",
            "s",
            ".s",
            "5 m",
            "5m ",
            "5d",
            "1.2.3s",
            "2562048h",
            "99999999999999999999s",
            "\u{e4}",
        ] {
            check(wrong, None);
        }
    }

    #[test]
    fn words_have_two_units_at_most() {
        let check = |seconds, expect| assert_eq!(in_words(Duration::from_secs(seconds)), expect);
        check(0, "0 s");
        check(59, "59 s");
        check(60, "1 min");
        check(3599, "59 min");
        check(3600 + 3 * 60 + 59, "1 h 3 min");
        check(86_399, "23 h 59 min");
        check(2 * 86_400 + 3 * 3600 + 59 * 60, "2 d 3 h");
    }

    #[test]
    fn durations_are_written_as_go_writes_them() {
        let check = |nanoseconds: u64, expect: &str| {
            assert_eq!(format(Duration::from_nanos(nanoseconds)), expect, "{nanoseconds}");
        };
        check(0, "0s");
        check(1, "1ns");
        check(1_100, "1.1\u{b5}s");
        check(2_200_000, "2.2ms");
        check(250_000_000, "250ms");
        check(3_300_000_000, "3.3s");
        check(245_000_000_000, "4m5s");
        check(245_001_000_000, "4m5.001s");
        check(5 * 60 * 1_000_000_000, "5m0s");
        check(18_367_001_000_000, "5h6m7.001s");
        check(12 * 3600 * 1_000_000_000, "12h0m0s");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn what_is_written_is_read_again(nanoseconds in 0..=i64::MAX.unsigned_abs()) {
            let length = Duration::from_nanos(nanoseconds);
            prop_assert_eq!(parse(&format(length)), Ok(length));
        }

        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,20}") {
            parse(&text).ok();
        }
    }
}
