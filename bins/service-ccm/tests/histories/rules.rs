//! What must hold in each history.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use ccm_sim::cloud::balancers::SimBalancer;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::world::{FOREIGN, NODES, SERVICES, World};

/// The window of the brake.
const WINDOW: Duration = Duration::from_mins(10);
/// How many members leave within it without a mark: at least 3.
const LOSS: usize = 3;
/// The longest time to converge: members that are held leave window by window.
const PATIENCE: Duration = Duration::from_hours(2);

pub(crate) struct Rules {
    foreign: SimBalancer,
    members: BTreeMap<String, BTreeSet<String>>,
    /// Members that are away and left without a mark, by load balancer, and when they left.
    lost: BTreeMap<String, BTreeMap<String, Instant>>,
    /// Nodes that have been marked at some time.
    marked: BTreeSet<String>,
    broken: Vec<String>,
}

impl Rules {
    pub(crate) fn new(world: &World) -> Self {
        Self {
            foreign: world.cloud.balancers().get(FOREIGN).unwrap(),
            members: BTreeMap::new(),
            lost: BTreeMap::new(),
            marked: BTreeSet::new(),
            broken: Vec::new(),
        }
    }

    pub(crate) fn broken(self) -> Vec<String> {
        self.broken
    }

    /// A node was marked for scale-down: it may leave at once.
    pub(crate) fn marked(&mut self, node: &str) {
        self.marked.insert(node.to_owned());
    }

    /// A person changed this load balancer.
    pub(crate) fn touched(&mut self, id: &str) {
        self.members.remove(id);
    }

    pub(crate) fn forget_losses(&mut self) {
        self.lost.clear();
    }

    fn breaks(&mut self, rule: String) {
        if !self.broken.contains(&rule) {
            self.broken.push(rule);
        }
    }

    /// Looks at the cloud.
    pub(crate) fn look(&mut self, world: &World) {
        if world.cloud.balancers().get(FOREIGN).as_ref() != Some(&self.foreign) {
            self.breaks("the foreign load balancer was touched".to_owned());
        }
        let now = Instant::now();
        let mut seen = BTreeMap::new();
        for balancer in world.cloud.balancers().all() {
            let members: BTreeSet<String> =
                balancer.member_names().into_iter().map(str::to_owned).collect();
            if let Some(before) = self.members.remove(&balancer.id) {
                if !before.is_empty() && members.is_empty() {
                    self.breaks(format!("{} has lost its last member", balancer.id));
                }
                let gone = before.difference(&members).filter(|one| !self.marked.contains(*one));
                let lost = self.lost.entry(balancer.id.clone()).or_default();
                lost.extend(gone.map(|one| (one.clone(), now)));
                lost.retain(|one, at| !members.contains(one) && *at + WINDOW > now);
                if lost.len() > LOSS {
                    let count = lost.len();
                    self.breaks(format!("{} lost {count} members in a window", balancer.id));
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
                self.broken.extend(wrong);
                self.broken.extend(orphans);
                self.broken.extend(world.samples().lines().map(str::to_owned));
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
    let all = world.cloud.balancers().all();
    let count = all
        .iter()
        .flat_map(|balancer| &balancer.owners)
        .filter(|owner| !uids.contains(&owner.uid))
        .count();
    let reported = world.metric("ccm_service_orphans ");
    let is_reported = reported >= f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    (!is_reported).then(|| format!("{count} load balancers without a Service, {reported} reported"))
}
