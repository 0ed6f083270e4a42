//! Finds the part of a text that is news. Pure.

use std::borrow::Cow;

/// The beginning of a request's ID; a UUID follows.
const REQUEST: &str = "req-";
/// The placeholder for a count.
const COUNT: &str = "#";
/// Words before a number that counts something. Other numbers are names: a port, a status of HTTP.
const BEFORE_COUNTS: [&str; 14] = [
    "after", "all", "and", "are", "first", "has", "in", "is", "last", "of", "only", "other",
    "than", "the",
];

/// Returns the text without the parts that differ in each answer of a cloud although nothing has
/// changed: IDs of requests, and counts such as in `none of the 12 servers` and `again in 59 s`.
pub(super) fn comparable(text: &str) -> Cow<'_, str> {
    if !text.contains(REQUEST) && !text.contains(|c: char| c.is_ascii_digit()) {
        return text.into();
    }
    let mut rest = String::with_capacity(text.len());
    let (mut before, mut words) = ("", text.split(' ').peekable());
    while let Some(word) = words.next() {
        if !rest.is_empty() {
            rest.push(' ');
        }
        let is_counted = words.peek().is_some_and(|next| next.starts_with(char::is_alphabetic));
        match is_counted.then(|| counted(before, word)).flatten() {
            Some(open) => {
                rest.push_str(open);
                rest.push_str(COUNT);
            }
            None => rest.push_str(&without_request_ids(word)),
        }
        before = word;
    }
    rest.into()
}

/// Returns the text before the number, if the word before shows that this word is a count.
fn counted<'a>(before: &str, word: &'a str) -> Option<&'a str> {
    let number = word.trim_start_matches('(');
    let open = word.strip_suffix(number)?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let begins = before.is_empty() || !open.is_empty() || before.ends_with([',', ';', ':']);
    (is_number && (begins || BEFORE_COUNTS.contains(&before))).then_some(open)
}

fn without_request_ids(word: &str) -> Cow<'_, str> {
    if !word.contains(REQUEST) {
        return word.into();
    }
    let mut parts = word.split(REQUEST);
    let mut rest = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let id = |letter: char| letter.is_ascii_hexdigit() || letter == '-';
        rest.push_str(REQUEST);
        rest.push_str(part.trim_start_matches(id));
    }
    rest.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_requests_and_counts_are_no_news() {
        for (one, other) in [
            ("not found (request req-0a1b-2c)", "not found (request req-ffff-00)"),
            ("a req-1 b", "a req-2 b"),
            (
                "none of the 2 servers of the project has the name \"x\" (request req-1)",
                "none of the 3 servers of the project has the name \"x\" (request req-2)",
            ),
            ("it is replaced in 59 s", "it is replaced in 4 s"),
            ("3 servers have the name", "4 servers have the name"),
            ("held: 3 of 12 nodes differ", "held: 5 of 20 nodes differ"),
            ("too many (12 nodes)", "too many (9 nodes)"),
        ] {
            assert_eq!(comparable(one), comparable(other), "{one}");
        }
    }

    #[test]
    fn everything_else_is() {
        for (one, other) in [
            ("HTTP 404 from Nova", "HTTP 503 from Nova"),
            ("port 80 is taken", "port 81 is taken"),
            ("server 17 is gone", "server 18 is gone"),
            ("node-1 is gone", "node-2 is gone"),
            ("it has 10.0.0.1 on a", "it has 10.0.0.2 on a"),
            ("10.0.0.0/24 overlaps", "10.0.1.0/24 overlaps"),
            ("80/TCP is taken", "81/TCP is taken"),
            ("0", "1"),
            ("a: 0", "a: 1"),
            ("of 2", "of 3"),
            ("", "a"),
            ("forbidden (request req-1)", "not found (request req-1)"),
        ] {
            assert_ne!(comparable(one), comparable(other), "{one}");
        }
        assert_eq!(comparable("nothing to change"), "nothing to change");
    }
}
