//! The labels that the API server accepts, and the keys that belong to Kubernetes.

/// The maximum number of characters of a name or a value.
const NAME_LIMIT: usize = 63;
/// The maximum number of characters of a prefix.
const PREFIX_LIMIT: usize = 253;

/// Validates a label as the API server does. The error states the rule.
pub fn check(key: &str, value: &str) -> Result<(), &'static str> {
    check_key(key)?;
    check_value(value)
}

/// Checks a key: `[prefix/]name`. The error states the rule.
pub fn check_key(key: &str) -> Result<(), &'static str> {
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

/// Checks a value. Empty is legal. The error states the rule.
pub fn check_value(value: &str) -> Result<(), &'static str> {
    if value.is_empty() || is_name(value) {
        return Ok(());
    }
    Err(
        "a value must have at most 63 letters, digits, '-', '_' or '.' and begin and end with a letter or digit",
    )
}

/// Returns true if the key belongs to Kubernetes or to Quartet: its prefix is `kubernetes.io`, `k8s.io`, a
/// subdomain of either, or `quartet.dev`, whose labels approve. A provider must not set such keys
/// as additional labels; the admission policy of node-ccm refuses them, too.
pub fn is_reserved(key: &str) -> bool {
    let is_kubernetes = ["kubernetes.io/", "k8s.io/"].iter().any(|domain| {
        key.match_indices(domain).any(|(at, _)| {
            key.get(..at).is_some_and(|before| before.is_empty() || before.ends_with('.'))
        })
    });
    is_kubernetes || key.starts_with("quartet.dev/")
}

/// Returns true if the key belongs to a provider of Quartet: its prefix is a subdomain of `quartet.dev`,
/// such as `openstack.quartet.dev`.
pub fn is_of_provider(key: &str) -> bool {
    key.split_once('/').is_some_and(|(prefix, _)| prefix.ends_with(".quartet.dev"))
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
mod tests;
