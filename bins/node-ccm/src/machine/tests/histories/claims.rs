//! The rules about what the machine says: reports, metrics and explanations must agree with the nodes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use ccm_base::At;
use ccm_cloud::{Instance, Lookup, LookupResult, NodeAddress};
use ccm_controller::queue::Priority;
use ccm_objects::{Node, Shared as Name, node_keys::ZONE};

use super::{
    super::super::*,
    cloud::{RACK, WAVE},
    world::World,
};
use crate::plan::{Field, Note, Plan, TAINTS, addresses, text};

/// A node counts as initialised so often at most while another client sets its taint again.
const INITIALISED: usize = 2;
/// The time after which a write counts as accepted, less the time that it may take.
const ACCEPTED: Duration = Duration::from_mins(9);

/// The event that the machine hears.
pub(super) enum Heard {
    /// A worker has this node and its instance.
    Work {
        node: Arc<Node>,
        instance: Option<Instance>,
    },
    /// The API server has stored the node like this.
    Written {
        stored: Arc<Node>,
    },
    /// The node is compared. The store may have a later one.
    Compare {
        node: Arc<Node>,
        is_now: bool,
        instance: Option<Instance>,
    },
    /// A node has got the taint again.
    Tainted(Name),
    Other,
}

impl Heard {
    pub(super) fn work(node: &Arc<Node>, answer: &LookupResult) -> Self {
        let instance = match answer {
            Ok(Lookup::Found(instance)) => Some(Instance::clone(instance)),
            _ => None,
        };
        Self::Work { node: Arc::clone(node), instance }
    }
}

/// The claims of one leader.
#[derive(Default)]
pub(super) struct Claims {
    /// How many nodes are in each state, by the metric.
    counts: BTreeMap<String, i64>,
    is_open: bool,
    /// When nodes counted as initialised, by UID.
    initialised: BTreeMap<String, Vec<At>>,
    /// The instances with which nodes agreed when they were last compared, by UID.
    agreed: BTreeMap<String, Instance>,
    /// The topics of the notes about each node, by UID.
    pub(super) noted: BTreeMap<String, BTreeSet<&'static str>>,
    /// The nodes about which the user was told that another client writes them.
    pub(super) contested: BTreeSet<String>,
    is_urgent: bool,
}

impl Claims {
    pub(super) fn hear(&mut self, effect: &Effect, heard: &Heard, now: At) {
        match effect {
            Effect::Counts(state, by) => {
                *self.counts.entry(format!("{state:?}")).or_default() += by;
            }
            Effect::BreakerOpens(_) => {
                assert!(!std::mem::replace(&mut self.is_open, true), "Brake: it was open");
            }
            Effect::BreakerCloses => {
                assert!(std::mem::take(&mut self.is_open), "Brake: was closed");
            }
            Effect::Publish(node, plan, Some(_)) => self.may_pause(node, plan, heard),
            Effect::Report(node, report) => self.reported(node, report, heard, now),
            Effect::Queue(_, Queued::Add(Priority::Urgent)) => self.is_urgent = true,
            _ => {}
        }
    }

    /// Checks that the brake is asked about Ready nodes only, and not about what another client has
    /// changed.
    fn may_pause(&self, node: &Node, plan: &Plan, heard: &Heard) {
        let is_guarded = node.is_ready() && !node.is_uninitialised();
        assert!(is_guarded, "Guarded: {node:?} waits for the brake");
        let Heard::Work { instance: Some(instance), .. } = heard else { return };
        let Some(agreed) = self.agreed.get(&*node.uid) else { return };
        let is_same = |field: Field| match field.is_address() {
            true => agreed.addresses == instance.addresses,
            false => agreed.zone == instance.zone,
        };
        let wrong = plan.changes().find(|(field, _)| is_same(*field));
        assert!(wrong.is_none(), "Restored: the cloud says the same as before: {wrong:?}");
    }

