//! The true state: machines with lifetimes, and nodes whose readiness lags behind them.
//! Everything is a function of time, in milliseconds. Time starts at [`START`], so that some
//! nodes are older than the process.

use std::{fmt, sync::Arc, time::Duration};

use ccm_cloud::{Claim, ProofMethod};
use lifecycle_ccm::policy::{Heartbeat, NodeView};

use super::Variant;
use crate::dice::Dice;

/// Start of the first leader.
pub const START: u64 = 10_000_000;
/// The time between two renewals of a kubelet's Lease.
const RENEWAL: u64 = 10_000;

/// The kind of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It has a provider ID of ours.
    Ours,
    /// It never got a provider ID and is uninitialised.
    Ghost,
    /// It never got a provider ID, and somebody else has initialised it.
    Initialised,
    /// It has the provider ID of another provider.
    Foreign,
    /// The node selector excludes it.
    Unselected,
    /// It has a provider ID of ours, and the provider answers that it is not responsible for it.
    Stranger,
}

/// A node object and its machine.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its name.
    pub name: Arc<str>,
    /// Its UID, which also names its machine.
    pub uid: Box<str>,
    /// Its kind.
    pub kind: Kind,
    /// Start of the machine, a little before the node registers.
    pub born: u64,
    /// Registration of the node.
    pub created: u64,
    /// End of the machine.
    pub died: u64,
    /// Deletion of the node object by the operator, who replaces it.
    pub removed: u64,
    /// The time until which the informer shows it after its deletion.
    pub shown_until: u64,
    ready_from: u64,
    ready_until: u64,
    outages: Vec<(u64, u64)>,
    /// When its kubelet does not renew its Lease although the machine runs.
    silences: Vec<(u64, u64)>,
    /// When another machine takes the node over.
    taken_over: u64,
    marked_from: u64,
    protected: (u64, u64),
    /// From when somebody else deletes the node object, whose finalizer stays.
    leaving_from: u64,
    approved_from: u64,
    /// The span in which no cloud API shows the running machine; shorter than the
    /// confirmation period.
    pub blink: (u64, u64),
    /// The span in which the cloud searches for the running machine by something that does not prove anything about
    /// this node, and its list lacks the machine.
    misnamed: ((u64, u64), ProofMethod),
}

impl Node {
    /// Returns true if its machine exists.
    pub fn lives(&self, at: u64) -> bool {
        self.born <= at && at < self.died
    }

    /// Returns true if the node object exists.
    pub fn registered(&self, at: u64) -> bool {
        self.created <= at && at < self.removed
    }

    /// Returns true if it is Ready.
    pub fn ready(&self, at: u64) -> bool {
        let is_up = self.ready_from <= at && at < self.ready_until;
        (is_up || self.is_replaced(at)) && !self.outages.iter().any(|o| within(*o, at))
    }

    /// Returns true if it runs on another machine.
    pub fn is_replaced(&self, at: u64) -> bool {
        self.taken_over <= at
    }

    /// Returns true if an autoscaler removes it.
    pub fn marked(&self, at: u64) -> bool {
        self.marked_from <= at
    }

    /// Returns true if a kubelet renews its Lease.
    pub fn kubelet_runs(&self, at: u64) -> bool {
        let runs = self.lives(at) || self.is_replaced(at);
        runs && !self.silences.iter().any(|silence| within(*silence, at))
    }

    /// Returns the last renewal of its Lease.
    pub fn heartbeat(&self, at: u64) -> Heartbeat {
        let mut renewal = at - at % RENEWAL;
        while renewal > self.born && !self.kubelet_runs(renewal) {
            renewal -= RENEWAL;
        }
        Heartbeat(renewal.to_string())
    }

    /// Returns the method by which the cloud denies the running machine, if it does not look for
    /// the machine of this node.
    pub fn misnamed(&self, at: u64) -> Option<ProofMethod> {
        let (span, method) = self.misnamed;
        (self.lives(at) && within(span, at)).then_some(method)
    }

    /// Returns true if it has a provider ID.
    pub fn has_id(&self) -> bool {
        !matches!(self.kind, Kind::Ghost | Kind::Initialised)
    }

    /// Returns true if the node selector selects it.
    pub fn selected(&self) -> bool {
        self.kind != Kind::Unselected
    }

    /// Returns true if it does not belong to another provider and the node selector selects it.
    pub fn in_reach(&self) -> bool {
        self.selected() && self.kind != Kind::Foreign
    }

    /// Returns true if the operator protects it.
    pub fn protected(&self, at: u64) -> bool {
        within(self.protected, at)
    }

