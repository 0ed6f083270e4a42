//! Node IPAM: gives nodes their pod CIDRs.
//!
//! ```text
//! informer, queue, lookups, timer, routes --translate--> Event --> machine --> effects --perform--> PATCH, routes
//!                                                          ^                                |
//!                                                          +-------------- answer ----------+
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`ipam`] | which blocks of the cluster CIDRs nodes get: pure |
//! | `machine` | the memory, and the events that change it: pure |
//! | `translate` | turns changes of nodes, turns of the queue, answers of the cloud, and time into events |
//! | `perform` | performs the effects, and writes pod CIDRs |
//! | `report`, `metrics` | events and log lines; upstream's `node_ipam_controller_*`, and `ccm_ipam_*` |
//! | this file | the interface for the rest of the program |

pub mod ipam;
pub(crate) mod machine;
pub(crate) mod metrics;
mod perform;
mod report;
mod translate;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use ccm_base::Backoff;
use ccm_cloud::{Claim, Cloud};
use ccm_controller::{
    instances,
    machine::{Door, log_unexpected},
    queue::{QueueConfig, QueueMetrics, WorkQueue},
    record,
    watch::Stores,
    writer::Writer,
};
use ccm_kube::store::{Change, Store};
use ccm_objects::{Node, Shared as Name};
use ccm_runtime::{
    explain::Explanation,
    health::{Scope, Verdict},
    program::{Context, Program},
    supervisor::Supervisor,
};
use ipnet::IpNet;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

pub(crate) use self::perform::{Assigned, writes::sent};
use self::{
    ipam::{AllocatorType, BlockSizes, Config, HeldBlocks, HoldUntil},
    machine::{Event, Fixed, Machine},
    metrics::CidrMetrics,
    perform::{Performer, writes::Writes},
    report::CidrReports,
    translate::{intake, lookups::Lookups, time, turns},
};
use crate::settings::RouteSettings;

/// The queue's name in its metrics: upstream's.
pub(crate) const QUEUE: &str = "cidrallocator_node";
/// For this long, the blocks of a node that is gone are not assigned again, so that connections to
/// its pods end and caches forget them.
const GRACE: Duration = Duration::from_secs(30);

/// Gives nodes their pod CIDRs.
pub(crate) struct NodeIpam {
    door: Door<Machine>,
    performer: Arc<Performer>,
    config: Config,
    cloud: Arc<dyn Cloud>,
    settings: watch::Receiver<Arc<RouteSettings>>,
    /// Is cancelled by the drain. Then pending lookups are dropped.
    closing: CancellationToken,
}

/// The inputs of a new term.
pub(crate) struct Term {
    /// Proves that the store belongs to this term.
    pub(crate) stores: Stores,
    /// The note of the last leader.
    pub(crate) held: Vec<HeldBlocks>,
    /// Since when blocks have had their sizes.
    pub(crate) sizes: BlockSizes,
    /// Leaves the blocks of nodes that are gone to the next leader.
    pub(crate) leave: Box<dyn Fn(Vec<HeldBlocks>) + Send + Sync>,
    /// `None` for an observer.
    pub(crate) writer: Option<Writer<Node>>,
}

/// The parts that it shares with the routes.
pub(crate) struct Common {
    pub(crate) store: Store<Node>,
    /// The nodes whose condition may have to be written.
    pub(crate) conditions: WorkQueue<Name>,
    pub(crate) queues: QueueMetrics,
    /// Tells the routes that a node has got its pod CIDRs. `None` if nodes do not get routes.
    pub(crate) assigned: Option<Assigned>,
}