    fn reported(&mut self, node: &Arc<Node>, report: &Report, heard: &Heard, now: At) {
        match (report, heard) {
            (Report::Untainted | Report::Initialised, Heard::Written { stored }) => {
                assert!(!stored.is_uninitialised(), "Counted: {stored:?} has its taint");
                if matches!(report, Report::Untainted) {
                    let times = self.initialised.entry(node.uid.to_string()).or_default();
                    times.push(now);
                    times.retain(|at| now.since(*at) < ACCEPTED);
                    assert!(times.len() <= INITIALISED, "Counted: {node:?} at {times:?}");
                }
            }
            (Report::Made(change), Heard::Written { stored }) => was_made(change, stored),
            (Report::Stored(_, step), Heard::Written { stored }) => {
                let again = super::outside::changed(stored, step, |_| false);
                let is_stored =
                    again.taints == stored.taints && again.addresses == stored.addresses;
                assert!(is_stored, "Counted: {step:?} is not stored: {stored:?}");
            }
            (Report::Notes(plan), _) => {
                let topics = plan.notes.iter().map(|note| note.event().0);
                self.noted.entry(node.uid.to_string()).or_default().extend(topics);
            }
            (Report::Repeated(plan, repeated), _) => {
                self.contested.insert(node.uid.to_string());
                let says = text::repeated(node, plan, repeated);
                let is_there = match &*repeated.kind {
                    TAINTS => node.is_uninitialised(),
                    key => node.labels.contains_key(key),
                };
                let is_removed = says.contains(&format!("writer removes {}", repeated.kind));
                assert!(!(is_there && is_removed), "Words: {says:?}, of {node:?}");
            }
            _ => {}
        }
    }

    /// Checks that the metric agrees with the memory.
    pub(super) fn check(&self, machine: &Machine) {
        let mut known: BTreeMap<String, i64> = BTreeMap::new();
        for state in machine.entries.values().filter_map(|entry| entry.state) {
            *known.entry(format!("{state:?}")).or_default() += 1;
        }
        let mut counts = self.counts.clone();
        counts.retain(|_, count| *count != 0);
        assert_eq!(counts, known, "Metric");
    }

    /// Checks that the machine knows the cloud's answer about a node that agrees with its instance.
    /// The answer about other nodes may have changed.
    fn note(&mut self, heard: &Heard) {
        match heard {
            Heard::Compare { node, instance: Some(instance), .. } if shows(node, instance) => {
                self.agreed.insert(node.uid.to_string(), instance.clone());
            }
            Heard::Work { node, instance: Some(instance) } => {
                let uid = &*node.uid;
                let is_same = |one: &Instance| {
                    one.addresses == instance.addresses && one.zone == instance.zone
                };
                if self.agreed.get(uid).is_some_and(|one| !is_same(one)) {
                    self.agreed.remove(uid);
                }
            }
            Heard::Written { stored } => drop(self.agreed.remove(&*stored.uid)),
            _ => {}
        }
    }
}

/// Checks that a change that is reported is stored.
fn was_made(note: &Note, stored: &Node) {
    let Note::Changes { field, to: Some(to), .. } = note else { return };
    let is_shown = match field {
        Field::InternalIp => addresses::primary(&stored.addresses) == Some(&**to),
        Field::Zone => stored.labels.get(ZONE.1).is_some_and(|zone| **zone == **to),
        _ => true,
    };
    assert!(is_shown, "Made: {note:?} is not stored: {stored:?}");
}

/// Returns true if the node shows exactly the addresses and the zone of its instance.
fn shows(node: &Node, instance: &Instance) -> bool {
    let is_same = |(own, one): (&ccm_objects::Address, &NodeAddress)| {
        *own.kind == *one.kind.as_ref() && *own.address == *one.address
    };
    let addresses = node.addresses.iter().zip(&instance.addresses);
    let label = |key: &str| node.labels.get(key).map(|value| &**value);
    let wanted = |key: &str| instance.labels.get(key).map(|value| &**value);
    let zone = node.labels.get(ZONE.1).map(|zone| &**zone);
    node.addresses.len() == instance.addresses.len()
        && !node.addresses.is_empty()
        && addresses.into_iter().all(is_same)
        && instance.zone.is_some()
        && zone == instance.zone.as_deref()
        && [WAVE, RACK].iter().all(|key| label(key) == wanted(key))
}

impl World {
    /// Looks at what the event has led to.
    pub(super) fn after(&mut self, heard: &Heard, requests: &[Request]) {
        let is_urgent = std::mem::take(&mut self.claims.is_urgent);
        self.claims.note(heard);
        match heard {
            Heard::Tainted(name) => {
                let is_right = is_urgent || !self.machine.leads;
                assert!(is_right, "Urgent: {name} has got its taint again, and waits its turn");
            }
            Heard::Work { node, .. } if node.is_uninitialised() && requests.is_empty() => {
                let state = self.machine.state(&node.name);
                let is_over = matches!(
                    state,
                    Some(NodeState::Initialised | NodeState::InstanceGone | NodeState::Unconfirmed)
                );
                assert!(!is_over, "NodeState: {node:?} has its taint, and counts as {state:?}");
            }
            Heard::Compare { node, is_now: true, instance: Some(instance) }
                if shows(node, instance) && !node.is_uninitialised() =>
            {
                let told = self.told(node);
                let is_over = !told.cause.contains("refuses to write");
                assert!(is_over, "Over: the node agrees with its instance: {told:?}");
            }
            _ => {}
        }
    }
}
