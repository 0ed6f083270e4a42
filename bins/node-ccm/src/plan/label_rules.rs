//! What the API server accepts as a label, and which keys are Kubernetes' own.

/// Most characters of a name or a value.
const NAME_LIMIT: usize = 63;
/// Most characters of a prefix.
const PREFIX_LIMIT: usize = 253;

/// Checks a label as the API server will. The error says what would be right.
pub fn check(key: &str, value: &str) -> Result<(), &'static str> {
    check_key(key)?;
    check_value(value)
}

/// Checks a key: `[prefix/]name`.
fn check_key(key: &str) -> Result<(), &'static str> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    if prefix.is_some_and(|prefix| !is_subdomain(prefix)) {
        return Err("the key's prefix must be a DNS name in lower case of at most 253 characters");
    }
    if name.is_empty() || !is_name(name) {
        return Err(
            "the key's name must have 1 to 63 letters, digits, '-', '_' or '.' and begin and end with a letter or digit",
        );
    }
    Ok(())
}

/// Checks a value. Empty is legal.
pub fn check_value(value: &str) -> Result<(), &'static str> {
    if value.is_empty() || is_name(value) {
        return Ok(());
    }
    Err(
        "a value must have at most 63 letters, digits, '-', '_' or '.' and begin and end with a letter or digit",
    )
}

/// Whether the key belongs to Kubernetes: its prefix is `kubernetes.io`, `k8s.io` or a
/// domain below them. A provider must not set such labels by way of additional ones.
pub fn is_reserved(key: &str) -> bool {
    ["kubernetes.io/", "k8s.io/"].iter().any(|domain| {
        key.match_indices(domain).any(|(at, _)| {
            key.get(..at).is_some_and(|before| before.is_empty() || before.ends_with('.'))
        })
    })
}

fn is_name(text: &str) -> bool {
    let ends_well = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    text.len() <= NAME_LIMIT
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
        && ends_well(text.chars().next())
        && ends_well(text.chars().next_back())
}

fn is_subdomain(text: &str) -> bool {
    text.len() <= PREFIX_LIMIT && text.split('.').all(is_dns_label)
}

fn is_dns_label(text: &str) -> bool {
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    !text.is_empty()
        && text.chars().all(|c| legal(c) || c == '-')
        && text.starts_with(legal)
        && text.ends_with(legal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_checked_as_the_api_server_does() {
        let long = "x".repeat(63);
        let too_long = "x".repeat(64);
        let prefix = format!("{}.example", "p".repeat(245));
        for (key, value, legal) in [
            ("zone", "a", true),
            ("example.com/zone", "nova", true),
            ("example.com/Zone_1.x", "Az-1_b.c", true),
            ("example.com/zone", "", true),
            ("example.com/zone", long.as_str(), true),
            ("example.com/zone", too_long.as_str(), false),
            ("example.com/zone", "zone one", false),
            ("example.com/zone", " ", false),
            ("example.com/zone", "-a", false),
            ("example.com/zone", "a.", false),
            ("example.com/zone", "zöne", false),
            ("example.com/zone", "a/b", false),
            ("", "a", false),
            ("example.com/", "a", false),
            ("/zone", "a", false),
            ("Example.com/zone", "a", false),
            ("example..com/zone", "a", false),
            ("-example.com/zone", "a", false),
            ("a/b/c", "a", false),
            (long.as_str(), "a", true),
            (too_long.as_str(), "a", false),
            (&format!("{prefix}/x"), "a", true),
            (&format!("{prefix}s/x"), "a", false),
        ] {
            assert_eq!(check(key, value).is_ok(), legal, "{key:?}={value:?}");
        }
    }

    #[test]
    fn reserved_keys_are_those_of_kubernetes_domains() {
        for (key, expect) in [
            ("kubernetes.io/x", true),
            ("k8s.io/y", true),
            ("topology.kubernetes.io/region", true),
            ("x.k8s.io/y", true),
            ("topology.k8s.cp/zone-id", false),
            ("app.k8snio/bar", false),
            ("k8snio/bar", false),
            ("mykubernetes.io/x", false),
            ("example.com/kubernetes.io", false),
            ("", false),
        ] {
            assert_eq!(is_reserved(key), expect, "{key}");
        }
    }
}
