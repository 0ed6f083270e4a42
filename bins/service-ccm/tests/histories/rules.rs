//! What must hold in each history.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use ccm_sim::cloud::balancers::SimBalancer;
use serde_json::Value;
use tokio::time::Instant;

use crate::{claims::Claims, wanted::is_selected, watched::is_protected, world::World};

/// The window of the brake.
const WINDOW: Duration = Duration::from_hours(6);
/// How many members leave within it without a mark: at least 3.
const LOSS: usize = 3;
/// How late what a process does may be left to the next one.
const HANDOVER: Duration = Duration::from_secs(4);

/// What holds in each history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rule {
    /// Load balancers of others are not touched, and no call names one.
    Foreign,
    /// A Service of a class that is not served stays as it is, and no call is about it.
    OtherClass,
    /// No load balancer loses its last member.
    LastMember,
    /// No load balancer loses more members in a window than the brake allows.
    Loss,
    /// No load balancer loses more than half of its members in a window because nodes vanish.
    Floor,
    /// A load balancer is made only for a Service with the finalizer.
    Protected,
    /// The finalizer stays while there is a load balancer.
    Released,
    /// Of two load balancers of one Service the one that clients use stays.
    Address,
    /// In the end each Service has what it asks for.
    Converges,
    /// In the end all load balancers without a Service are reported.
    Reported,
    /// The writes of another controller to its Services stay.
    Neighbours,
    /// The address in the status of a Service belongs to its load balancer.
    Shown,
    /// A condition is true now, or was true at the last list.
    Claims,
    /// An event is true.
    Events,
    /// In the end the metrics are right.
    Metrics,
    /// When everything has converged, the program only lists and looks, and does not write.
    Quiet,
    /// If a node comes or goes while nothing else happens, all load balancers follow soon.
    Leaves,
}

/// The broken rules of a history.
pub(crate) type Broken = ccm_tests::variants::Broken<Rule>;

pub(crate) struct Rules {
    /// The load balancers of others.
    foreign: Vec<SimBalancer>,
    /// What the program could write to the Service of another class.
    other_class: Value,
    /// The load balancers whose Service had the finalizer at the last look.
    protected: BTreeSet<String>,
    members: BTreeMap<String, BTreeSet<String>>,
    /// Members that are away and left without a mark, by load balancer, and when they left.
    lost: BTreeMap<String, BTreeMap<String, Instant>>,
    /// The same with those whose nodes were cordoned.
    vanished: BTreeMap<String, BTreeMap<String, Instant>>,
    /// The load balancers that a person has changed: the program counts members that may be gone.
    touched: BTreeSet<String>,
    /// The nodes as they were seen last.
    nodes: BTreeMap<String, Value>,
    /// Nodes that have been marked at some time.
    marked: BTreeSet<String>,
    /// Nodes that have been cordoned at some time.
    cordoned: BTreeSet<String>,
    claims: Claims,
    /// The end of the time in which two processes may have led at once, each with its own budget.
    two_lead: Option<Instant>,
    broken: Broken,
}

impl Rules {
    pub(crate) fn new(world: &World) -> Self {
        Self {
            foreign: world.foreign(),
            other_class: world.other_class(),
            protected: BTreeSet::new(),
            members: BTreeMap::new(),
            lost: BTreeMap::new(),
            vanished: BTreeMap::new(),
            touched: BTreeSet::new(),
            nodes: BTreeMap::new(),
            marked: BTreeSet::new(),
            cordoned: BTreeSet::new(),
            claims: Claims::default(),
            two_lead: None,
            broken: world.broken.clone(),
        }
    }

    /// A node was marked for scale-down: it may leave at once, also if it has just come back.
    pub(crate) fn marked(&mut self, node: &str) {
        self.marked.insert(node.to_owned());
        for lost in self.lost.values_mut().chain(self.vanished.values_mut()) {
            lost.remove(node);
        }
    }

    /// A node was cordoned: it may leave without a budget, also if it has just come back.
    pub(crate) fn cordoned(&mut self, node: &str) {
        self.cordoned.insert(node.to_owned());
        for lost in self.lost.values_mut() {
            lost.remove(node);
        }
    }

    /// A person changed this load balancer.
    pub(crate) fn touched(&mut self, id: &str) {
        self.members.remove(id);
        self.touched.insert(id.to_owned());
    }

    /// Another process leads. Of what happened at last it knows nothing.
    pub(crate) fn restarted(&mut self) {
        let now = Instant::now();
        for lost in self.lost.values_mut().chain(self.vanished.values_mut()) {
            lost.retain(|_, at| *at + HANDOVER <= now);
        }
    }

    /// Records that two processes lead now.
    pub(crate) fn two_lead(&mut self) {
        self.two_lead = Some(Instant::now() + WINDOW + WINDOW);
    }

