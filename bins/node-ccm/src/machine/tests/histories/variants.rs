//! The machine in surroundings without one of the protections: the rule of its name must find that.

use std::sync::Arc;

use ccm_controller::{
    brake::{Limit, Window},
    repeats::Repeats,
};
use ccm_objects::{Node, Shared as Name, node_keys::PROVIDED_NODE_IP};
use ccm_tests::seeds::{breaks, search_each};

use super::{
    super::super::*,
    Kind,
    outside::{Answered, changed},
    play,
    world::World,
};
use crate::plan::{Agreed, IdentityPolicy, LABEL_POLICY, Step};

/// The histories of one search.
const SEARCHED: u64 = 120;

/// A protection that is taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Without {
    /// Few Ready nodes change.
    Brake,
    /// A new leader knows the changes of the last one.
    Memory,
    /// The Lease is stored before a change.
    Charge,
    /// Nodes that are not selected are left out.
    Selector,
    /// Nodes of other providers are left out.
    Claims,
    /// A new node waits until its ID is confirmed.
    Identity,
    /// The other nodes with the ID are known.
    Rivals,
    /// An answer is about the node that was asked about.
    Asked,
    /// A write is for one version of the node.
    Versions,
    /// The answers show what is stored.
    Answers,
    /// Writes that are taken back pause.
    Repeats,
    /// All nodes are looked up again and again.
    Refresh,
    /// The machine hears that nodes are gone.
    Ends,
    /// The user hears of other clients that write the same.
    Reports,
    /// The user hears what of the cloud's answer is left out.
    Notes,
    /// The node's own label policy is read.
    LabelPolicy,
    /// The address that the kubelet asks for is read.
    NodeIp,
    /// The cloud's word at the time when a node agreed is known.
    Agreement,
    /// A process that only observes writes nothing.
    Observer,
    /// A memory that was written and read is the same.
    Checkpoint,
}

impl World {
    /// Returns the settings of such a program.
    pub(super) fn params_without(&self) -> Params {
        let mut params = self.params.clone();
        match self.without {
            Some(Without::Brake) => params.budget.limit = Limit::Count(1000),
            Some(Without::Selector) => params.selector = "".parse().unwrap(),
            Some(Without::Observer) => params.is_observing = false,
            Some(Without::Identity) => params.policy.identity = IdentityPolicy::Report,
            _ => {}
        }
        params
    }

    /// Returns the budget that such a leader finds.
    pub(super) fn left_without(&self, left: Window) -> Window {
        if self.without == Some(Without::Memory) { Window::default() } else { left }
    }

    /// Returns the node as such a program reads it.
    pub(super) fn as_told(&self, mut node: Node) -> Node {
        match self.without {
            Some(Without::LabelPolicy) => drop(node.annotations.remove(LABEL_POLICY)),
            Some(Without::NodeIp) => drop(node.annotations.remove(PROVIDED_NODE_IP)),
            _ => {}
        }
        node
    }

    /// Returns the traits of the cloud as such a program knows them.
    pub(super) fn seen_without(&self, mut seen: SeenNode) -> SeenNode {
        if self.without == Some(Without::Claims) && seen.claim == Some(Claim::Foreign) {
            seen.claim = Some(Claim::Ours);
        }
        seen
    }

    /// Returns the answer as such a program understands it.
    pub(super) fn answer_without(&self, answer: Answered, node: &Node, step: &Step) -> Answered {
        match (self.without, answer) {
            (Some(Without::Answers), Ok(stored)) => {
                let mut shown = changed(node, step, |_| false);
                shown.resource_version.clone_from(&stored.resource_version);
                Ok(Arc::new(shown))
            }
            (_, answer) => answer,
        }
    }

    pub(super) fn lose_repeats(&mut self, name: &Name) {
        if self.without == Some(Without::Repeats)
            && let Some(entry) = self.machine.entries.get_mut(name)
        {
            entry.made = Repeats::default();
        }
    }

    pub(super) fn lose_agreement(&mut self, name: &Name) {
        if self.without == Some(Without::Agreement)
            && let Some(entry) = self.machine.entries.get_mut(name)
        {
            entry.agreed = Agreed::default();
        }
    }

    pub(super) fn lose_a_part(&mut self) {
        if self.without == Some(Without::Checkpoint) {
            self.machine.inventory = Inventory::default();
            self.machine.writing.clear();
        }
    }

    /// Returns true if such a program does not say this.
    pub(super) fn is_silent(&self, effect: &Effect) -> bool {
        let Effect::Report(_, report) = effect else { return false };
        match self.without {
            Some(Without::Reports) => matches!(report, Report::Repeated(..)),
            Some(Without::Notes) => matches!(report, Report::Notes(_)),
            _ => false,
        }
    }
}

/// Returns the first history of a search. Few histories need some of the protections: the search
/// begins near one that does.
const fn first(without: Without) -> u64 {
    match without {
        Without::Versions => 20,
        Without::Repeats => 14,
        Without::Identity | Without::Rivals | Without::Checkpoint => 8,
        _ => 0,
    }
}

/// A rule that no variant breaks finds nothing.
#[test]
fn each_variant_breaks_its_rule() {
    let variants = [
        (Without::Brake, Kind::Budget, "Budget"),
        (Without::Memory, Kind::Budget, "Budget"),
        (Without::Charge, Kind::Budget, "Budget"),
        (Without::Selector, Kind::Faults, "LeftOut"),
        (Without::Claims, Kind::Faults, "Converges"),
        (Without::Identity, Kind::Doubts, "Identity"),
        (Without::Rivals, Kind::Doubts, "Rival"),
        (Without::Asked, Kind::Faults, "Another"),
        (Without::Versions, Kind::Others, "Taints"),
        (Without::Answers, Kind::Others, "Counted"),
        (Without::Repeats, Kind::Others, "Repeats"),
        (Without::Refresh, Kind::Budget, "Converges"),
        (Without::Ends, Kind::Doubts, "Soon"),
        (Without::Reports, Kind::Others, "Told"),
        (Without::Notes, Kind::Faults, "Noted"),
        (Without::LabelPolicy, Kind::Faults, "LabelPolicy"),
        (Without::NodeIp, Kind::Faults, "NodeIp"),
        (Without::Agreement, Kind::Others, "Restored"),
        (Without::Observer, Kind::Observer, "Observer"),
        (Without::Checkpoint, Kind::Faults, "Plain"),
    ];
    search_each(&variants, SEARCHED, first, |without, kind, rule, seed| {
        breaks(rule, || play(kind, Some(without), seed))
    });
}
