//! "Did you mean ...?" for misspelt names.

/// The known name that `name` was most likely meant to be, if one is near enough.
pub(crate) fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let plain = |text: &str| text.replace(['-', '_'], "").to_lowercase();
    let wanted = plain(name);
    let (best, away) = known
        .iter()
        .map(|known| (*known, distance(&wanted, &plain(known))))
        .min_by_key(|(_, away)| *away)?;
    let near_enough = away <= 1 + wanted.chars().count() / 4;
    near_enough.then_some(best)
}

/// How many letters must be added, removed or replaced to turn one text into the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (done, left) in a.chars().enumerate() {
        let mut diagonal = done;
        let mut current = done + 1;
        let mut next = vec![current];
        for (right, above) in b.iter().zip(row.iter().skip(1)) {
            let replaced = diagonal + usize::from(left != *right);
            current = replaced.min(above + 1).min(current + 1);
            diagonal = *above;
            next.push(current);
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_name_that_was_meant() {
        let known = ["endpoint", "tls", "connectTimeout", "serverName"];
        for (name, expect) in [
            ("endpoitn", Some("endpoint")),
            ("Endpoint", Some("endpoint")),
            ("connect_timeout", Some("connectTimeout")),
            ("connect-time-out", Some("connectTimeout")),
            ("servername", Some("serverName")),
            ("tl", Some("tls")),
            ("server_nam", Some("serverName")),
            ("region", None),
            ("", None),
        ] {
            assert_eq!(nearest(name, &known), expect, "{name}");
        }
        assert_eq!(nearest("x", &[]), None);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
    }
}
