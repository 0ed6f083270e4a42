//! Measures how long nodes that are not Ready wait for a decision. For metrics only.

use std::{collections::HashMap, time::Duration};

use serde::{Deserialize, Serialize};

use super::{At, Decision, NodeView, Reason, Verdict};

/// The waiting nodes, and since when they wait. A new leader begins with an empty backlog.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Backlog {
    /// By UID; `None` for a node with a decision.
    waiting: HashMap<Box<str>, Option<At>>,
}

/// The size of the backlog.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BacklogSize {
    /// The number of waiting nodes.
    pub(crate) nodes: usize,
    /// The longest waiting time; zero if no node waits.
    pub(crate) longest: Duration,
}

/// The effect of a decision on the waiting time.
enum Effect {
    /// The wait ends with this verdict.
    Settled(&'static str),
    /// The wait continues, or begins again.
    Open,
    /// The node is no longer tracked.
    Left,
}

impl Backlog {
    /// Updates the nodes: a node that is not Ready waits from now on, and one that is out of
    /// reach is forgotten.
    pub(crate) fn track(&mut self, now: At, views: &[NodeView]) {
        let mut watched: HashMap<&str, &NodeView> =
            views.iter().filter(|view| view.is_watched()).map(|view| (&*view.uid, view)).collect();
        self.waiting.retain(|uid, _| watched.remove(&**uid).is_some());
        self.waiting.extend(watched.values().map(|view| (view.uid.clone(), Some(now))));
    }

    /// Records a decision. If it ends a wait, returns `keep` or `delete` and the waiting time
    /// of the node.
    pub(crate) fn decided(
        &mut self,
        now: At,
        decision: &Decision,
    ) -> Option<(&'static str, Duration)> {
        let since = self.waiting.get_mut(&decision.uid)?;
        match effect(&decision.verdict) {
            Effect::Settled(verdict) => since.take().map(|since| (verdict, now.since(since))),
            Effect::Open => {
                since.get_or_insert(now);
                None
            }
            Effect::Left => {
                self.waiting.remove(&decision.uid);
                None
            }
        }
    }

    /// Returns the size of the backlog.
    pub(crate) fn size(&self, now: At) -> BacklogSize {
        let since = self.waiting.values().flatten();
        let longest = since.clone().min().map(|since| now.since(*since));
        BacklogSize { nodes: since.count(), longest: longest.unwrap_or_default() }
    }
}

const fn effect(verdict: &Verdict) -> Effect {
    match verdict {
        Verdict::Delete => Effect::Settled("delete"),
        Verdict::Keep(
            Reason::Exists
            | Reason::NotOurs
            | Reason::Alive
            | Reason::Replaced
            | Reason::Protected
            | Reason::Ghost,
        ) => Effect::Settled("keep"),
        Verdict::Suspect { .. }
        | Verdict::BreakerOpen
        | Verdict::OverBudget { .. }
        | Verdict::Keep(Reason::NoAnswer) => Effect::Open,
        Verdict::Keep(
            Reason::Ready
            | Reason::NotSelected
            | Reason::Foreign
            | Reason::Deleting
            | Reason::AnotherNode,
        ) => Effect::Left,
    }
}

#[cfg(test)]
mod tests {
    use ccm_cloud::Claim;

    use super::*;
    use crate::policy::{Doubt, Evidence};

    fn at(seconds: u64) -> At {
        At(Duration::from_secs(seconds))
    }

    fn view(uid: &str, ready: bool) -> NodeView {
        NodeView {
            name: "node".into(),
            uid: uid.into(),
            claim: Claim::Ours,
            has_id: true,
            selected: true,
            ready,
            deleting: false,
            uninitialised: false,
            age: Duration::from_hours(1),
            protected: false,
            approved: false,
            marked: false,
            replaced: false,
        }
    }

    fn decision(uid: &str, verdict: Verdict) -> Decision {
        Decision {
            name: "node".into(),
            uid: uid.into(),
            verdict,
            since: None,
            evidence: Evidence::default(),
            approved: false,
        }
    }

    fn suspect() -> Verdict {
        Verdict::Suspect { look_again: at(0), why: Doubt::Unconfirmed }
    }

    #[test]
    fn a_wait_ends_with_the_first_conclusive_verdict() {
        let cases: [(Verdict, Option<&str>); 8] = [
            (Verdict::Delete, Some("delete")),
            (Verdict::Keep(Reason::Exists), Some("keep")),
            (Verdict::Keep(Reason::Protected), Some("keep")),
            (Verdict::Keep(Reason::NoAnswer), None),
            (Verdict::Keep(Reason::Ready), None),
            (suspect(), None),
            (Verdict::BreakerOpen, None),
            (Verdict::OverBudget { until: None }, None),
        ];
        for (verdict, expect) in cases {
            let mut backlog = Backlog::default();
            backlog.track(at(10), &[view("u", false)]);
            backlog.track(at(12), &[view("u", false)]);
            let got = backlog.decided(at(40), &decision("u", verdict));
            assert_eq!(got, expect.map(|name| (name, Duration::from_secs(30))), "{verdict:?}");
            assert_eq!(backlog.decided(at(50), &decision("u", Verdict::Keep(Reason::Ready))), None);
        }
    }

    #[test]
    fn a_settled_node_waits_again_once_it_is_suspected() {
        let mut backlog = Backlog::default();
        backlog.track(at(0), &[view("u", false)]);
        let keep = decision("u", Verdict::Keep(Reason::Exists));
        assert_eq!(backlog.decided(at(1), &keep), Some(("keep", Duration::from_secs(1))));
        assert_eq!(backlog.decided(at(5), &keep), None, "it is counted once");
        assert_eq!(backlog.size(at(6)), BacklogSize::default());
        assert_eq!(backlog.decided(at(10), &decision("u", suspect())), None);
        assert_eq!(backlog.size(at(16)), BacklogSize { nodes: 1, longest: Duration::from_secs(6) });
        let delete = decision("u", Verdict::Delete);
        assert_eq!(backlog.decided(at(30), &delete), Some(("delete", Duration::from_secs(20))));
    }

    #[test]
    fn the_backlog_counts_the_waiting_nodes() {
        let mut backlog = Backlog::default();
        backlog.track(at(0), &[view("a", false), view("b", true)]);
        backlog.track(at(5), &[view("a", false), view("b", false), view("c", false)]);
        assert_eq!(backlog.size(at(7)), BacklogSize { nodes: 3, longest: Duration::from_secs(7) });
        backlog.track(at(8), &[view("a", true), view("c", false)]);
        assert_eq!(backlog.size(at(9)), BacklogSize { nodes: 1, longest: Duration::from_secs(4) });
        assert_eq!(backlog.decided(at(9), &decision("a", Verdict::Delete)), None, "it is Ready");
    }
}
