//! Parses values from text.

use std::{
    fmt::Display, net::IpAddr, ops::RangeInclusive, path::PathBuf, str::FromStr, time::Duration,
};

use ccm_base::duration;

/// A type that a setting can have.
pub trait SettingValue: Sized {
    /// Parses it from trimmed text. The error is the rule that the text breaks.
    fn parse(text: &str) -> Result<Self, String>;
}

impl SettingValue for bool {
    // These are the spellings of Go's strconv.ParseBool, so that existing manifests work.
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "1" | "t" | "T" | "true" | "True" | "TRUE" => Ok(true),
            "0" | "f" | "F" | "false" | "False" | "FALSE" => Ok(false),
            _ => Err("must be true or false".to_owned()),
        }
    }
}

macro_rules! whole_numbers {
    ($($number:ty),*) => {$(
        impl SettingValue for $number {
            fn parse(text: &str) -> Result<Self, String> {
                text.parse().map_err(|_| {
                    format!("must be a whole number from {} to {}", <$number>::MIN, <$number>::MAX)
                })
            }
        }
    )*};
}

whole_numbers!(u8, u16, u32);

impl SettingValue for f64 {
    fn parse(text: &str) -> Result<Self, String> {
        match text.parse::<Self>() {
            Ok(number) if number.is_finite() => Ok(number),
            _ => Err("must be a number".to_owned()),
        }
    }
}

impl SettingValue for Duration {
    fn parse(text: &str) -> Result<Self, String> {
        duration::parse(text).map_err(|error| error.to_string())
    }
}

impl SettingValue for String {
    fn parse(text: &str) -> Result<Self, String> {
        Ok(text.to_owned())
    }
}

impl SettingValue for PathBuf {
    fn parse(text: &str) -> Result<Self, String> {
        Ok(Self::from(text))
    }
}

impl SettingValue for IpAddr {
    fn parse(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| "must be an IP address, for instance 0.0.0.0 or ::".to_owned())
    }
}

impl SettingValue for Vec<String> {
    fn parse(text: &str) -> Result<Self, String> {
        Ok(text
            .split(',')
            .map(str::trim)
            .filter(|item| !item.is_empty())
            .map(str::to_owned)
            .collect())
    }
}

/// Parses an empty text as `None`.
impl<T: SettingValue> SettingValue for Option<T> {
    fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() { Ok(None) } else { T::parse(text).map(Some) }
    }
}

/// Parses a value that must also pass `test`. The error is `rule`, for instance `must be at least
/// 1`.
pub fn checked<T: SettingValue>(
    rule: &'static str,
    test: impl Fn(&T) -> bool,
) -> impl Fn(&str, &str) -> Result<T, String> {
    move |text, _| T::parse(text).and_then(|read| test(&read).then_some(read).ok_or(rule.into()))
}

/// Parses a type that implements `FromStr`, with its own error.
pub fn parsed<T: FromStr<Err: Display>>(text: &str, _: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

/// Parses a duration of at least this, for instance `1s`.
pub fn at_least(least: &'static str) -> impl Fn(&str, &str) -> Result<Duration, String> {
    move |text, _| {
        let read = Duration::parse(text)?;
        let is_right = Duration::parse(least).is_ok_and(|least| read >= least);
        is_right.then_some(read).ok_or_else(|| format!("must be at least {least}"))
    }
}

/// Parses a duration above zero.
pub fn positive(text: &str, default: &str) -> Result<Duration, String> {
    checked("must be longer than 0s", |time: &Duration| !time.is_zero())(text, default)
}

/// Parses a whole number between bounds. Every error names the bounds.
pub fn within(bounds: RangeInclusive<u16>) -> impl Fn(&str, &str) -> Result<usize, String> {
    move |text, _| {
        let number = text.parse().ok().filter(|number| bounds.contains(number));
        number.map(usize::from).ok_or_else(|| {
            format!("must be a whole number from {} to {}", bounds.start(), bounds.end())
        })
    }
}

/// Parses one of these words. The error lists them, except an empty one.
pub fn one_of<T: Copy>(words: &[(&str, T)]) -> impl Fn(&str, &str) -> Result<T, String> {
    move |text, _| {
        let found = words.iter().find(|(word, _)| *word == text);
        found.map(|(_, value)| *value).ok_or_else(|| {
            let known: Vec<&str> =
                words.iter().map(|(word, _)| *word).filter(|word| !word.is_empty()).collect();
            format!("must be {}", known.join(" or "))
        })
    }
}

/// Returns true if this value of a file may hold a secret that belongs elsewhere: the password of a
/// URL, or the next line of the file where a line break is missing.
pub fn may_hold_secret(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let is_named = || ["pass", "secret", "token"].iter().any(|word| lower.contains(word));
    text.contains(['@', '=']) || text.contains(char::is_whitespace) && is_named()
}

/// Returns a value of a file in quotes, or words for one that may hold a secret.
pub fn quoted(text: &str) -> String {
    match may_hold_secret(text) {
        true => "(not shown because it may hold a secret)".to_owned(),
        false => format!("{text:?}"),
    }
}

/// Removes user name and password from a URL, so that the value can be shown.
pub fn redact(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let authority_end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(authority_end);
    match authority.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}://[redacted]@{host}{tail}"),
        None => text.to_owned(),
    }
}
