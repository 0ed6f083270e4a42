//! What must hold in each history.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use ccm_cloud::RouteTarget;
use ccm_sim::cloud::routes::RouteWriteKind;
use ipnet::IpNet;
use tokio::time::{Instant, sleep};

use crate::{
    lasting::Lasting,
    rival,
    truth::{self, TrueNode},
    world::World,
};

/// The window of the brake, less the time by which a write may be late.
const WINDOW: Duration = Duration::from_mins(9);
/// How many routes may go within it without a mark or proof: a tenth, and at least these.
const LOSS: usize = 3;
/// How long what others change may be unknown to the program.
const AUDIT: Duration = Duration::from_mins(15);

/// What holds in each history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Each call is one that the contract allows.
    Call,
    /// Where the cloud compares versions, there is one call at a time, with the version.
    Version,
    /// A destination has one change at a time.
    Overlap,
    /// Routes of others are not touched, and no call names one.
    Foreign,
    /// The route to an unknown target goes only if the target was proven to be gone, twice, apart.
    Proof,
    /// While the program sees no node, nothing is deleted.
    NoNodes,
    /// No more routes go in a window than the brake allows.
    Loss,
    /// A pod CIDR of a node does not lose its route where the cloud can avoid it.
    Gap,
    /// The network of a node is said to be available only if its routes are there.
    Available,
    /// In the end each node has its routes, nothing is left over, and the conditions say so.
    Converges,
    /// In the end the routes of others are counted.
    Counted,
    /// What is as it should be is not written.
    Quiet,
    /// The cloud is not asked for the same change again and again.
    Calls,
    /// No condition is written again and again, whoever else writes it.
    Writes,
    /// A condition is not wrong for long.
    Lasting,
}

/// The broken rules of a history.
pub(crate) type Broken = ccm_tests::variants::Broken<Rule>;

pub(crate) struct Rules {
    /// Destinations whose route went, by the program, without a mark or proof; when. A route that is made later brings
    /// back no part of the budget.
    lost: BTreeMap<IpNet, Instant>,
    /// The most routes that the cluster has had.
    most: usize,
    /// The UIDs of the nodes whose network was available at the last look.
    available: BTreeSet<String>,
    /// The versions of the nodes and of the routes at the last look.
    seen: Option<(u64, u64)>,
    lasting: Lasting,
    pub(crate) broken: Broken,
}

impl Rules {
    pub(crate) fn new(world: &World) -> Self {
        Self {
            lost: BTreeMap::new(),
            most: 0,
            available: BTreeSet::new(),
            seen: None,
            lasting: Lasting::default(),
            broken: world.broken.clone(),
        }
    }

    /// Another process leads. It knows the deletions of the last one, and not its writes to nodes.
    pub(crate) fn restarted(&mut self) {
        self.lasting.restarted();
    }

    /// Looks each second for a while.
    pub(crate) async fn watch(&mut self, world: &World, seconds: u64) {
        self.look(world);
        for _ in 0..seconds {
            sleep(Duration::from_secs(1)).await;
            self.look(world);
        }
    }

    /// Looks at the cloud and at the nodes.
    pub(crate) fn look(&mut self, world: &World) {
        let state = (world.api.revision(), world.cloud.router().version());
        self.lasting.look(world, &self.broken);
        if self.seen == Some(state) {
            return;
        }
        self.seen = Some(state);
        world.truth.look(&world.api, &world.cloud);
        self.look_at_others(world);
        self.look_at_losses(world);
        self.look_at_conditions(world);
    }

    fn look_at_others(&self, world: &World) {
        let all = world.cloud.router().all();
        for route in world.truth.foreign() {
            if !all.contains(&route) {
                self.broken.add(Rule::Foreign, format!("{route:?} of others was touched"));
            }
        }
    }

    fn look_at_losses(&mut self, world: &World) {
        let now = Instant::now();
        let writes = world.cloud.router().reset_writes();
        self.most = self.most.max(world.ours().len());
        for write in writes.into_iter().filter(|write| write.kind == RouteWriteKind::Delete) {
            let is_free = |target: &RouteTarget| {
                world.truth.with(|memory| {
                    let is_marked = memory.targets.get(target).is_some_and(|(_, marked)| *marked);
                    is_marked || memory.proven.contains(target)
                })
            };
            let destination = write.destination.trunc();
            let is_lost = world.cloud.router().to(destination).is_empty();
            if is_lost && !write.targets.0.as_ref().is_some_and(is_free) {
                self.lost.insert(destination, now);
            }
        }
        self.lost.retain(|_, at| *at + WINDOW > now);
        let limit = LOSS.max(self.most.div_ceil(10));
        if self.lost.len() > limit {
            let ages = self.lost.iter().map(|(lost, at)| format!("{lost} {:?}", at.elapsed()));
            let ages: Vec<String> = ages.collect();
            let how = format!("more than {limit} routes went in a window: {ages:?}");
            self.broken.add(Rule::Loss, how);
            self.lost.clear();
        }
    }

    fn look_at_conditions(&mut self, world: &World) {
        let nodes = truth::nodes(&world.api);
        let is_available = |node: &&TrueNode| node.unavailable.as_deref() == Some("False");
        // What another controller says is its own word.
        let available =
            nodes.iter().filter(is_available).filter(|node| node.reason != rival::REASON);
        for node in available.clone().filter(|node| !self.available.contains(&node.uid)) {
            for cidr in node.cidrs.iter().map(IpNet::trunc) {
                let is_known = world.truth.with(|memory| {
                    let recent = |at: &Instant| at.elapsed() < AUDIT;
                    !memory.touched.get(&cidr).is_some_and(recent)
                        && !memory.late.as_ref().is_some_and(recent)
                });
                let routes = world.cloud.router().to(cidr);
                let works = routes.iter().any(|route| {
                    route.defect.is_none()
                        && route.target.as_ref().is_some_and(|target| node.has(target))
                });
                if is_known && !works {
                    let how = format!(
                        "{} is available without the route of {cidr}: {routes:?}",
                        node.name
                    );
                    self.broken.add(Rule::Available, how);
                }
            }
        }
        self.available = available.map(|node| node.uid.clone()).collect();
    }
}
