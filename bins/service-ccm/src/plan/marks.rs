//! The marks of nodes that leave on purpose, remembered after their deletion.

use std::{collections::BTreeMap, time::Duration};

use ccm_base::At;
use ccm_objects::{Node, instance_gone};
use serde::{Deserialize, Serialize};

/// How long the mark of a node that is gone is remembered.
const KEPT: Duration = Duration::from_hours(24);

/// The taints of autoscalers: an autoscaler sets them on the nodes that it is about to delete. A
/// setting that names another taint may be a mistake that affects all nodes: such a taint removes
/// nodes from load balancers, but does not count as a mark.
const AUTOSCALERS: [&str; 2] = ["ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted"];

/// The sign that a node leaves on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mark {
    /// An autoscaler's taint, or lifecycle-ccm's proof that its instance is gone.
    Meant,
    /// It was cordoned, perhaps for another reason.
    Drained,
}

/// Returns the mark of this node. Users and the node itself may set it: it counts when the node is
/// gone.
pub fn mark(node: &Node, scale_down_taints: &[String], now: At) -> Option<Mark> {
    let proof = node.annotation(instance_gone::KEY);
    let mut keys = node.taints.iter().map(|taint| &*taint.key);
    let is_named = |key: &str| scale_down_taints.iter().any(|named| named == key);
    if keys.any(|key| AUTOSCALERS.contains(&key) && is_named(key))
        || proof.is_some_and(|proof| instance_gone::counts(proof, now))
    {
        return Some(Mark::Meant);
    }
    node.unschedulable.then_some(Mark::Drained)
}

/// The marks of nodes when they were last seen, and when that was. None: the node had no mark.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Marks(BTreeMap<Box<str>, (Option<Mark>, At)>);

impl Marks {
    /// Returns the mark of this node.
    pub fn get(&self, node: &str) -> Option<Mark> {
        self.0.get(node).and_then(|(mark, _)| *mark)
    }

    /// Returns the nodes.
    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(|node| &**node)
    }

    /// Returns true if nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Records the mark of a node that is seen now.
    pub fn see(&mut self, node: &str, mark: Option<Mark>, now: At) {
        match mark {
            Some(_) => drop(self.0.insert(node.into(), (mark, now))),
            None => drop(self.0.remove(node)),
        }
    }

    /// Records the mark of a node that goes now, or that it does not have one.
    pub fn went(&mut self, node: &str, mark: Option<Mark>, now: At) {
        self.0.insert(node.into(), (mark, now));
    }

    /// Takes over these, which are later. Returns true if one of them is a mark.
    pub fn update(&mut self, later: Self) -> bool {
        let has_mark = later.0.values().any(|(mark, _)| mark.is_some());
        self.0.extend(later.0);
        has_mark
    }

    /// Takes over these, which are earlier.
    pub fn add_earlier(&mut self, earlier: Self) {
        for (node, seen) in earlier.0 {
            self.0.entry(node).or_insert(seen);
        }
    }

    /// Forgets nodes that went long ago.
    pub fn expire(&mut self, now: At) {
        self.0.retain(|_, (_, seen)| *seen + KEPT > now);
    }

    /// Returns the marks of the nodes that are gone, and were seen after this time.
    #[must_use]
    pub fn of_gone(&self, is_there: impl Fn(&str) -> bool, since: At) -> Self {
        let mut gone = self.0.clone();
        gone.retain(|node, (mark, seen)| mark.is_some() && *seen > since && !is_there(node));
        Self(gone)
    }

    /// Forgets the earlier half: without its mark a node counts for the brake. Returns true if it
    /// could.
    pub fn shorten(&mut self) -> bool {
        let mut times: Vec<At> = self.0.values().map(|(_, seen)| *seen).collect();
        times.sort_unstable();
        let Some(middle) = times.get(times.len() / 2).copied() else { return false };
        let before = self.0.len();
        self.0.retain(|_, (_, seen)| *seen > middle);
        self.0.len() < before
    }
}

#[cfg(test)]
mod tests {
    use ccm_objects::Taint;

    use super::*;

    fn at(seconds: u64) -> At {
        At::default() + Duration::from_secs(100_000 + seconds)
    }

    #[test]
    fn each_mark_of_a_node() {
        let taints = ["ToBeDeletedByClusterAutoscaler".to_owned()];
        let tainted = |key: &str| Node {
            taints: vec![Taint { key: key.into(), ..Taint::default() }],
            ..Node::default()
        };
        let annotated = |value: String| Node {
            annotations: [(instance_gone::KEY.into(), value.into())].into(),
            ..Node::default()
        };
        let proof = |seconds| annotated(instance_gone::value("by_id", at(seconds)));
        for (node, expect) in [
            (Node::default(), None),
            (tainted("example.com/other"), None),
            (tainted("ToBeDeletedByClusterAutoscaler"), Some(Mark::Meant)),
            (Node { unschedulable: true, ..Node::default() }, Some(Mark::Drained)),
            (Node { unschedulable: true, ..proof(900) }, Some(Mark::Meant)),
            (proof(900), Some(Mark::Meant)),
            (proof(0), None),
            (annotated("yes".to_owned()), None),
        ] {
            assert_eq!(mark(&node, &taints, at(1000)), expect, "{node:?}");
        }
        let node = tainted("ToBeDeletedByClusterAutoscaler");
        assert_eq!(mark(&node, &[], at(1000)), None, "no setting names it");
        let other = "example.com/other".to_owned();
        assert_eq!(mark(&tainted(&other), &[other], at(1000)), None, "it may be a mistake");
    }

    #[test]
    fn a_node_that_goes_without_a_mark_has_none() {
        let mut marks = Marks::default();
        marks.see("a", Some(Mark::Drained), at(0));
        marks.see("b", Some(Mark::Meant), at(0));
        let mut went = Marks::default();
        went.went("a", None, at(1));
        assert!(!marks.update(went.clone()));
        assert_eq!((marks.get("a"), marks.get("b")), (None, Some(Mark::Meant)));
        marks.see("b", None, at(2));
        assert_eq!(marks.get("b"), None, "it exists without its mark");
        // The observations of this process are later than the last leader's.
        went.add_earlier(Marks([("a".into(), (Some(Mark::Meant), at(0)))].into()));
        assert_eq!(went.get("a"), None);
    }

    #[test]
    fn marks_of_gone_nodes_are_left_to_the_next_leader() {
        let mut marks = Marks::default();
        for (number, node) in (0..).zip(["a", "b", "c", "d", "e"]) {
            marks.see(node, Some(Mark::Drained), at(number));
        }
        let mut left = marks.of_gone(|node| node == "e", at(0));
        let text = serde_json::to_string(&left).unwrap_or_default();
        assert_eq!(serde_json::from_str::<Marks>(&text).ok(), Some(left.clone()));
        assert_eq!(left.0.len(), 3, "{left:?}");
        assert!(left.shorten() && left.get("d").is_some() && left.get("b").is_none());
        assert!(left.shorten() && left.is_empty() && !left.shorten());
    }
}
