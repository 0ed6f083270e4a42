//! The memory of lifecycle-ccm, and the events that change it: pure.
//!
//! No other code changes it. A pass is
//!
//! ```text
//! Pass -> writes of marks -> Due -> lookups, list -> Answered -> Leases of kubelets -> Decide -> deletions, marks -> Ended
//! ```
//!
//! and each answer to a write, a lookup, a list or a read on the way is an event. Changes of nodes come at any time.
//!
//! | module | what it holds |
//! |---|---|
//! | `event`, `effect` | the events, and the effects that follow |
//! | `nodes` | the nodes, as the API server has shown them |
//! | `pass` | the events of a pass |
//! | `written` | the answers to writes |
//! | `last`, `explain` | the last answers about each node, and its explanation on the page `/explain` |
//! | `recorded` | which node an event or effect is about |
//! | this file | the memory, and the parts that others read |

pub mod effect;
pub mod event;
pub(crate) mod explain;
mod last;
mod nodes;
mod pass;
mod recorded;
mod written;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use ccm_base::At;
use ccm_cloud::Claim;
use ccm_controller::brake::{Usage, approval::SetApproval};
use ccm_controller::repeats::Repeats;
use ccm_objects::{Node, Shared as Name};
use serde::{Deserialize, Serialize};

pub use self::{
    effect::Effect,
    event::{Event, Parameters},
};
use self::{last::Last, nodes::Nodes, pass::LookUnderWay};
use crate::policy::{
    Counts, Decider, NodeView, Source,
    backlog::{Backlog, BacklogSize},
    shutdown,
};

/// The memory of lifecycle-ccm.
///
/// Its policy begins without cases, because the suspicions of an earlier leader do not prove anything. The
/// deletions of that leader count.
#[derive(Debug, Serialize, Deserialize)]
pub struct Machine {
    parameters: Parameters,
    /// True if this process only observes.
    observes: bool,
    approval: Option<SetApproval>,
    nodes: Nodes,
    decider: Decider,
    backlog: Backlog,
    /// The recent writes to each node.
    written: BTreeMap<Name, Repeats>,
    /// The nodes whose plan is not empty.
    planned: BTreeSet<Name>,
    /// The look at the cloud that is under way.
    asked: Option<LookUnderWay>,
    /// True if a mark was not written in this pass.
    has_failed: bool,
    shown: Option<ShownFleet>,
    #[serde(default)]
    last: Last,
}

/// The number of initialised nodes that the last list has shown, or the lookups of witnesses.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ShownFleet {
    /// The source that has shown them.
    pub by: Source,
    /// Their number.
    pub found: usize,
    /// The number of all of them.
    pub of: usize,
}

/// The memory in numbers.
#[derive(Debug)]
pub struct Gauges {
    /// True if the breaker is open.
    pub is_open: bool,
    /// The budget.
    pub budget: Usage,
    /// The nodes as the policy counts them.
    pub counts: Counts,
    /// The nodes that wait for a verdict.
    pub(crate) undecided: BacklogSize,
    /// For how long the oldest case has been open.
    pub oldest_case: Option<Duration>,
    /// The nodes that are Ready.
    pub ready: usize,
    /// The nodes of another provider.
    pub foreign: usize,
    /// The nodes that `--node-selector` does not select.
    pub not_selected: usize,
    /// The nodes that an autoscaler removes.
    pub marked: usize,
    /// The nodes with the shutdown taint.
    pub shutdown: usize,
}

impl ccm_controller::machine::Machine for Machine {
    type Event = Event;
    type Effect = Effect;

    fn apply(&mut self, event: Event, now: At) -> Vec<Effect> {
        match event {
            Event::Parameters(parameters) => self.parameters = *parameters,
            Event::TermBegins(left) => {
                self.nodes.replaced.extend(left.replaced);
                self.decider = Decider::resume(now, left.deleted);
            }
            Event::Approved(approval) => {
                self.approval = approval;
                return vec![Effect::Wake];
            }
            Event::Seen { node, claim, is_new } => {
                let is_urgent = self.nodes.see(now, node, claim, is_new);
                return is_urgent.then_some(Effect::Wake).into_iter().collect();
            }
            Event::Gone { name, uid } => {
                self.nodes.forget(&name, &uid);
                self.written.remove(&name);
                self.planned.remove(&name);
                self.last.forget(&name);
                return vec![Effect::Forget(name)];
            }
            Event::Pass(sight) => return self.begin_pass(sight, now),
            Event::Due { most_lookups, lists, seed } => {
                return self.due(now, (most_lookups, lists, seed));
            }
            Event::LookedUp { name, uid, is_witness, result } => {
                self.looked_up(now, (name, uid), is_witness, result);
            }
            Event::Listed(list) => self.listed(now, list),
            Event::Answered => return self.heartbeats(),
            Event::Beat { name, shown } => self.beat(&name, shown),
            Event::Decide { sight, unlisted } => return self.decide(now, sight, &unlisted),
            Event::Written { action, answer } => return self.written(now, action, answer),
            Event::Ended => return self.end_pass(now),
        }
        Vec::new()
    }
}

impl Machine {
    /// Creates a machine that knows nothing.
    pub fn new(parameters: Parameters, observes: bool) -> Self {
        Self {
            parameters,
            observes,
            approval: None,
            nodes: Nodes::default(),
            decider: Decider::default(),
            backlog: Backlog::default(),
            written: BTreeMap::new(),
            planned: BTreeSet::new(),
            asked: None,
            has_failed: false,
            shown: None,
            last: Last::default(),
        }
    }

    /// Returns the settings that it uses.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Returns all nodes, and the claims of the provider to them as far as they are known.
    pub fn claims(&self) -> Vec<(Arc<Node>, Option<Claim>)> {
        self.nodes.iter().map(|(node, claim)| (Arc::clone(node), claim)).collect()
    }

    /// Returns all nodes, to compare a list with them, and the number of the last arrival of a
    /// node.
    pub fn compared(&self) -> (Vec<Arc<Node>>, u64) {
        let nodes = self.nodes.iter().map(|(node, _)| Arc::clone(node));
        (nodes.collect(), self.nodes.arrivals())
    }

    /// Returns the nodes that the settings select, and what the last list has shown. The selector
    /// excludes the nodes of another cloud controller on purpose.
    pub fn survey(&self) -> (Vec<Arc<Node>>, Option<ShownFleet>) {
        let nodes = self.nodes.iter().map(|(node, _)| node);
        let selected = nodes.filter(|node| self.parameters.node_selector.matches(node));
        (selected.map(Arc::clone).collect(), self.shown)
    }

    /// Returns the memory in numbers.
    pub fn gauges(&self, now: At) -> Gauges {
        let views = self.views(now);
        let count = |test: fn(&NodeView) -> bool| views.iter().filter(|view| test(view)).count();
        let is_shown = |view: &&NodeView| {
            let node = self.nodes.get(&view.name);
            node.is_some_and(|node| node.taint(shutdown::KEY).is_some())
        };
        Gauges {
            is_open: self.decider.breaker().is_open(),
            budget: self.decider.budget(now, &views, &self.parameters.policy),
            counts: self.decider.counts(),
            undecided: self.backlog.size(now),
            oldest_case: self.decider.oldest_case(now),
            ready: count(|view| view.ready),
            foreign: count(|view| view.claim == Claim::Foreign),
            not_selected: count(|view| !view.selected),
            marked: count(|view| view.marked),
            shutdown: views.iter().filter(is_shown).count(),
        }
    }
}

#[cfg(test)]
mod tests;
