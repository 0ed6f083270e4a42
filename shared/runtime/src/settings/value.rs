//! Values as text, and the types they become.

use std::{net::IpAddr, path::PathBuf, time::Duration};

use ccm_base::duration;

/// A type that a setting can have.
pub trait SettingValue: Sized {
    /// Reads it from text without surrounding blanks. The error says what would be right.
    fn parse(text: &str) -> Result<Self, String>;
}

impl SettingValue for bool {
    // What Go's strconv.ParseBool takes, so that existing manifests work.
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

whole_numbers!(u8, u16, u32, u64, usize, i32, i64);

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

/// Takes user name and password out of a URL, so that a value can be shown.
pub(crate) fn redact(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let authority_end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(authority_end);
    match authority.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}://[redacted]@{host}{tail}"),
        None => text.to_owned(),
    }
}
