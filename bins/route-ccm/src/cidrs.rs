//! Node IPAM joined to the program: what nodes show goes to the allocator, and what it gives is
//! written.
//!
//! ```text
//! informer -> intake --node without pod CIDRs--> queue -> assign: reserve -> PATCH -> allocator
//!                |                                          ^        \-> passes: routes
//!                +--node is gone--> release --free blocks---+
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | `intake` | what changes of nodes mean; the beginning of a term |
//! | `assign` | gives one node after another its pod CIDRs |
//! | `lookups` | `CloudAllocator`: asks the cloud, in batches |
//! | `release` | when blocks become free; what the route table says |
//! | `waiting` | the nodes that get none now |
//! | `metrics` | upstream's `node_ipam_controller_*`, and `ccm_ipam_*` |

pub(crate) mod assign;
mod intake;
mod lookups;
pub(crate) mod metrics;
mod release;
mod waiting;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use ccm_base::{At, Backoff, clock::Timeline};
use ccm_cloud::Cloud;
use ccm_controller::{
    passes::Passes,
    queue::{Priority, QueueConfig, QueueMetrics, WorkQueue},
    watch::Stores,
    writer::Writer,
};
use ccm_kube::store::Store;
use ccm_objects::{Node, Shared as Name};
use ccm_runtime::{
    health::{Scope, Verdict},
    metrics::Metrics,
    plans::Plans,
    program::{Context, Program},
    programs::NODE_IPAM,
    supervisor::Supervisor,
};
use ipnet::IpNet;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use self::{metrics::CidrMetrics, waiting::Waiting};
use crate::{
    lease::Handover,
    node_ipam::ipam::{
        Allocator, AllocatorType, BlockSizes, Config, HeldBlocks, HoldUntil, Refusal, Reservation,
    },
    observe::Observer,
    report::RouteReports,
    settings::RouteSettings,
};

/// The queue's name in its metrics: upstream's.
pub(crate) const QUEUE: &str = "cidrallocator_node";
/// How long the blocks of a node that is gone are not given out again: connections to its pods end,
/// and caches forget them.
const GRACE: Duration = Duration::from_secs(30);
/// How many nodes are written at once: as many as the rate limit of the API server's client may let
/// pass while one write is under way.
const WRITERS: usize = 64;

/// What the leader knows; nothing before the nodes were read in its term.
struct Core {
    allocator: Allocator,
    waiting: Waiting,
}

impl Core {
    const fn is_stopped(&self) -> bool {
        self.allocator.rival().is_some()
    }

    /// Reserves blocks for the node. A node that gets none waits from this moment on: the next block that becomes free
    /// is its, however soon that is.
    fn reserve(&mut self, node: &Node, now: At) -> Result<Reservation, Refusal> {
        let reserved = self.allocator.reserve(node, now);
        let is_new = || !self.waiting.contains(&node.name);
        if matches!(reserved, Err(Refusal::Exhausted(_))) && is_new() {
            self.waiting.insert(&node.name, None);
        }
        reserved
    }
}

/// Returns true if the node has no pod CIDRs, and needs some.
fn needs_cidrs(node: &Node) -> bool {
    node.pod_cidrs.is_empty() && !node.deleting
}

/// Gives nodes their pod CIDRs.
pub(crate) struct Cidrs {
    config: Config,
    hold: HoldUntil,
    store: Store<Node>,
    cloud: Arc<dyn Cloud>,
    core: Mutex<Option<Core>>,
    /// The first table of the routes, if it was read before the nodes.
    table: Mutex<Option<(Vec<IpNet>, At)>>,
    queue: WorkQueue<Name>,
    /// Wakes the task of `release`.
    left: Notify,
    /// The routes of a node follow its pod CIDRs.
    routes: Option<(Arc<Observer>, Passes)>,
    /// The nodes whose condition may have to be written.
    conditions: WorkQueue<Name>,
    reports: Arc<RouteReports>,
    plans: Plans,
    settings: watch::Receiver<Arc<RouteSettings>>,
    metrics: CidrMetrics,
    process: Metrics,
    leads: AtomicBool,
    timeline: Timeline,
    /// Cancelled by the drain: pending lookups are dropped.
    closing: CancellationToken,
}

