//! Selects the nodes that may be members.

pub use ccm_cloud::NodeSelector as Selector;

/// Returns true if each term can be a label of a node.
pub fn is_valid(text: &str) -> bool {
    let is_name = |text: &str| {
        text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
    };
    Selector::parse(text).terms().all(|(key, value)| {
        let (prefix, name) = key.rsplit_once('/').unwrap_or(("", key));
        let is_key = is_name(prefix) && !name.is_empty() && is_name(name);
        is_key && value.is_none_or(is_name)
    })
}
