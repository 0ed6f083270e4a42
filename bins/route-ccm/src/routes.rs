//! The routes of nodes, and the condition `NetworkUnavailable` that shows if they exist.
//!
//! ```text
//! informer, loop, queue, lanes --translate--> Event --> machine --> effects --perform--> cloud, API server
//!                                               ^                              |
//!                                               +----------- answer -----------+
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`plan`] | what to change in the route table, and the condition of each node: pure |
//! | `machine` | the memory, and the events that change it: pure |
//! | `nodes`, `look` | the nodes as the machine sees them; all that a look at them depends on |
//! | `translate` | turns changes of nodes, passes, approvals and turns of the queue into events |
//! | `perform` | performs the effects: calls to the cloud, and writes of conditions |
//! | `report`, `metrics` | events and log lines; `ccm_route_*` and upstream's metric |
//! | this file | joins them |

mod look;
pub(crate) mod machine;
pub(crate) mod metrics;
mod nodes;
mod perform;
pub mod plan;
mod report;
mod translate;

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use ccm_cloud::ClusterId;
use ccm_controller::{
    cluster,
    machine::{Door, log_unexpected},
    passes::Passes,
    queue::{QueueConfig, QueueMetrics, WorkQueue},
    record,
    watch::Stores,
    writer::Writer,
};
use ccm_kube::store::{Change, Store};
use ccm_objects::{Node, ObjectRef};
use ccm_runtime::{
    health::Scope,
    leadership::LeaseAnnotations,
    program::{Context, Failure, Program},
};
use tokio::{sync::mpsc, time::sleep};

use self::{
    look::look,
    machine::{Asked, Effect, Event, Fixed, Machine, Term},
    metrics::{Look, RouteMetrics},
    nodes::Nodes,
    perform::{Lines, Performer, calls::Calls, conditions::Conditions},
    report::RouteReports,
    translate::pass::Looks,
};
use crate::{
    lease::Handover,
    node_ipam::{self, NodeIpam},
    settings::RouteSettings,
};

/// The name of the queue of conditions in its metrics.
pub(crate) const QUEUE: &str = "route-conditions";
/// How many calls may wait for a lane.
const CALLS: usize = 1024;
/// How often the drain checks if all calls have ended.
const DRAIN: Duration = Duration::from_millis(50);

/// The machine, with the sources of its events and the performers of its effects. Clones share it.
#[derive(Clone)]
pub(crate) struct Parts {
    pub(crate) door: Door<Machine>,
    /// The annotations of the Lease, by which a user approves changes.
    pub(crate) lease: LeaseAnnotations,
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) performer: Arc<Performer>,
}

impl Parts {
    /// Applies an event, and performs what follows. The caller makes the requests.
    pub(crate) fn apply(&self, event: Event, request: impl FnMut(Effect)) {
        self.performer.perform(self.door.apply(event), request);
    }

    /// Applies an event from which no request follows.
    pub(crate) fn tell(&self, event: Event) {
        self.apply(event, |request| log_unexpected(&request));
    }
}

/// Gives nodes their routes, and writes their conditions.
pub(crate) struct Controller {
    parts: Parts,
    /// `None` if nodes get no routes.
    cluster: Option<ClusterId>,
}

impl Controller {
    pub(crate) async fn new<P: Program<Settings = RouteSettings>>(
        context: &Context<P>,
        store: Store<Node>,
    ) -> Result<Self, Failure> {
        let settings = context.settings.borrow().clone();
        let listed = context.health.condition("routes", Scope::Information, "not listed yet");
        let brake = context.health.condition("brake", Scope::Information, "not needed yet");
        brake.pass("not needed yet");
        let left_over = context.health.condition("left-over-conditions", Scope::Information, "");
        left_over.pass("not looked yet: this replica does not lead");
        let is_offered = !matches!(context.cloud.routes(), Ok(None));
        let cluster = match settings.configure_cloud_routes && is_offered {
            true => Some(cluster::identify(context, &settings.cluster_uid).await?),
            false => None,
        };
        let has_routes = cluster.is_some();
        listed.pass(match (has_routes, settings.configure_cloud_routes) {
            (true, _) => "not listed here: this replica does not lead".to_owned(),
            (false, true) => {
                format!("none: the provider {} does not offer routes", context.cloud.name())
            }
            (false, false) => "none: --configure-cloud-routes=false".to_owned(),
        });
        let blocks = settings.ipam();
        let none = || ClusterId { name: String::new(), uid: String::new() };
        let fixed = Fixed {
            cluster: cluster.clone().unwrap_or_else(none),
            has_routes,
            gives_cidrs: blocks.is_some(),
            is_observing: context.plans.is_observing(),
        };
        let machines = 1 + usize::from(fixed.gives_cidrs);
        let door = record::part(context, machines, Machine::new(fixed));
        let shown = door.clone();
        metrics::collect(&context.metrics, move || {
            let (longest_wait, room) = shown.read(Machine::look);
            Look { longest_wait, room }
        });
        let (cloud, settings) = (Arc::clone(&context.cloud), context.settings.clone());
        let nodes = Arc::new(Nodes { store, cloud, settings });
        let queues = QueueMetrics::new(&context.metrics);
        let conditions = WorkQueue::new(QUEUE, QueueConfig::default(), &queues);
        let passes = Passes::default();
        let assigned = has_routes.then(|| told(&door, &nodes, &passes));
        let (store, queue) = (nodes.store.clone(), conditions.clone());
        let common = node_ipam::Common { store, conditions: queue, queues, assigned };
        let performer = Arc::new(Performer {
            passes,
            conditions,
            plans: context.plans.clone(),
            reports: RouteReports::new(context),
            metrics: RouteMetrics::new(&context.metrics),
            lines: Lines { listed, brake, left_over },
            throttle: parking_lot::Mutex::default(),
            cloud: Arc::clone(&context.cloud),
            ipam: blocks.map(|config| NodeIpam::new(context, config, common)),
            handover: OnceLock::new(),
        });
        let lease = context.leadership.annotations().clone();
        Ok(Self { parts: Parts { door, lease, nodes, performer }, cluster })
    }