/// What a term begins with.
pub(crate) struct Term {
    /// Proves that the store is of this term.
    pub(crate) stores: Stores,
    /// What the last leader has left.
    pub(crate) held: Vec<HeldBlocks>,
    /// Since when blocks have had their sizes.
    pub(crate) sizes: BlockSizes,
    /// Where this one leaves it.
    pub(crate) handover: Arc<Handover>,
    /// `None` for an observer.
    pub(crate) writer: Option<Writer<Node>>,
}

/// The parts that it shares with the routes.
pub(crate) struct Common {
    pub(crate) store: Store<Node>,
    pub(crate) routes: Option<(Arc<Observer>, Passes)>,
    pub(crate) conditions: WorkQueue<Name>,
    pub(crate) reports: Arc<RouteReports>,
    pub(crate) timeline: Timeline,
    pub(crate) queues: QueueMetrics,
}

impl Cidrs {
    pub(crate) fn new<P: Program<Settings = RouteSettings>>(
        context: &Context<P>,
        config: Config,
        common: Common,
    ) -> Arc<Self> {
        let Common { store, routes, conditions, reports, timeline, queues } = common;
        let queue = QueueConfig {
            waits: match config.allocator {
                AllocatorType::RangeAllocator => QueueConfig::default().waits,
                // The cloud may need a moment to assign them.
                AllocatorType::CloudAllocator => Backoff {
                    first: Duration::from_millis(250),
                    longest: QueueConfig::default().waits.longest,
                },
            },
            ..QueueConfig::default()
        };
        let this = Arc::new(Self {
            hold: HoldUntil { grace: GRACE, routes: routes.is_some() },
            config,
            store,
            cloud: Arc::clone(&context.cloud),
            core: Mutex::new(None),
            table: Mutex::new(None),
            queue: WorkQueue::new(QUEUE, queue, &queues),
            left: Notify::new(),
            routes,
            conditions,
            reports,
            plans: context.plans.clone(),
            settings: context.settings.clone(),
            metrics: CidrMetrics::new(&context.metrics),
            process: context.metrics.clone(),
            leads: AtomicBool::new(false),
            timeline,
            closing: CancellationToken::new(),
        });
        metrics::collect(&context.metrics, &this);
        let shown = Arc::clone(&this);
        context.health.add("pod-cidrs", Scope::Information, move || shown.verdict());
        this
    }

    /// Starts the work of a term.
    pub(crate) fn start(self: &Arc<Self>, term: Term, tasks: &Supervisor) {
        let (this, token) = (Arc::clone(self), tasks.token().clone());
        tasks.spawn("pod-cidrs", async move {
            let work = this.begin(term, token.clone());
            token.run_until_cancelled(work).await;
        });
    }

    async fn begin(self: Arc<Self>, term: Term, token: CancellationToken) {
        let Term { stores, held, sizes, handover, writer } = term;
        self.leads.store(true, Ordering::Relaxed);
        self.runs(true);
        stores.current().await;
        self.rebuild(held, sizes);
        let (this, writer) = (Arc::clone(&self), writer.map(Arc::new));
        let give = async {
            match self.config.allocator {
                AllocatorType::RangeAllocator => this.assign_all(writer, token).await,
                AllocatorType::CloudAllocator => this.look_up_all(writer, token).await,
            }
        };
        tokio::join!(give, self.release_all(&handover));
    }

    /// Gives out no more, and waits for the writes under way.
    pub(crate) async fn drain(&self) {
        self.queue.shut_down();
        self.closing.cancel();
        self.queue.drained().await;
        self.runs(false);
    }

    /// Shows whether the controller runs. An observer's does not.
    fn runs(&self, does: bool) {
        if self.leads.load(Ordering::Relaxed) && !self.is_observing() {
            self.process.set_running(NODE_IPAM.name, does);
        }
    }

    /// Changes what is known; nodes that wait for a block are tried again if one became free, and all
    /// of them when a stop begins or ends. `None` before the term's beginning.
    fn change<R>(&self, change: impl FnOnce(&mut Core) -> R) -> Option<R> {
        let mut core = self.core.lock();
        let core = core.as_mut()?;
        let (before, was_stopped) = (core.allocator.releases(), core.is_stopped());
        let result = change(core);
        let freed = core.allocator.releases() - before;
        let turns = core.is_stopped() != was_stopped;
        if turns {
            self.stops(core.is_stopped());
        }
        for name in core.waiting.first(if turns { u64::MAX } else { freed }) {
            self.queue.add(name, Priority::Urgent);
        }
        Some(result)
    }

