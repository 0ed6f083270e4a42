//! The nodes of the world in the API server, and the processes that watch them.

use std::{collections::BTreeMap, sync::Arc};

use ccm_cloud::Claim;
use ccm_controller::machine::Machine as _;
use ccm_objects::{Condition, Node, Shared as Name, Taint, instance_gone, node_keys};
use jiff::Timestamp;
use lifecycle_ccm::{
    machine::{Effect, Event, Machine, Parameters},
    policy::{
        action::{APPROVED, PROTECTED},
        shutdown,
    },
};

use super::{
    at,
    trail::Trail,
    world::{self, Kind, World},
};

/// The taint of an autoscaler.
pub const LEAVES: &str = "example.com/leaves";
/// The label of nodes that are left out.
pub const LEFT_OUT: &str = "left-out";

/// The label with the UID of a node.
pub const UID: &str = "uid";

/// The API server.
#[derive(Default)]
pub struct Objects {
    /// The last version of each node, by its UID.
    nodes: BTreeMap<Box<str>, Arc<Node>>,
    /// The marks that writes have left on the nodes.
    pub marks: BTreeMap<Box<str>, Marks>,
    version: u64,
}

/// The marks that writes have left on a node.
#[derive(Clone, Default)]
pub struct Marks {
    /// The proof that its instance is gone.
    pub proof: Option<String>,
    /// True if its approval was removed.
    pub is_unapproved: bool,
    /// True if it has the shutdown taint.
    pub is_shut_down: bool,
    /// How often a client that has nothing to do with lifecycle-ccm has changed it.
    pub touched: u32,
}

/// Returns the time of the wall clock.
pub fn wall(now: u64) -> Timestamp {
    Timestamp::from_millisecond(now.try_into().unwrap_or_default()).unwrap_or_default()
}

fn taint(key: &str, effect: &str) -> Taint {
    Taint { key: key.into(), effect: effect.into(), ..Taint::default() }
}

/// Returns the claim of the provider, if it knows its own schemes.
pub fn claim(node: &Node, knows_schemes: bool) -> Option<Claim> {
    match node.provider_id.as_deref() {
        None => Some(Claim::Unclaimed),
        Some(_) if !knows_schemes => None,
        Some(id) if id.starts_with("sim:") => Some(Claim::Ours),
        Some(_) => Some(Claim::Foreign),
    }
}

/// Returns this node as if it had none of the marks that lifecycle-ccm removes.
pub fn unmarked(node: &Node) -> Arc<Node> {
    let mut node = node.clone();
    node.annotations.retain(|key, _| ![APPROVED, instance_gone::KEY].contains(&&**key));
    node.taints.retain(|taint| &*taint.key != shutdown::KEY);
    Arc::new(node)
}

impl Objects {
    /// Returns this node at this time.
    pub fn get(&mut self, node: &world::Node, now: u64) -> Arc<Node> {
        let mut object = self.read(node, now);
        let known = self.nodes.get(&node.uid);
        if let Some(known) = known.filter(|known| ***known == object) {
            return Arc::clone(known);
        }
        self.version += 1;
        object.resource_version = self.version.to_string().into();
        let object = Arc::new(object);
        self.nodes.insert(node.uid.clone(), Arc::clone(&object));
        object
    }

    fn read(&self, node: &world::Node, now: u64) -> Node {
        let marks = self.marks.get(&node.uid).cloned().unwrap_or_default();
        let scheme = if node.kind == Kind::Foreign { "other" } else { "sim" };
        let id = node.has_id().then(|| format!("{scheme}://{}", node.uid).into());
        let status = if node.ready(now) { "True" } else { "Unknown" };
        let ready =
            Condition { kind: "Ready".into(), status: status.into(), ..Condition::default() };
        let is_approved = node.approved(now) && !marks.is_unapproved;
        let annotations = [
            node.protected(now).then(|| (PROTECTED.into(), "true".into())),
            is_approved.then(|| (APPROVED.into(), "yes".into())),
            marks.proof.map(|proof| (instance_gone::KEY.into(), proof.into())),
            Some(("touched".into(), marks.touched.to_string().into())),
        ];
        let taints = [
            (node.kind == Kind::Ghost).then(|| taint(node_keys::UNINITIALIZED, "NoSchedule")),
            node.marked(now).then(|| taint(LEAVES, "NoSchedule")),
            marks.is_shut_down.then(|| taint(shutdown::KEY, shutdown::EFFECT)),
        ];
        let machine = if node.is_replaced(now) { "another" } else { &*node.uid };
        let is_left_out = node.kind == Kind::Unselected;
        let labels = [
            Some((UID.into(), node.uid.clone().into())),
            is_left_out.then(|| (LEFT_OUT.into(), "".into())),
        ];
        Node {
            name: Arc::clone(&node.name),
            uid: node.uid.clone(),
            created: Some(wall(node.created)),
            deleting: node.leaving(now),
            labels: labels.into_iter().flatten().collect(),
            annotations: annotations.into_iter().flatten().collect(),
            provider_id: id,
            taints: taints.into_iter().flatten().collect(),
            conditions: vec![ready],
            system_uuid: Some(machine.into()),
            ..Node::default()
        }
    }

