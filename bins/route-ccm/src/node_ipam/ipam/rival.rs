//! Recognises another allocator in the same cluster. Two of them give out the same blocks, and
//! `spec.podCIDRs` cannot be changed once they are set.
//!
//! Pod CIDRs of another client are respected: no other node gets them. They are a *sign* of another
//! allocator only if the node existed without pod CIDRs, as an allocator finds it, and if they take
//! blocks that ours has given or would give next. A node that is created with pod CIDRs comes from
//! a manifest, a backup or its own kubelet. The signs of two nodes within some minutes stop our
//! allocator. Two are required because one kubelet can write only to its own node.
//!
//! Another allocator gives a node its pod CIDRs within seconds. So the stop ends when a node has
//! waited for minutes and no node has got pod CIDRs from another client.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::Arc,
    time::Duration,
};

use ccm_base::At;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::networks::Uid;
use crate::networks::join;

/// How many nodes must show a sign.
const NODES: usize = 2;
/// Signs that are further apart do not belong together.
const WINDOW: Duration = Duration::from_mins(10);
/// How long a node must wait without pod CIDRs from other clients until ours continues.
pub(super) const LEFT_ALONE: Duration = Duration::from_mins(5);

/// Pod CIDRs that appeared on a node while we led, and that we did not write. They are respected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Foreign {
    /// The node.
    pub node: Arc<str>,
    /// The present state of the node, in words.
    pub shown: Vec<Box<str>>,
    /// The blocks that were kept for it, if there were any.
    pub reserved: Vec<IpNet>,
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { node, shown, reserved } = self;
        write!(f, "node {node} got podCIDRs {} from another client", shown.join(","))?;
        if !reserved.is_empty() {
            write!(f, " (kept for it: {})", join(reserved))?;
        }
        Ok(())
    }
}

/// Another allocator is at work. Ours stops.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rival {
    /// The writes that were seen.
    pub signs: Vec<Foreign>,
}

impl Rival {
    /// The fix, for a person.
    pub const MEND: &str = "set --allocate-node-cidrs in one program only";

    /// Says what the other allocator did, and what node IPAM does about it.
    pub fn cause(&self) -> String {
        let signs: Vec<_> = self.signs.iter().map(ToString::to_string).collect();
        format!(
            "another allocator assigns the same blocks ({}): nodes do not get podCIDRs here until one has waited for {} min and no other client has assigned any",
            signs.join("; "),
            LEFT_ALONE.as_secs() / 60
        )
    }
}

impl fmt::Display for Rival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.cause(), Self::MEND)
    }
}

/// The signs of another allocator.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Signs {
    /// The signs by the name of the node, so that a node that is registered again and again counts
    /// once.
    seen: BTreeMap<Arc<str>, (At, Foreign)>,
    stop: Option<Rival>,
    /// The nodes that wait because of the stop, and since when no other client has assigned any.
    left_alone: HashMap<Uid, At>,
}

impl Signs {
    /// Records that a known node without pod CIDRs got some from another client. `takes_ours` is
    /// true if they overlap blocks that our allocator has assigned or assigns next. Returns the
    /// reason of a stop that begins now.
    pub(super) fn add(&mut self, foreign: &Foreign, takes_ours: bool, now: At) -> Option<&Rival> {
        self.left_alone.clear();
        if !takes_ours || self.stop.is_some() {
            return None;
        }
        self.seen.retain(|_, (at, _)| now < *at + WINDOW);
        self.seen.insert(Arc::clone(&foreign.node), (now, foreign.clone()));
        if self.seen.len() < NODES {
            return None;
        }
        let signs = std::mem::take(&mut self.seen).into_values().map(|(_, sign)| sign).collect();
        Some(self.stop.insert(Rival { signs }))
    }

    /// Returns why this node, which needs pod CIDRs, does not get them now. Ends the stop if it was
    /// left alone.
    pub(super) fn stops(&mut self, uid: &str, now: At) -> Option<&Rival> {
        if self.stop.is_some() {
            let since = *self.left_alone.entry(Uid::from(uid)).or_insert(now);
            if since + LEFT_ALONE <= now {
                *self = Self::default();
            }
        }
        self.stop.as_ref()
    }

    /// Records that the node no longer waits.
    pub(super) fn forget(&mut self, uid: &str) {
        self.left_alone.remove(uid);
    }

    /// Returns why no node gets blocks.
    pub(super) const fn stop(&self) -> Option<&Rival> {
        self.stop.as_ref()
    }
}

/// The state of our writes to one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Writes {
    /// A write has begun, and there is no answer yet.
    pub(super) pending: bool,
    /// A write may have been carried out.
    pub(super) possible: bool,
}

impl Writes {
    /// Returns true if what the node shows can be ours.
    pub(super) const fn may_have_landed(self) -> bool {
        self.pending || self.possible
    }
}

/// Returns true if a node that shows these pod CIDRs got them from another client. `known` are those that it
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
    fn what_was_shown_or_may_be_our_write_is_not_foreign() {
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
            // Both have the same block by chance, because another allocator counts from the same
            // end.
            (Some((&*a, writes(false, false))), true),
        ] {
            assert_eq!(is_foreign(&a, known), expect, "{known:?}");
        }
    }

    const NOW: At = At(Duration::from_secs(1_000));

    fn foreign(node: &str) -> Foreign {
        let reserved = vec!["10.0.0.0/24".parse().unwrap()];
        Foreign { node: node.into(), shown: vec!["10.0.7.0/24".into()], reserved }
    }

    #[test]
    fn a_rival_is_named_with_its_nodes_and_networks() {
        let text = Rival { signs: vec![foreign("n1"), foreign("n2")] }.to_string();
        for part in ["n1", "n2", "10.0.7.0/24", "10.0.0.0/24", "--allocate-node-cidrs", "5 min"] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn the_signs_of_two_nodes_within_ten_minutes_stop() {
        let mut signs = Signs::default();
        let late = NOW + WINDOW;
        for (node, at) in [("n1", NOW), ("n1", NOW), ("n2", late), ("n2", late)] {
            assert_eq!(signs.add(&foreign(node), true, at), None, "{node}");
        }
        assert_eq!(signs.add(&foreign("n3"), false, late), None);
        let rival = signs.add(&foreign("n4"), true, late).cloned().unwrap();
        assert_eq!(rival.signs, [foreign("n2"), foreign("n4")]);
        assert_eq!(signs.add(&foreign("n5"), true, late), None, "told once");
        assert_eq!(signs.stop(), Some(&rival));
    }

    #[test]
    fn a_stop_ends_when_a_node_was_left_alone() {
        let mut signs = Signs::default();
        assert_eq!(signs.stops("a", NOW), None);
        signs.add(&foreign("n1"), true, NOW);
        signs.add(&foreign("n2"), true, NOW);
        // No node waits.
        let mut now = NOW + LEFT_ALONE * 9;
        assert!(signs.stops("a", now).is_some());
        signs.forget("a");
        now = now + LEFT_ALONE;
        assert!(signs.stops("b", now).is_some(), "a is gone");
        now = now + LEFT_ALONE - Duration::from_secs(1);
        assert!(signs.stops("b", now).is_some());
        signs.add(&foreign("n3"), false, now);
        now = now + Duration::from_secs(1);
        assert!(signs.stops("b", now).is_some(), "n3 was not left alone");
        assert_eq!(signs.stops("b", now + LEFT_ALONE), None);
        // Two nodes are required again.
        assert_eq!(signs.add(&foreign("n4"), true, now + LEFT_ALONE), None);
    }
}