    /// The same for what an answer says of a node, if it is still there: this one, and no other of its
    /// name. The store shows the end of a node before [`gone`](Self::gone) removes what is known of
    /// it, so nothing comes after that.
    fn change_of<R>(&self, node: &Node, change: impl FnOnce(&mut Core) -> R) -> Option<R> {
        let is_there = || self.store.get(&node.name).is_some_and(|there| there.uid == node.uid);
        self.change(|core| is_there().then(|| change(core)))?
    }

    /// The same for a node that still needs pod CIDRs.
    fn change_of_bare<R>(&self, node: &Node, change: impl FnOnce(&mut Core) -> R) -> Option<R> {
        let needs = || self.store.get(&node.name).is_some_and(|there| needs_cidrs(&there));
        self.change_of(node, |core| needs().then(|| change(core)))?
    }

    /// Why the node has no pod CIDRs, if it gets none now.
    pub(crate) fn lack(&self, name: &str) -> Option<String> {
        self.core.lock().as_ref()?.waiting.why(name)
    }

    /// How far the nodes are, for `/readyz?verbose`.
    fn verdict(&self) -> Verdict {
        let core = self.core.lock();
        let Some(core) = core.as_ref() else {
            let what = match self.leads.load(Ordering::Relaxed) {
                true => "the nodes are being read",
                false => "not assigned here: this replica does not lead",
            };
            return Verdict::Passed(what.to_owned());
        };
        if let Some(rival) = core.allocator.rival() {
            return Verdict::Failed(rival.to_string());
        }
        match core.waiting.example() {
            Some((name, why)) => {
                let count = core.waiting.len();
                Verdict::Failed(format!("{count} nodes wait for pod CIDRs, first {name}: {why}"))
            }
            None if core.waiting.len() > 0 => Verdict::Failed(format!(
                "{} nodes wait for pod CIDRs until the cloud's routes are known",
                core.waiting.len()
            )),
            None => Verdict::Passed("every node gets its pod CIDRs".to_owned()),
        }
    }

    fn is_observing(&self) -> bool {
        self.plans.is_observing()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node_ipam::ipam::ClusterRange;

    #[test]
    fn a_block_that_becomes_free_right_after_the_refusal_brings_the_node_back() {
        let at = |seconds| At(Duration::from_secs(seconds));
        let network = "10.0.0.0/24".parse().expect("a network");
        let config = Config {
            allocator: AllocatorType::RangeAllocator,
            ranges: vec![ClusterRange { network, mask: 24 }],
            services: Vec::new(),
            since: None,
        };
        let node = |name: &str, cidrs: &[&str]| Node {
            name: name.into(),
            uid: name.into(),
            pod_cidrs: cidrs.iter().map(|cidr| (*cidr).into()).collect(),
            ..Node::default()
        };
        let hold = HoldUntil { grace: GRACE, routes: false };
        let there = [node("a", &["10.0.0.0/24"])];
        let allocator = Allocator::rebuild(config, hold, &there, Vec::new());
        let mut core = Core { allocator, waiting: Waiting::default() };
        let refused = core.reserve(&node("b", &[]), at(1));
        assert!(matches!(refused, Err(Refusal::Exhausted(_))), "{refused:?}");
        // Another task comes before the reason is shown.
        let before = core.allocator.releases();
        core.allocator.release("a", at(1));
        core.allocator.expire(at(1) + GRACE);
        let freed = core.allocator.releases() - before;
        assert_eq!((freed, core.waiting.first(freed)), (1, vec!["b".into()]));
        // The reason stays while the node is tried again.
        core.waiting.insert(&"c".into(), Some("full".to_owned()));
        core.reserve(&node("b", &[]), at(100)).expect("the block is free");
        core.reserve(&node("c", &[]), at(100)).expect_err("it is taken");
        assert_eq!(core.waiting.why("c"), Some("full".to_owned()));
    }
}