    /// Gives nodes their pod CIDRs, if this program does.
    pub(crate) fn ipam(&self) -> Option<&Arc<NodeIpam>> {
        self.parts.performer.ipam.as_ref()
    }

    /// Says on the page `/explain` why nodes and routes are as they are, also while this replica does not lead.
    pub(crate) fn explain<P: Program>(&self, context: &Context<P>) {
        if let Some(ipam) = self.ipam() {
            ipam.explain(context);
        }
        if self.cluster.is_none() {
            return;
        }
        let lease = {
            let election = &context.common.borrow().election;
            ObjectRef::lease(&election.namespace, &election.lease)
        };
        for kind in ["Node", "Route"] {
            let (parts, lease) = (self.parts.clone(), lease.clone());
            context.explanations.add("routes", kind, move |name| {
                let Parts { door, nodes, performer, .. } = &parts;
                let pass = look(&parts, nodes.all(), 0);
                let node = pass.nodes.iter().find(|view| *view.node.name == *name);
                let left_out = node.and_then(|view| nodes.why_left_out(view));
                let bare = node.filter(|view| view.node.pod_cidrs.is_empty());
                let ipam = performer.ipam.as_ref().filter(|_| bare.is_some());
                let ipam = ipam.map(|ipam| ipam.explanation(name));
                let asked = Asked { pass, left_out, ipam, lease: lease.clone() };
                door.read(|machine, now| match kind {
                    "Route" => machine.explain_route(name, &asked, now),
                    _ => machine.explain_node(name, &asked, now),
                })
            });
        }
    }

    /// Handles a change of a node. The informer calls it on every replica; never blocks.
    pub(crate) fn apply_change(&self, change: &Change<Node>) {
        self.parts.tell(translate::change_event(&self.parts.nodes, change));
    }

    /// Starts the work of a term.
    pub(crate) fn lead<P: Program<Settings = RouteSettings>>(
        &self,
        context: &Context<P>,
        stores: &Stores,
        term: Term,
        handover: Arc<Handover>,
    ) {
        let (tasks, token, parts) = (&context.supervisor, &context.token, &self.parts);
        // A process leads once.
        drop(parts.performer.handover.set(handover));
        parts.tell(Event::Term(Box::new(term)));
        if !context.plans.is_observing() {
            let writer = Writer::new(context, &parts.nodes.store);
            let conditions = Conditions { parts: parts.clone(), writer };
            tasks.spawn("conditions", translate::conditions(conditions, token.clone()));
        }
        let look = translate::left_over(parts.clone(), stores.clone(), token.clone());
        tasks.spawn("left-over-conditions", look);
        let Some(cluster) = self.cluster.clone() else { return };
        parts.performer.lines.listed.pass("not listed yet");
        let approvals = translate::approvals(parts.clone(), token.clone());
        tasks.spawn("approvals", approvals);
        let (calls, sent) = mpsc::channel(CALLS);
        let lanes = Arc::new(Calls { parts: parts.clone(), cluster });
        tasks.spawn("calls", lanes.run(sent, token.clone()));
        let looks = Looks { parts: parts.clone(), calls };
        let passes = parts.performer.passes.clone();
        let passes = passes.run(looks, context.settings.clone(), token.clone());
        // An old store does not have the newest nodes, so route-ccm would delete their routes.
        tasks.spawn("passes", stores.clone().before(passes, token.clone()));
    }

    /// Begins no call, and waits for those under way.
    pub(crate) async fn drain(&self) {
        let Performer { passes, conditions, .. } = &*self.parts.performer;
        passes.drain().await;
        // The answer to a list may begin a plan as well.
        self.parts.tell(Event::Ending);
        while !self.parts.door.read(|machine, _| machine.is_idle()) {
            sleep(DRAIN).await;
        }
        conditions.shut_down();
        conditions.drained().await;
    }
}

/// Returns the function with which node IPAM tells the machine that a node has got its pod CIDRs:
/// the next look gives the node its routes.
fn told(door: &Door<Machine>, nodes: &Arc<Nodes>, passes: &Passes) -> node_ipam::Assigned {
    let (door, nodes, passes) = (door.clone(), Arc::clone(nodes), passes.clone());
    Box::new(move |node| {
        drop(door.apply(Event::Assigned(nodes.view(node))));
        passes.wake();
    })
}