impl NodeIpam {
    pub(crate) fn new<P: Program<Settings = RouteSettings>>(
        context: &Context<P>,
        config: Config,
        common: Common,
    ) -> Arc<Self> {
        let Common { store, conditions, queues, assigned } = common;
        let waits = QueueConfig::default().waits;
        let first = match config.allocator {
            AllocatorType::RangeAllocator => waits.first,
            // The cloud may need a moment to assign them.
            AllocatorType::CloudAllocator => Duration::from_millis(250),
        };
        let queue = QueueConfig { waits: Backoff { first, ..waits }, ..QueueConfig::default() };
        let fixed = Fixed {
            config: config.clone(),
            hold: HoldUntil { grace: GRACE, routes: assigned.is_some() },
            is_observing: context.plans.is_observing(),
        };
        let door = record::part(context, 2, Machine::new(fixed));
        let performer = Performer {
            config: config.clone(),
            store: store.clone(),
            queue: WorkQueue::new(QUEUE, queue, &queues),
            conditions,
            reports: CidrReports::new(context),
            plans: context.plans.clone(),
            metrics: CidrMetrics::new(&context.metrics),
            process: context.metrics.clone(),
            wake: Notify::new(),
            assigned,
        };
        metrics::collect(&context.metrics, &door, store);
        let shown = door.clone();
        let verdict = move || match shown.read(|machine, _| machine.verdict()) {
            Ok(what) => Verdict::Passed(what.to_owned()),
            Err(what) => Verdict::Failed(what),
        };
        context.health.add("pod-cidrs", Scope::Information, verdict);
        Arc::new(Self {
            door,
            performer: Arc::new(performer),
            config,
            cloud: Arc::clone(&context.cloud),
            settings: context.settings.clone(),
            closing: CancellationToken::new(),
        })
    }

    /// Explains the pod CIDRs of nodes on the page `/explain`.
    pub(crate) fn explain<P: Program>(self: &Arc<Self>, context: &Context<P>) {
        let this = Arc::clone(self);
        context.explanations.add("node-ipam", "Node", move |name| this.explanation(name));
    }

    /// Explains the pod CIDRs of a node.
    pub(crate) fn explanation(&self, name: &str) -> Explanation {
        let (node, cloud) = (self.performer.store.get(name), &*self.cloud);
        let anothers = |node: &Arc<Node>| {
            let is_anothers = instances::claim(cloud, node) == Some(Claim::Foreign);
            is_anothers.then(|| instances::why_left_out(cloud, node, true))
        };
        let anothers = node.as_ref().and_then(anothers);
        self.door
            .read(|machine, now| machine.explain(name, node.as_deref(), anothers.as_deref(), now))
    }

    /// Applies an event that no request follows from.
    pub(crate) fn tell(&self, event: Event) {
        self.performer.perform(self.door.apply(event)).iter().for_each(log_unexpected);
    }

    /// Starts the work of a term.
    pub(crate) fn start(self: &Arc<Self>, term: Term, tasks: &Supervisor) {
        let (this, token) = (Arc::clone(self), tasks.token().clone());
        tasks.spawn("pod-cidrs", async move {
            let work = this.lead(term, token.clone());
            token.run_until_cancelled(work).await;
        });
    }

    async fn lead(&self, term: Term, token: CancellationToken) {
        let Term { stores, held, sizes, leave, writer } = term;
        let (door, performer) = (self.door.clone(), Arc::clone(&self.performer));
        self.tell(Event::TermBegins);
        stores.current().await;
        intake::begin(&door, &performer, held, sizes);
        let writes = Arc::new(Writes { door: door.clone(), performer, writer });
        let time = time::run(&door, &self.performer, &leave);
        match self.config.allocator {
            AllocatorType::RangeAllocator => {
                tokio::join!(turns::run(writes, token), time);
            }
            AllocatorType::CloudAllocator => {
                let (cloud, settings) = (Arc::clone(&self.cloud), self.settings.clone());
                let lookups = Lookups { writes, cloud, settings };
                tokio::join!(lookups.run(&self.closing, token), time);
            }
        }
    }

    /// Gives out no more, and waits for the writes under way.
    pub(crate) async fn drain(&self) {
        let queue = &self.performer.queue;
        queue.shut_down();
        self.closing.cancel();
        queue.drained().await;
        self.tell(Event::Ends);
    }

    /// Handles a change of a node. The informer calls it on every replica; never blocks.
    pub(crate) fn apply_change(&self, change: &Change<Node>) {
        self.tell(intake::event(change));
    }

    /// Returns the reason why the node does not have pod CIDRs, if node IPAM does not assign any
    /// now.
    pub(crate) fn lack(&self, name: &str) -> Option<String> {
        self.door.read(|machine, _| machine.lack(name))
    }

    /// Returns these reasons for all nodes.
    pub(crate) fn lacks(&self) -> BTreeMap<Name, String> {
        self.door.read(|machine, _| machine.lacks())
    }

    /// Returns the networks whose routes must end before nodes get them.
    pub(crate) fn awaited(&self) -> Vec<IpNet> {
        self.door.read(|machine, _| machine.awaited())
    }
}
