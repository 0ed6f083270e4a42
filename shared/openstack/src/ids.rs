//! The spellings of a server's provider ID.
//!
//! | spelling | written |
//! |---|---|
//! | `openstack:///<uuid>` | by default |
//! | `openstack://<region>/<uuid>` | if `OS_CCM_REGIONAL=true` and a region is set |
//!
//! Both are accepted, also without the prefix `openstack://`: `/<uuid>`, `<region>/<uuid>`.

use ccm_openstack_client::ids::ServerId;

const SCHEME: &str = "openstack://";

/// A parsed provider ID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// A server of this region, or without a region.
    Ours(ServerId),
    /// A server of another region. Another controller is responsible, and this one does not know
    /// whether the server exists.
    AnotherRegion(String),
    /// Not a provider ID of this provider; the reason.
    Malformed(String),
}

/// Parses a provider ID. While the own region is not known, every named region counts as
/// another one.
pub fn parse(text: &str, own_region: Option<&str>) -> Parsed {
    let rest = match text.strip_prefix(SCHEME) {
        Some(rest) => rest,
        None if text.contains("://") => return malformed(text),
        None => text,
    };
    let Some((region, id)) = rest.split_once('/') else { return malformed(text) };
    if id.is_empty() || id.contains('/') {
        return malformed(text);
    }
    if !region.is_empty() && own_region != Some(region) {
        return Parsed::AnotherRegion(region.to_owned());
    }
    ServerId::parse(id).map_or_else(|| malformed(text), Parsed::Ours)
}

/// Returns true if it has the scheme of this provider, valid or not.
pub fn has_scheme(text: &str) -> bool {
    text.starts_with(SCHEME)
}

fn malformed(text: &str) -> Parsed {
    Parsed::Malformed(format!(
        "provider ID {text:?} didn't match expected format {SCHEME}<region, may be empty>/<UUID of the server>"
    ))
}

/// Formats a provider ID; with the region if that is wanted and there is one.
pub fn format(regional: bool, region: Option<&str>, id: &ServerId) -> String {
    let region = region.filter(|_| regional).unwrap_or_default();
    format!("{SCHEME}{region}/{id}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID: &str = "0f0e0d0c-1111-2222-3333-00000000abcd";

    fn ours() -> Parsed {
        Parsed::Ours(ServerId::parse(ID).unwrap())
    }

    #[test]
    fn spellings_that_name_a_server() {
        let upper = ID.to_uppercase();
        for (text, region) in [
            (format!("openstack:///{ID}"), Some("r1")),
            (format!("openstack:///{ID}"), None),
            (format!("openstack://r1/{ID}"), Some("r1")),
            (format!("/{ID}"), Some("r1")),
            (format!("r1/{ID}"), Some("r1")),
            (format!("openstack:///{upper}"), None),
        ] {
            assert_eq!(parse(&text, region), ours(), "{text} in {region:?}");
        }
    }

    #[test]
    fn another_region_is_said_so_whatever_its_ids_look_like() {
        for text in [format!("openstack://r2/{ID}"), format!("r2/{ID}"), "r2/x".to_owned()] {
            assert_eq!(parse(&text, Some("r1")), Parsed::AnotherRegion("r2".to_owned()), "{text}");
        }
        for (text, own) in [("R1", Some("r1")), ("r1", None), ("r1", Some(""))] {
            assert_eq!(
                parse(&format!("openstack://{text}/{ID}"), own),
                Parsed::AnotherRegion(text.to_owned()),
                "{own:?}"
            );
        }
    }

    #[test]
    fn everything_else_is_malformed() {
        let one = |text: String| {
            let Parsed::Malformed(why) = parse(&text, Some("r1")) else {
                panic!("{text} was taken");
            };
            assert!(why.contains("didn't match expected format"), "{why}");
            assert!(why.contains(&format!("{text:?}")), "{why}");
        };
        for text in [
            "",
            "/",
            "openstack://",
            "openstack:///",
            "openstack://r1/",
            "openstack:///not-a-uuid",
            "openstack:///0f0e0d0c1111222233330000000000ab",
            "openstack:///0f0e0d0c-1111-2222-3333-00000000abcg",
            "r1/0f0e0d0c-1111-2222-3333-00000000abcdé",
        ] {
            one(text.to_owned());
        }
        for text in [
            ID.to_owned(),
            format!("openstack://{ID}"),
            format!("aws:///{ID}"),
            format!("OpenStack:///{ID}"),
            format!("openstack://r1/{ID}/"),
            format!("openstack://r1/a/{ID}"),
            format!("openstack:////{ID}"),
        ] {
            one(text);
        }
    }

    #[test]
    fn the_region_is_written_only_when_wanted_and_known() {
        let id = ServerId::parse(ID).unwrap();
        for (regional, region, expect) in [
            (false, Some("r1"), format!("openstack:///{ID}")),
            (true, Some("r1"), format!("openstack://r1/{ID}")),
            (true, None, format!("openstack:///{ID}")),
            (false, None, format!("openstack:///{ID}")),
        ] {
            assert_eq!(format(regional, region, &id), expect);
        }
        assert_eq!(id.as_str(), ID);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(bits: u128, regional: bool, region in "[a-zA-Z0-9_.-]{1,12}") {
            let hex = format!("{bits:032x}");
            let uuid = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| hex.get(part).unwrap_or(""));
            let id = ServerId::parse(&uuid.join("-")).unwrap();
            let text = format(regional, Some(&region), &id);
            prop_assert_eq!(parse(&text, Some(&region)), Parsed::Ours(id));
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,60}", region in proptest::option::of("\\PC{0,5}")) {
            let _parsed = parse(&text, region.as_deref());
        }
    }
}
