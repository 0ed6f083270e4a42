//! Recognises another allocator in the same cluster. Two of them give out the same blocks, and
//! `spec.podCIDRs` cannot be changed once they are set.

use std::{fmt, sync::Arc};

use ipnet::IpNet;

use super::networks::join;

/// Pod CIDRs that appeared on a node while we led, and that we did not write: another allocator is
/// at work. Ours stops for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rival {
    /// The node.
    pub node: Arc<str>,
    /// What the node shows.
    pub shown: Vec<Box<str>>,
    /// The blocks that were kept for it, if there were any.
    pub reserved: Vec<IpNet>,
}

impl fmt::Display for Rival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { node, shown, reserved } = self;
        write!(f, "node {node} got podCIDRs {} from another allocator", shown.join(","))?;
        if !reserved.is_empty() {
            write!(f, " (kept for it: {})", join(reserved))?;
        }
        f.write_str(
            ": no further node gets podCIDRs until this program is restarted; \
             set --allocate-node-cidrs in one program only",
        )
    }
}

/// What is known of our writes to one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Writes {
    /// A write has begun, and there is no answer yet.
    pub(super) pending: bool,
    /// A write may have been carried out.
    pub(super) possible: bool,
}

impl Writes {
    /// Whether what the node shows can be ours.
    pub(super) const fn may_have_landed(self) -> bool {
        self.pending || self.possible
    }
}

/// Whether a node that shows these pod CIDRs got them from another allocator. `known` are those that it
/// had, or that were kept for it, with what is known of our writes in the second case.
pub(super) fn is_foreign(shown: &[IpNet], known: Option<(&[IpNet], Option<Writes>)>) -> bool {
    match known {
        None => true,
        Some((before, None)) => before != shown,
        Some((reserved, Some(writes))) => reserved != shown || !writes.may_have_landed(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_shown_or_may_be_our_write_is_no_rival() {
        let network = |text: &str| text.parse::<IpNet>().unwrap();
        let (a, b) = (vec![network("10.0.0.0/24")], vec![network("10.0.1.0/24")]);
        let writes = |pending, possible| Some(Writes { pending, possible });
        for (known, expect) in [
            (None, true),
            (Some((&*a, None)), false),
            (Some((&*b, None)), true),
            (Some((&*a, writes(true, false))), false),
            (Some((&*a, writes(false, true))), false),
            (Some((&*b, writes(true, true))), true),
            // The same block by chance: another allocator counts from the same end.
            (Some((&*a, writes(false, false))), true),
        ] {
            assert_eq!(is_foreign(&a, known), expect, "{known:?}");
        }
    }

    #[test]
    fn a_rival_is_named_with_its_node_and_networks() {
        let rival = Rival {
            node: "n1".into(),
            shown: vec!["10.0.7.0/24".into()],
            reserved: vec!["10.0.0.0/24".parse().unwrap()],
        };
        let text = rival.to_string();
        for part in ["n1", "10.0.7.0/24", "10.0.0.0/24", "--allocate-node-cidrs"] {
            assert!(text.contains(part), "{text}");
        }
    }
}
