//! What must hold in each history.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use ccm_sim::cloud::balancers::SimBalancer;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::{
    watched::is_protected,
    world::{NODES, SERVICES, World},
};

/// The window of the brake.
const WINDOW: Duration = Duration::from_mins(10);
/// How many members leave within it without a mark: at least 3.
const LOSS: usize = 3;
/// How late what a process does may be left to the next one.
const HANDOVER: Duration = Duration::from_secs(4);
/// The longest time to converge: members that are held leave window by window.
const PATIENCE: Duration = Duration::from_hours(2);

/// What holds in each history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Load balancers of others are not touched, and no call names one.
    Foreign,
    /// A Service of a class that is not served stays as it is, and no call is about it.
    OtherClass,
    /// No load balancer loses its last member.
    LastMember,
    /// No load balancer loses more members in a window than the brake allows.
    Loss,
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
    /// Nodes that have been marked at some time.
    marked: BTreeSet<String>,
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
            marked: BTreeSet::new(),
            broken: world.broken.clone(),
        }
    }

    /// A node was marked for scale-down: it may leave at once, also if it has just come back.
    pub(crate) fn marked(&mut self, node: &str) {
        self.marked.insert(node.to_owned());
        for lost in self.lost.values_mut() {
            lost.remove(node);
        }
    }

    /// A person changed this load balancer.
    pub(crate) fn touched(&mut self, id: &str) {
        self.members.remove(id);
    }

    /// Another process leads. Of what happened at last it knows nothing.
    pub(crate) fn restarted(&mut self) {
        let now = Instant::now();
        for lost in self.lost.values_mut() {
            lost.retain(|_, at| *at + HANDOVER <= now);
        }
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
    }

    fn look_at_finalizers(&mut self, world: &World) {
        let services = world.api.list("services");
        let with_finalizer: BTreeSet<&str> = services
            .iter()
            .filter(|service| is_protected(service))
            .filter_map(|service| service["metadata"]["uid"].as_str())
            .collect();
        let mut protected = BTreeSet::new();
        for balancer in world.ours() {
            if balancer.owners.iter().all(|owner| with_finalizer.contains(&*owner.uid)) {
                protected.insert(balancer.id);
            } else if self.protected.contains(&balancer.id) {
                let how = format!("{} is left, and its Service has no finalizer", balancer.id);
                self.broken.add(Rule::Released, how);
            }
        }
        self.protected = protected;
    }

    fn look_at_members(&mut self, world: &World) {
        let now = Instant::now();
        let mut seen = BTreeMap::new();
        for balancer in world.ours() {
            let members: BTreeSet<String> =
                balancer.member_names().into_iter().map(str::to_owned).collect();
            if let Some(before) = self.members.remove(&balancer.id) {
                if !before.is_empty() && members.is_empty() {
                    let how = format!("{} has lost its last member", balancer.id);
                    self.broken.add(Rule::LastMember, how);
                }
                let gone = before.difference(&members).filter(|one| !self.marked.contains(*one));
                let lost = self.lost.entry(balancer.id.clone()).or_default();
                lost.extend(gone.map(|one| (one.clone(), now)));
                lost.retain(|one, at| !members.contains(one) && *at + WINDOW > now);
                if lost.len() > LOSS {
                    let how = format!("{} lost {} members in a window", balancer.id, lost.len());
                    self.broken.add(Rule::Loss, how);
                }
            }
            seen.insert(balancer.id, members);
        }
        self.members = seen;
    }

    /// Waits until everything is as it should be.
    pub(crate) async fn converge(&mut self, world: &World) {
        for number in 0..NODES {
            world.add_node(number);
        }
        let end = Instant::now() + PATIENCE;
        loop {
            let wrong: Vec<String> =
                (0..SERVICES).filter_map(|number| wrong(world, number)).collect();
            let orphans = orphans(world);
            if wrong.is_empty() && orphans.is_none() {
                return;
            }
            if Instant::now() > end {
                for how in wrong {
                    self.broken.add(Rule::Converges, how);
                }
                if let Some(how) = orphans {
                    self.broken.add(Rule::Reported, how);
                }
                return;
            }
            sleep(Duration::from_secs(10)).await;
        }
    }
}

/// What is wrong with a Service in the end.
fn wrong(world: &World, number: usize) -> Option<String> {
    let key = World::service_key(number);
    let service = world.service(number)?;
    let metadata = &service["metadata"];
    let uid = metadata["uid"].as_str().unwrap();
    let found = world.balancers_of(uid);
    if !metadata["deletionTimestamp"].is_null() {
        return Some(format!("{key} is still being deleted: {}", metadata["finalizers"]));
    }
    if service["spec"]["type"] != "LoadBalancer" {
        let is_clean = found.is_empty() && metadata["finalizers"].is_null();
        return (!is_clean).then(|| format!("{key} is not cleaned up: {} left", found.len()));
    }
    let ranges = &metadata["annotations"]["service.beta.kubernetes.io/load-balancer-source-ranges"];
    if ranges == "nonsense" {
        // It keeps what it has; its members follow.
        return (found.len() > 1).then(|| format!("{key} has {} load balancers", found.len()));
    }
    let conditions = &service["status"]["conditions"];
    if found.is_empty() && conditions.to_string().contains("WaitingForAdoption") {
        return None;
    }
    let [balancer] = found.as_slice() else {
        return Some(format!("{key} has {} load balancers; {}", found.len(), service["status"]));
    };
    let wanted: usize = usize::from(!ranges.is_null());
    if balancer.configuration.source_ranges.len() != wanted {
        return Some(format!("{key}: {:?}", balancer.configuration.source_ranges));
    }
    let members = balancer.members.len();
    let eligible = eligible(world);
    if members != eligible {
        return Some(format!(
            "{key}: {members} members, {eligible} nodes; {:?}; {} {}",
            balancer.state, service["status"], service["metadata"]["annotations"]
        ));
    }
    let shown = &service["status"]["loadBalancer"]["ingress"][0]["ip"];
    shown.is_null().then(|| format!("{key} shows no address: {}", service["status"]))
}

fn eligible(world: &World) -> usize {
    let nodes = world.api.list("nodes");
    let marked = |node: &&Value| {
        node["spec"]["taints"].to_string().contains("ToBeDeletedByClusterAutoscaler")
    };
    nodes.iter().filter(|node| !marked(node)).count()
}

/// Load balancers without a Service that the controller does not report.
fn orphans(world: &World) -> Option<String> {
    let uids: BTreeSet<String> = world
        .api
        .list("services")
        .iter()
        .filter_map(|service| service["metadata"]["uid"].as_str().map(str::to_owned))
        .collect();
    let all = world.ours();
    let owners = all.iter().flat_map(|balancer| &balancer.owners);
    let count = owners.filter(|owner| !uids.contains(&owner.uid)).count();
    let reported: usize = world.metric("ccm_service_orphans ");
    (reported < count)
        .then(|| format!("{count} load balancers without a Service, {reported} reported"))
}
