//! Finds the owner of a node by its provider ID alone.

/// The owner of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhoseNode<'a> {
    /// It does not belong to anybody yet, because it does not have a provider ID. A machine that no
    /// provider knows never gets one.
    Nobodys,
    /// The provider's: the ID has one of its schemes.
    Ours,
    /// It belongs to another provider, with this scheme.
    Anothers(&'a str),
    /// The owner is not known: the ID has no scheme, or the provider has not named its own schemes.
    Unreadable,
}

/// Returns who owns the node with this `spec.providerID`, for a provider with these schemes.
pub fn whose_node<'a>(provider_id: Option<&'a str>, schemes: &[String]) -> WhoseNode<'a> {
    let Some(text) = provider_id.filter(|text| !text.is_empty()) else {
        return WhoseNode::Nobodys;
    };
    match text.split_once("://") {
        Some((scheme, rest)) if is_scheme(scheme) && !rest.is_empty() && !schemes.is_empty() => {
            match schemes.iter().any(|ours| ours == scheme) {
                true => WhoseNode::Ours,
                false => WhoseNode::Anothers(scheme),
            }
        }
        _ => WhoseNode::Unreadable,
    }
}

/// Returns true if a text can be the scheme of a provider ID.
fn is_scheme(text: &str) -> bool {
    let is_legal =
        |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '+' | '-' | '.');
    text.starts_with(|c: char| c.is_ascii_lowercase()) && text.chars().all(is_legal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheme_tells_whose_a_node_is() {
        let schemes = ["openstack".to_owned(), "os".to_owned()];
        for (id, expect) in [
            (None, WhoseNode::Nobodys),
            (Some(""), WhoseNode::Nobodys),
            (Some("openstack:///i-1"), WhoseNode::Ours),
            (Some("openstack://RegionTwo/i-1"), WhoseNode::Ours),
            (Some("os://i-1"), WhoseNode::Ours),
            (Some("kubeedge://edge-1"), WhoseNode::Anothers("kubeedge")),
            (Some("k3s://n"), WhoseNode::Anothers("k3s")),
            (Some("openstack2://n"), WhoseNode::Anothers("openstack2")),
            (Some("i-1"), WhoseNode::Unreadable),
            (Some("openstack:i-1"), WhoseNode::Unreadable),
            (Some("kubeedge://"), WhoseNode::Unreadable),
            (Some("://n"), WhoseNode::Unreadable),
            (Some("OpenStack:///i-1"), WhoseNode::Unreadable),
        ] {
            assert_eq!(whose_node(id, &schemes), expect, "{id:?}");
        }
        assert_eq!(whose_node(Some("k3s://n"), &[]), WhoseNode::Unreadable);
        assert_eq!(whose_node(None, &[]), WhoseNode::Nobodys);
    }
}