    /// Returns the nodes as an informer shows them: one node of each name, and the end of a deleted
    /// one late.
    pub fn shown(&mut self, world: &World, now: u64) -> BTreeMap<Name, Arc<Node>> {
        let mut shown = BTreeMap::new();
        for node in &world.nodes {
            let is_late = now < node.shown_until && !shown.contains_key(&node.name);
            if node.registered(now) || is_late {
                shown.insert(Arc::clone(&node.name), self.get(node, now));
            }
        }
        shown
    }
}

/// A replica, which leads or stands by.
pub struct Process {
    /// Its machine.
    pub machine: Machine,
    /// Its store.
    pub store: BTreeMap<Name, Arc<Node>>,
    /// True after the first list.
    is_synced: bool,
    /// True if the machine wants a pass.
    pub is_woken: bool,
    /// The number of events.
    pub events: u64,
    /// The things that the process has shown and done.
    pub trail: Trail,
    schemes_from: u64,
}

impl Process {
    /// Creates a replica that has seen nothing.
    pub fn new(parameters: &Parameters, observes: bool, schemes_from: u64) -> Self {
        Self {
            machine: Machine::new(parameters.clone(), observes),
            store: BTreeMap::new(),
            is_synced: false,
            is_woken: false,
            events: 0,
            trail: Trail::default(),
            schemes_from,
        }
    }

    /// Returns the claim of the provider, as far as it knows its own schemes.
    pub fn claim(&self, node: &Node, now: u64) -> Option<Claim> {
        claim(node, self.schemes_from <= now)
    }

    /// Applies an event.
    pub fn tell(&mut self, now: u64, event: Event) -> Vec<Effect> {
        self.events += 1;
        let effects = self.machine.apply(event, at(now));
        self.trail.follow(now, &effects);
        self.is_woken |= effects.iter().any(|effect| matches!(effect, Effect::Wake));
        effects
    }

    /// Reports the differences between an informer and the store.
    pub fn watch(&mut self, now: u64, shown: &BTreeMap<Name, Arc<Node>>) {
        let gone = self
            .store
            .values()
            .filter(|known| shown.get(&known.name).is_none_or(|node| node.uid != known.uid));
        for node in gone.cloned().collect::<Vec<_>>() {
            self.store.remove(&node.name);
            let (name, uid) = (Arc::clone(&node.name), node.uid.clone());
            self.tell(now, Event::Gone { name, uid });
        }
        for (name, node) in shown {
            let known = self.store.insert(Arc::clone(name), Arc::clone(node));
            if known.as_ref() != Some(node) {
                let is_new = known.is_none() && self.is_synced;
                if is_new {
                    self.trail.appeared.insert(node.uid.clone(), now);
                }
                self.trail.saw(now, known.as_deref(), node);
                let claim = self.claim(node, now);
                self.tell(now, Event::Seen { node: Arc::clone(node), claim, is_new });
            }
        }
        self.is_synced = true;
    }

    /// Takes over the answer to a write into the store, unless the store has a later version.
    pub fn answered(&mut self, node: Option<&Arc<Node>>) {
        let Some(node) = node else { return };
        let known = self.store.get_mut(&node.name).filter(|known| node.is_later_than(known));
        if let Some(known) = known {
            *known = Arc::clone(node);
        }
    }

    /// The memory is a plain value: it is the same after it was text.
    pub fn remember(&mut self) {
        let text = serde_json::to_string(&self.machine).unwrap();
        self.machine = serde_json::from_str(&text).unwrap();
    }

    /// Returns true if the machine has the nodes of the store.
    pub fn is_current(&self) -> bool {
        let (nodes, _) = self.machine.compared();
        nodes.iter().eq(self.store.values())
    }
}
