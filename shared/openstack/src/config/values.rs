//! How the values of `cloud.conf` are spelt, where it differs from the programs' own settings.

use std::time::Duration;

use ccm_settings::{SettingValue as _, quoted};
use ipnet::IpNet;
use url::Url;

use crate::openstack::text::http_url;

/// Yes or no, as gcfg reads it.
pub(super) fn flag(text: &str, _: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Ok(true),
        "false" | "no" | "off" | "0" => Ok(false),
        _ => Err("must be true, yes, on, 1 or false, no, off, 0".to_owned()),
    }
}

/// Whole seconds without a unit, or numbers with Go's units.
pub(super) fn duration(text: &str, _: &str) -> Result<Duration, String> {
    let unsigned = text.strip_prefix('+').unwrap_or(text);
    let read = match unsigned.bytes().all(|byte| byte.is_ascii_digit()) {
        true => unsigned.parse().ok().map(Duration::from_secs),
        false => Duration::parse(text).ok(),
    };
    read.ok_or_else(|| {
        "must be a duration such as 30s or 1m30s, or a whole number of seconds".to_owned()
    })
}

/// True if a value without blanks seems to hold another key, perhaps with a secret, because a line break is missing.
pub(super) fn is_run_together(text: &str) -> bool {
    text.contains(|c: char| c == '=' || c.is_whitespace())
}

/// The address of Keystone.
pub(super) fn url(text: &str) -> Result<Url, String> {
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
            "must not hold a user or a password; they have keys of their own"
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

/// The values of a key that may be given several times.
pub(super) fn repeated(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

/// The network prefixes of a list, and what is none.
pub(super) fn networks(text: &str) -> (Vec<IpNet>, Vec<&str>) {
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        match part.parse::<IpNet>() {
            Ok(network) => good.push(network.trunc()),
            Err(_) => bad.push(part),
        }
    }
    (good, bad)
}

/// Keys of metadata, and beginnings of keys.
pub(super) fn patterns(text: &str, _: &str) -> Result<Vec<String>, String> {
    let patterns = Vec::<String>::parse(text)?;
    let is_wrong = |part: &&String| part.find('*').is_some_and(|at| at + 1 < part.len());
    match patterns.iter().find(is_wrong) {
        Some(wrong) => Err(format!("{}: * may stand only at the end", quoted(wrong))),
        None => Ok(patterns),
    }
}

/// Where metadata is looked for: checked, and not used.
pub(super) fn search_order(text: &str, _: &str) -> Result<(), String> {
    const KNOWN: [&str; 2] = ["configDrive", "metadataService"];
    let parts: Vec<_> = text.split(',').map(str::trim).collect();
    if parts.len() <= KNOWN.len() && parts.iter().all(|part| KNOWN.contains(part)) {
        return Ok(());
    }
    Err(format!("must be one or two of {}, separated by a comma", KNOWN.join(", ")))
}