    /// Returns true if the operator approved its deletion, which happens only after the machine is
    /// gone.
    pub fn approved(&self, at: u64) -> bool {
        self.approved_from <= at
    }

    /// Returns true if another client deletes it.
    pub fn leaving(&self, at: u64) -> bool {
        self.leaving_from <= at
    }

    /// Returns the node as the controller sees it.
    pub fn view(&self, at: u64) -> NodeView {
        NodeView {
            name: Arc::clone(&self.name),
            uid: self.uid.clone(),
            claim: match self.kind {
                Kind::Foreign => Claim::Foreign,
                Kind::Ghost | Kind::Initialised => Claim::Unclaimed,
                Kind::Ours | Kind::Unselected | Kind::Stranger => Claim::Ours,
            },
            has_id: self.has_id(),
            selected: self.selected(),
            ready: self.ready(at),
            deleting: self.leaving(at),
            uninitialised: self.kind == Kind::Ghost,
            age: Duration::from_millis(at.saturating_sub(self.created)),
            protected: self.protected(at),
            approved: self.approved(at),
            marked: self.marked(at),
            replaced: self.is_replaced(at),
        }
    }

    fn changes(&self) -> impl Iterator<Item = u64> + '_ {
        let outages = self.outages.iter().flat_map(|(from, to)| [*from, *to]);
        let others = [self.taken_over, self.marked_from, self.leaving_from]
            .into_iter()
            .filter(|at| *at < u64::MAX);
        let own = [self.created, self.removed, self.ready_from, self.ready_until];
        own.into_iter().chain(others).chain(outages)
    }
}

/// Formats it in one line, without events that never happen.
impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?} created {}", self.uid, self.kind, self.created)?;
        for (what, at) in [
            ("died", self.died),
            ("removed", self.removed),
            ("taken over", self.taken_over),
            ("marked", self.marked_from),
            ("approved", self.approved_from),
            ("leaving", self.leaving_from),
        ] {
            if at < u64::MAX {
                write!(f, ", {what} {at}")?;
            }
        }
        let spans = |f: &mut fmt::Formatter<'_>, what: &str, spans: &[(u64, u64)]| {
            spans
                .iter()
                .filter(|(from, to)| from < to)
                .try_for_each(|(from, to)| write!(f, ", {what} {from}..{to}"))
        };
        spans(f, "ready", &[(self.ready_from, self.ready_until)])?;
        spans(f, "not ready", &self.outages)?;
        spans(f, "silent", &self.silences)?;
        spans(f, "protected", &[self.protected])?;
        spans(f, "misnamed", &[self.misnamed.0])?;
        spans(f, "invisible", &[self.blink])
    }
}

/// Returns true if `at` is in `span`.
pub fn within(span: (u64, u64), at: u64) -> bool {
    span.0 <= at && at < span.1
}

/// All nodes of one history.
#[derive(Clone, Debug)]
pub struct World {
    /// The nodes.
    pub nodes: Vec<Node>,
    /// End of the history.
    pub end: u64,
    /// The times of changes that wake the controller, sorted.
    pub changes: Vec<u64>,
    /// When the provider learns its own schemes of provider IDs.
    pub schemes_from: u64,
}

impl World {
    /// Returns true if a machine is invisible within a minute and a half of `at`: two consecutive
    /// lies of different causes look like one long lie.
    pub fn blinks_near(&self, at: u64) -> bool {
        let near = 90_000;
        self.nodes
            .iter()
            .any(|node| within((node.blink.0.saturating_sub(near), node.blink.1 + near), at))
    }

    /// Returns a world in which a running machine is invisible for less than this time.
    pub fn draw(dice: &mut Dice, variant: Variant, confirmation: Duration) -> Self {
        let minutes = if dice.percent(2) { 60 } else { dice.within(3, 12) };
        let end = START + minutes * 60_000;
        let confirmation = u64::try_from(confirmation.as_millis()).unwrap_or(u64::MAX);
        let common = if dice.percent(30) { span(dice, end, 120_000) } else { (0, 0) };
        let all_are_silent = dice.percent(50);
        let mut nodes = Vec::new();
        for slot in 0..dice.within(1, 9) {
            let created = if dice.percent(75) {
                START - dice.within(0, 900_000)
            } else {
                dice.within(START, end)
            };
            let mut node = draw_node(dice, &format!("n{slot}"), 0, created, end, confirmation);
            node.outages.push(common);
            if all_are_silent {
                node.silences.push(common);
            }
            if dice.percent(30) && node.died < end {
                let again = node.died + dice.within(1_000, 200_000);
                node.removed = again;
                node.taken_over = u64::MAX;
                nodes.push(draw_node(dice, &format!("n{slot}"), 1, again, end, confirmation));
            }
            nodes.push(node);
        }
        if variant == Variant::Living {
            for node in &mut nodes {
                node.silences.clear();
            }
        }
        let mut changes: Vec<u64> =
            nodes.iter().flat_map(Node::changes).filter(|at| *at > START).collect();
        changes.sort_unstable();
        let schemes_from = if dice.percent(30) { START + dice.within(0, 120_000) } else { 0 };
        Self { nodes, end, changes, schemes_from }
    }

