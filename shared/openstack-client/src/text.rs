//! Converts text from the cloud for messages and URLs.

use ccm_base::message::one_line;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize as _, Deserializer, de::Error as _};
use url::Url;

/// The maximum length of a value (a name, an ID) in a message, in characters.
pub const MAX_VALUE: usize = 100;
/// The maximum length of a quoted message or body.
pub const MAX_MESSAGE: usize = 300;
/// The maximum length of a path: together with the endpoint it stays below 8000 bytes, a
/// common limit of proxies for the request line.
const MAX_PATH: usize = 7_500;
/// The maximum length of a DNS name.
const MAX_HOST_NAME: usize = 253;
/// The characters that are not encoded in a query.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Returns the URL, if it is one of http or https and its host is ASCII. Other hosts are not
/// supported, and the parser must not see them: it takes for granted that it was built with tables
/// of Unicode.
pub fn http_url(text: &str) -> Option<Url> {
    let (scheme, rest) = text.trim().split_once("://")?;
    let is_http = ["http", "https"].iter().any(|http| scheme.eq_ignore_ascii_case(http));
    let authority = rest.split(['/', '?', '#', '\\']).next()?;
    let host = authority.rsplit('@').next()?;
    // The parser would skip the third slash of `http:///host`.
    let is_ascii =
        !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'%');
    if is_http && is_ascii { Url::parse(text).ok() } else { None }
}

/// Returns true if the text can be a host name.
pub fn is_host_name(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !text.is_empty() && text.len() <= MAX_HOST_NAME && text.chars().all(fits)
}

/// Reads an ID. An empty one would turn a request about an object into one about all of its kind, and
/// messages show it.
pub fn id<'a, D: Deserializer<'a>>(reader: D) -> Result<String, D::Error> {
    id_or_none(reader)?.ok_or_else(|| D::Error::custom("the ID is empty"))
}

/// Reads a name of a protocol or kind. Messages show it, so it is one line; no name that is known changes.
pub fn word<'a, D: Deserializer<'a>>(reader: D) -> Result<String, D::Error> {
    Ok(one_line(&String::deserialize(reader)?, MAX_VALUE))
}

/// Reads an ID that may be missing or null. An empty one counts as missing.
pub fn id_or_none<'a, D: Deserializer<'a>>(reader: D) -> Result<Option<String>, D::Error> {
    match Option::<String>::deserialize(reader)?.filter(|id| !id.is_empty()) {
        Some(id) if id.contains(char::is_control) => {
            Err(D::Error::custom("the ID has control characters"))
        }
        id => Ok(id),
    }
}

/// Encodes a value for a query, or for one segment of a path.
pub fn query(value: &str) -> String {
    utf8_percent_encode(value, QUERY).to_string()
}

/// Returns paths for the entries whose `filter` is one of these values, none of them too long.
pub fn paths<'a>(base: &str, filter: &str, values: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut paths: Vec<String> = Vec::new();
    for value in values {
        let term = format!("{filter}={}", query(value));
        match paths.last_mut() {
            Some(path) if path.len() + term.len() < MAX_PATH => {
                path.push('&');
                path.push_str(&term);
            }
            _ => {
                let joint = if base.contains('?') { '&' } else { '?' };
                paths.push(format!("{base}{joint}{term}"));
            }
        }
    }
    paths
}

/// Returns a regular expression that matches exactly this text, as Nova's name filter needs.
pub fn exactly(text: &str) -> String {
    let mut pattern = String::from("^");
    for c in text.chars() {
        if r"\.+*?()|[]{}^$".contains(c) {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern.push('$');
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_with_a_host_in_ascii_are_read() {
        for (text, expect) in [
            ("https://Keystone.Example:5000/v3", Some("https://keystone.example:5000/v3")),
            (
                " HTTP://[2001:db8::1]:80/identity/\u{fc} ",
                Some("http://[2001:db8::1]/identity/%C3%BC"),
            ),
            ("https://me:p%40ss@k", Some("https://me:p%40ss@k/")),
            ("https://xn--fiqs8s.example", Some("https://xn--fiqs8s.example/")),
            // The parser is built without tables of Unicode, so it must not see these.
            ("https://K\u{e9}y.example", None),
            ("https://%4B%C3%A9y.example", None),
            ("https://me@K\u{e9}y", None),
            ("https:K\u{e9}y", None),
            ("https:/K\u{e9}y", None),
            ("https:///K\u{e9}y", None),
            ("https://\\K\u{e9}y", None),
            ("https://k:5000\\@K\u{e9}y", Some("https://k:5000/@K%C3%A9y")),
            ("ftp://k", None),
            ("k:5000", None),
            ("", None),
        ] {
            assert_eq!(http_url(text).map(String::from).as_deref(), expect, "{text}");
        }
    }

    #[test]
    fn names_are_quoted_for_nova() {
        assert_eq!(exactly("node-1.a"), r"^node-1\.a$");
        assert_eq!(query(&exactly("n.1")), "%5En%5C.1%24");
        assert_eq!(exactly(r"a[b]{c}|(d)*+?^$\"), r"^a\[b\]\{c\}\|\(d\)\*\+\?\^\$\\$");
    }
}
