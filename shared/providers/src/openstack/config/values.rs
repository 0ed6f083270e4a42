//! What the text of a value means.

use std::time::Duration;

use ipnet::IpNet;
use url::Url;

use super::options::Kind;

/// What is to be said about a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Good,
    /// It counts, or a part of it, and this is odd about it.
    Odd(String),
    /// It cannot be used; this is what would be right.
    Wrong(String),
}

/// Looks at a value that is not empty or whose kind has no use for an empty one.
pub(super) fn verdict(kind: Kind, text: &str) -> Verdict {
    let wrong = |what: &str| Verdict::Wrong(what.to_owned());
    let unless = |good: bool, what: &str| if good { Verdict::Good } else { wrong(what) };
    match kind {
        Kind::Text | Kind::Secret | Kind::File | Kind::Texts => Verdict::Good,
        Kind::Flag => unless(flag(text).is_some(), "must be true, yes, on, 1 or false, no, off, 0"),
        Kind::Duration => unless(
            duration(text).is_some(),
            "must be a duration such as 30s or 1m30s, or a whole number of seconds",
        ),
        Kind::Count => unless(count(text).is_some(), "must be a whole number from 0"),
        Kind::Url if text.is_empty() => Verdict::Good,
        Kind::Url => url(text).map_or_else(wrong, |_| Verdict::Good),
        Kind::ExactlyTrue if ["", "true", "false"].contains(&text) => Verdict::Good,
        Kind::ExactlyTrue => Verdict::Odd("only exactly true counts".to_owned()),
        Kind::Networks => left_out(networks(text).1, "no network prefix such as 10.0.0.0/8"),
        Kind::Patterns => match patterns(text).1 {
            bad if bad.is_empty() => Verdict::Good,
            bad => Verdict::Wrong(format!("{}: * may stand only at the end", quoted(&bad))),
        },
        Kind::OneOf(_) | Kind::Usually(_) if text.is_empty() => Verdict::Good,
        Kind::OneOf(words) if words.contains(&text) => Verdict::Good,
        Kind::OneOf(words) => Verdict::Wrong(format!("must be {}", listed(words, " or "))),
        Kind::Usually(words) if words.contains(&text) => Verdict::Good,
        Kind::Usually(words) => {
            Verdict::Odd(format!("not known here; known are {}", listed(words, ", ")))
        }
        Kind::Order(words) => order(words, text),
    }
}

fn order(words: &[&str], text: &str) -> Verdict {
    let parts: Vec<_> = text.split(',').map(str::trim).collect();
    let right = format!("must be one or two of {}, separated by a comma", listed(words, ", "));
    if text.trim().is_empty() {
        return Verdict::Wrong(format!("is empty; {right}"));
    }
    if parts.len() > words.len() {
        return Verdict::Wrong(format!("has {} elements; {right}", parts.len()));
    }
    match parts.iter().find(|part| !words.contains(part)) {
        Some(part) => Verdict::Wrong(format!("has the unknown element {part:?}; {right}")),
        None => Verdict::Good,
    }
}

fn left_out(bad: Vec<String>, what: &str) -> Verdict {
    match bad.as_slice() {
        [] => Verdict::Good,
        bad => Verdict::Odd(format!("left out {}: {what}", quoted(bad))),
    }
}

fn quoted(words: &[String]) -> String {
    words.iter().map(|word| format!("{word:?}")).collect::<Vec<_>>().join(", ")
}

fn listed(words: &[&str], between: &str) -> String {
    words.iter().filter(|word| !word.is_empty()).copied().collect::<Vec<_>>().join(between)
}

/// Yes or no.
pub(super) fn flag(text: &str) -> Option<bool> {
    let is = |words: [&str; 4]| words.iter().any(|word| word.eq_ignore_ascii_case(text));
    match (is(["true", "yes", "on", "1"]), is(["false", "no", "off", "0"])) {
        (true, _) => Some(true),
        (_, true) => Some(false),
        _ => None,
    }
}

/// A whole number.
pub(super) fn count(text: &str) -> Option<u32> {
    text.parse().ok()
}

/// Whole seconds without a unit, or numbers with Go's units.
pub(super) fn duration(text: &str) -> Option<Duration> {
    let unsigned = text.strip_prefix('+').unwrap_or(text);
    if !unsigned.is_empty() && unsigned.bytes().all(|byte| byte.is_ascii_digit()) {
        return unsigned.parse().ok().map(Duration::from_secs);
    }
    ccm_base::duration::parse(text).ok()
}

/// An address of Keystone, or what would be one.
pub(super) fn url(text: &str) -> Result<Url, &'static str> {
    const RIGHT: &str = "must be the URL of Keystone, such as https://keystone.example.com:5000/v3";
    let url = Url::parse(text).map_err(|_| RIGHT)?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
        return Err(RIGHT);
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must not hold a user or a password; they have keys of their own");
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("must end with its path: no ? and no #");
    }
    if url.path_segments().is_some_and(|mut parts| parts.any(|part| part == "v2.0")) {
        return Err(
            "is Keystone's API v2.0, which no longer exists; must end in /v3 or have no version",
        );
    }
    Ok(url)
}

fn elements(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty())
}

/// The network prefixes of a list, and what is none.
pub(super) fn networks(text: &str) -> (Vec<IpNet>, Vec<String>) {
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for part in elements(text) {
        match part.parse::<IpNet>() {
            Ok(network) => good.push(network.trunc()),
            Err(_) => bad.push(part.to_owned()),
        }
    }
    (good, bad)
}

/// The keys and beginnings of keys of a list, and what is neither.
pub(super) fn patterns(text: &str) -> (Vec<String>, Vec<String>) {
    elements(text)
        .map(str::to_owned)
        .partition(|part| part.find('*').is_none_or(|place| place + 1 == part.len()))
}