    /// Deletes a node, and registers another machine under its name at once.
    pub fn register_again(&mut self, dice: &mut Dice, name: &str, now: u64) {
        let is_it = |node: &&mut Node| *node.name == *name && node.registered(now);
        let (life, latest) = self
            .nodes
            .iter()
            .filter(|node| *node.name == *name)
            .fold((0, 0), |(life, latest), node| (life + 1, node.created.max(latest)));
        let Some(last) = self.nodes.iter_mut().find(is_it).filter(|_| latest <= now) else {
            return;
        };
        (last.removed, last.shown_until) = (now, now);
        let mut node = draw_node(dice, name, life, now, self.end, 0);
        node.kind = dice.one_of(&[node.kind, Kind::Ghost, Kind::Foreign]);
        if node.kind != Kind::Ours {
            (node.taken_over, node.marked_from) = (u64::MAX, u64::MAX);
        }
        node.misnamed = misnamed(dice, node.kind, self.end);
        self.changes.extend(node.changes().filter(|at| *at > START));
        self.changes.sort_unstable();
        self.nodes.push(node);
    }
}

fn span(dice: &mut Dice, end: u64, longest: u64) -> (u64, u64) {
    let from = dice.within(START, end);
    (from, from + dice.within(1_000, longest))
}

fn draw_node(
    dice: &mut Dice,
    name: &str,
    life: u64,
    created: u64,
    end: u64,
    confirmation: u64,
) -> Node {
    let kind = match dice.within(0, 100) {
        0..=74 => Kind::Ours,
        75..=86 => Kind::Ghost,
        87..=91 => Kind::Foreign,
        92..=94 => Kind::Stranger,
        95..=96 => Kind::Initialised,
        _ => Kind::Unselected,
    };
    let born = created - dice.within(0, 5_000);
    let died = if dice.percent(45) && kind != Kind::Stranger {
        dice.within(created.max(START), end.max(created + 1))
    } else {
        u64::MAX
    };
    let outages: Vec<_> = (0..dice.within(0, 3)).map(|_| span(dice, end, 200_000)).collect();
    let silences = outages.iter().copied().filter(|_| dice.percent(50)).collect();
    let is_ours = kind == Kind::Ours;
    let mut later = |percent, time: u64, most| {
        let happens = is_ours && time < u64::MAX && dice.percent(percent);
        if happens { time + dice.within(0, most) } else { u64::MAX }
    };
    let (taken_over, marked_from) = (later(10, died, 120_000), later(15, created, 600_000));
    let never = (0, 0);
    let blink = if dice.percent(40) {
        let from = dice.within(START, end);
        (from, from + dice.within(confirmation / 2, confirmation))
    } else {
        never
    };
    Node {
        name: name.into(),
        uid: format!("{name}-{life}").into(),
        kind,
        born,
        created,
        died,
        removed: u64::MAX,
        shown_until: 0,
        ready_from: created + dice.within(0, 150_000),
        ready_until: died.saturating_add(dice.within(0, 50_000)),
        outages,
        silences,
        taken_over,
        marked_from,
        leaving_from: if dice.percent(5) { dice.within(START, end) } else { u64::MAX },
        protected: if dice.percent(10) { span(dice, end, 600_000) } else { never },
        approved_from: if dice.percent(20) {
            died.saturating_add(dice.within(0, 60_000))
        } else {
            u64::MAX
        },
        blink,
        misnamed: misnamed(dice, kind, end),
    }
}

/// Only the ID proves something about a node that has an ID. The owner does not prove anything.
fn misnamed(dice: &mut Dice, kind: Kind, end: u64) -> ((u64, u64), ProofMethod) {
    let methods: &[ProofMethod] = match kind {
        Kind::Ghost | Kind::Initialised => &[ProofMethod::ByOwner, ProofMethod::ProvidersWord],
        _ => &[ProofMethod::ByName, ProofMethod::BySystemUuid, ProofMethod::ByOwner],
    };
    let when = if dice.percent(15) { span(dice, end, 400_000) } else { (0, 0) };
    (when, dice.one_of(methods))
}