    /// Looks at the cloud and at the Services.
    pub(crate) fn look(&mut self, world: &World) {
        if world.foreign() != self.foreign {
            self.broken.add(Rule::Foreign, "a load balancer of others was touched".to_owned());
        }
        if world.other_class() != self.other_class {
            self.broken.add(Rule::OtherClass, "a Service of another class was changed".to_owned());
        }
        self.look_at_finalizers(world);
        self.look_at_members(world);
        self.claims.look(world);
    }

    fn look_at_finalizers(&mut self, world: &World) {
        let services = world.list("services");
        let with_finalizer: BTreeSet<&str> = services
            .iter()
            .filter(|service| is_protected(service))
            .filter_map(|service| service["metadata"]["uid"].as_str())
            .collect();
        let mut protected = BTreeSet::new();
        for balancer in world.ours() {
            if balancer.owners.iter().all(|owner| with_finalizer.contains(&*owner.uid)) {
                protected.insert(balancer.id);
            } else if self.protected.contains(&balancer.id)
                && !balancer.owners.iter().any(|one| world.persons.have_released(&one.uid))
            {
                let how = format!("{} is left, and its Service has no finalizer", balancer.id);
                self.broken.add(Rule::Released, how);
            }
        }
        self.protected = protected;
    }

    fn look_at_members(&mut self, world: &World) {
        let now = Instant::now();
        for node in world.list("nodes").iter() {
            let name = node["metadata"]["name"].as_str().unwrap_or_default();
            self.nodes.insert(name.to_owned(), node.clone());
        }
        let mut seen = BTreeMap::new();
        for balancer in world.ours() {
            let members: BTreeSet<String> =
                balancer.member_names().into_iter().map(str::to_owned).collect();
            if let Some(before) = self.members.remove(&balancer.id) {
                if !before.is_empty() && members.is_empty() {
                    let how = format!("{} has lost its last member", balancer.id);
                    self.broken.add(Rule::LastMember, how);
                }
                let is_meant = |one: &&String| {
                    let node = self.nodes.get(*one);
                    let is_selected = node.is_none_or(|node| is_selected(world, &balancer, node));
                    self.marked.contains(*one) || !is_selected
                };
                let (meant, gone): (Vec<_>, Vec<_>) =
                    before.difference(&members).partition(is_meant);
                let (is_new, stay) = (!gone.is_empty(), members.len() + meant.len());
                let lost = self.lost.entry(balancer.id.clone()).or_default();
                let vanished = self.vanished.entry(balancer.id.clone()).or_default();
                let charged = gone.iter().filter(|one| !self.cordoned.contains(**one));
                lost.extend(charged.map(|one| ((*one).clone(), now)));
                vanished.extend(gone.into_iter().map(|one| (one.clone(), now)));
                for gone in [&mut *lost, &mut *vanished] {
                    let joined = |one: &&String| !gone.contains_key(*one);
                    let joined = members.difference(&before).filter(joined).count();
                    gone.retain(|one, at| !members.contains(one) && *at + WINDOW > now);
                    for _ in 0..joined {
                        let first = gone.iter().min_by_key(|(_, at)| **at);
                        let Some(first) = first.map(|(one, _)| one.clone()) else { break };
                        gone.remove(&first);
                    }
                }
                let may_be_more = self.two_lead.is_some_and(|until| now < until);
                if lost.len() > LOSS && !may_be_more {
                    let how = format!("{} lost {} members in a window", balancer.id, lost.len());
                    self.broken.add(Rule::Loss, how);
                }
                let is_certain = !may_be_more && !self.touched.contains(&balancer.id);
                if is_new && vanished.len() > stay && is_certain {
                    let how = format!("{}: {} vanished, {stay} stay", balancer.id, vanished.len());
                    self.broken.add(Rule::Floor, how);
                }
            }
            seen.insert(balancer.id, members);
        }
        self.members = seen;
    }
}

/// Returns the load balancers without a Service that the controller does not report.
pub(crate) fn unreported(world: &World) -> Option<String> {
    let (count, reported) = orphans(world)?;
    (reported < count)
        .then(|| format!("{count} load balancers without a Service, {reported} reported"))
}

/// The same, and load balancers that the controller reports although they have a Service.
pub(crate) fn misreported(world: &World) -> Option<String> {
    let (count, reported) = orphans(world)?;
    (reported != count)
        .then(|| format!("{count} load balancers without a Service, {reported} reported"))
}

/// The number of load balancers without a Service, and the number that the controller reports. None
/// if the provider does not have lists.
fn orphans(world: &World) -> Option<(usize, usize)> {
    if !world.has_lists() {
        return None;
    }
    let services = world.list("services");
    // A Service of another type without the finalizer does not count.
    let has = services
        .iter()
        .filter(|service| is_protected(service) || service["spec"]["type"] == "LoadBalancer");
    let uids: BTreeSet<&str> =
        has.filter_map(|service| service["metadata"]["uid"].as_str()).collect();
    let all = world.ours();
    let owners = all.iter().flat_map(|balancer| &balancer.owners);
    let count = owners.filter(|owner| !uids.contains(&*owner.uid)).count();
    Some((count, world.metric("ccm_service_orphans ")))
}
