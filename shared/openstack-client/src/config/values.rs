//! Parses values of a `cloud.conf` whose spelling differs from the programs' own settings.

use std::time::Duration;

use ccm_settings::SettingValue as _;
use url::Url;

use crate::text::http_url;

/// Yes or no, as gcfg reads it.
pub fn flag(text: &str, _: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Ok(true),
        "false" | "no" | "off" | "0" => Ok(false),
        _ => Err("must be true, yes, on, 1 or false, no, off, 0".to_owned()),
    }
}

/// Parses whole seconds without a unit, or numbers with Go's units.
pub fn duration(text: &str, _: &str) -> Result<Duration, String> {
    let unsigned = text.strip_prefix('+').unwrap_or(text);
    let read = match unsigned.bytes().all(|byte| byte.is_ascii_digit()) {
        true => unsigned.parse().ok().map(Duration::from_secs),
        false => Duration::parse(text).ok(),
    };
    read.ok_or_else(|| {
        "must be a duration such as 30s or 1m30s, or a whole number of seconds".to_owned()
    })
}

/// Returns true if a value without blanks seems to hold another key, perhaps with a secret, because
/// a line break is missing.
pub fn is_run_together(text: &str) -> bool {
    text.contains(|c: char| c == '=' || c.is_whitespace())
}

/// Returns the address of Keystone.
pub fn url(text: &str) -> Result<Url, String> {
    const RIGHT: &str = "must be the URL of Keystone, such as https://keystone.example.com:5000/v3";
    const ALONE: &str = "must be the URL of Keystone, such as https://keystone.example.com:5000/v3, with no blank \
                         and no =: is a line break missing?";
    if text.is_empty() {
        return Err("missing; must be the URL of Keystone, here or in clouds.yaml".to_owned());
    }
    if is_run_together(text) {
        return Err(ALONE.to_owned());
    }
    let url = http_url(text).ok_or(RIGHT)?;
    let is_v2 = |mut parts: std::str::Split<'_, char>| parts.any(|part| part == "v2.0");
    let wrong = match &url {
        _ if url.host_str().is_none_or(str::is_empty) => RIGHT,
        _ if !url.username().is_empty() || url.password().is_some() => {
            "must not hold a user or a password; they have separate keys"
        }
        _ if url.query().is_some() || url.fragment().is_some() => {
            "must end with its path: no ? and no #"
        }
        _ if url.path_segments().is_some_and(is_v2) => {
            "is Keystone's API v2.0, which no longer exists; must end in /v3 or have no version"
        }
        _ => return Ok(url),
    };
    Err(wrong.to_owned())
}
