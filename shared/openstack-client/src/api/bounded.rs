//! Reads the needed parts of a page, and does not take memory for other parts or for too many
//! entries: a short text may stand for a value that takes many times its length.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{Error, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

/// The maximum number of entries of one page, and of all pages of a list together.
pub const MAX_ENTRIES: usize = 200_000;
/// The maximum length of one entry, in bytes.
pub const LONGEST_ENTRY: usize = 4 << 20;

/// Reads these members of an object, as text. Of equal names the last one counts.
pub fn members_of<'a, const N: usize>(
    body: &'a [u8],
    keys: [&str; N],
) -> Result<[Option<&'a RawValue>; N], serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let members = reader.deserialize_map(Members(keys))?;
    reader.end()?;
    Ok(members)
}

struct Members<'k, const N: usize>([&'k str; N]);

impl<'a, const N: usize> Visitor<'a> for Members<'_, N> {
    type Value = [Option<&'a RawValue>; N];

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = [None; N];
        while let Some(key) = map.next_key::<String>()? {
            match self.0.iter().position(|wanted| *wanted == key) {
                Some(at) => members[at] = Some(map.next_value()?),
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(members)
    }
}

/// The entries of a page, as text.
#[derive(Debug)]
pub struct Entries<'a>(pub Vec<&'a RawValue>);

impl<'a> Deserialize<'a> for Entries<'a> {
    fn deserialize<D: Deserializer<'a>>(reader: D) -> Result<Self, D::Error> {
        reader.deserialize_seq(EntryVisitor).map(Self)
    }
}

struct EntryVisitor;

impl<'a> Visitor<'a> for EntryVisitor {
    type Value = Vec<&'a RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a sequence")
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut all: Self::Value = Vec::new();
        while let Some(entry) = list.next_element()? {
            all.push(entry);
            if all.len() > MAX_ENTRIES {
                return Err(A::Error::custom(format!("more than {MAX_ENTRIES} entries")));
            }
        }
        if all.iter().any(|entry| entry.get().len() > LONGEST_ENTRY) {
            let most = LONGEST_ENTRY >> 20;
            return Err(A::Error::custom(format!("an entry is longer than {most} MiB")));
        }
        Ok(all)
    }
}

/// Returns true if the links of a page lead to a next one.
pub fn leads_on(links: &str) -> Result<bool, serde_json::Error> {
    #[derive(Deserialize)]
    struct Link {
        rel: Option<String>,
    }
    let Entries(links) = serde_json::from_str(links)?;
    let links: Result<Vec<Link>, _> =
        links.into_iter().map(|link| serde_json::from_str(link.get())).collect();
    Ok(links?.iter().any(|link| link.rel.as_deref() == Some("next")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_equal_members_counts_and_others_are_passed_over() {
        let body = br#"{"x": [{}], "servers": [1], "servers": [2, {"a": "b"}], "y": null}"#;
        let [servers, links] = members_of(body, ["servers", "servers_links"]).expect("an object");
        assert_eq!(servers.map(RawValue::get), Some(r#"[2, {"a": "b"}]"#));
        assert!(links.is_none());
        for wrong in ["[]", "{", "{} x", "null", ""] {
            assert!(members_of(wrong.as_bytes(), ["servers"]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_page_has_a_bounded_number_of_entries() {
        let page = |count: usize| format!("[{}]", vec!["{}"; count].join(","));
        let most = serde_json::from_str::<Entries<'_>>(&page(MAX_ENTRIES)).map(|all| all.0.len());
        assert_eq!(most.expect("a page"), MAX_ENTRIES);
        let more = page(MAX_ENTRIES + 1);
        let error = serde_json::from_str::<Entries<'_>>(&more).expect_err("too many").to_string();
        assert!(error.starts_with("more than 200000 entries"), "{error}");
    }

    #[test]
    fn an_entry_has_a_bounded_length() {
        let page = |length: usize| format!("[\"{}\", 1]", "x".repeat(length - 2));
        assert!(serde_json::from_str::<Entries<'_>>(&page(LONGEST_ENTRY)).is_ok());
        let longer = page(LONGEST_ENTRY + 1);
        let error = serde_json::from_str::<Entries<'_>>(&longer).expect_err("too long").to_string();
        assert!(error.starts_with("an entry is longer than 4 MiB"), "{error}");
    }

    #[test]
    fn links_lead_to_a_next_page() {
        for (links, goes_on) in [
            ("[]", false),
            (r#"[{"rel": "previous"}, {"href": "x"}]"#, false),
            (r#"[{"rel": "next"}, {"rel": "previous"}]"#, true),
        ] {
            assert_eq!(leads_on(links).expect("links"), goes_on, "{links}");
        }
        assert!(leads_on("{}").is_err());
    }
}
