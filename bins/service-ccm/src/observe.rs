//! What is known of Services, nodes and load balancers, and which Services need work.

mod adoptable;
pub(crate) mod audit;
pub(crate) mod balancers;
pub(crate) mod intake;
pub(crate) mod lease;
mod losses;
pub(crate) mod nodes;
pub(crate) mod poll;
mod reading;
mod rooms;
mod selectors;
pub(crate) mod shown;
pub(crate) mod unclaimed;

pub(crate) use selectors::selector;

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use ccm_base::clock::Timeline;
use ccm_cloud::{Call, Cloud, CloudError, ClusterId, ErrorKind, LoadBalancers};
use ccm_controller::{
    brake::approval::is_marked_at,
    passes::Passes,
    queue::{KeyRate, Priority, QueueConfig, QueueMetrics, WorkQueue},
    repeat_reports::RepeatMetrics,
};
use ccm_kube::store::Store;
use ccm_objects::{Node, Service, Shared as Name};
use ccm_runtime::{
    plans::Plans,
    program::{Context, Program},
    same_cloud::SameCloud,
    settings::ElectionSettings,
};
use parking_lot::{Mutex, RwLock};
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use self::{balancers::Balancers, rooms::Rooms, unclaimed::Unclaimed};
use crate::{
    machine::{Completed, Entry, Planned, RETRY, Round},
    metrics::ServiceMetrics,
    plan::{
        APPROVED, Classes, Inputs, List, eligible::NodeSet, front_end::desired, labels::LabelKeys,
        losses::Losses, marks::Marks, orphans::Orphans, shown::InUse,
    },
    report::ServiceReports,
    settings::ServiceSettings,
};

/// Upstream's name of the queue: the label of its metrics.
pub(crate) const QUEUE: &str = "service";
/// The queue of Services whose last call to the cloud did not return in time.
pub(crate) const SLOW_QUEUE: &str = "service-slow";

/// The shared inputs of the controller's parts; each part takes the ones that it needs.
#[derive(Clone)]
pub(crate) struct Handles {
    pub(crate) cloud: Arc<dyn Cloud>,
    /// Tells if this is the cloud in which the load balancers were made.
    pub(crate) same_cloud: SameCloud,
    pub(crate) cluster: ClusterId,
    /// The name of this program in the annotation [`evidence::INSTANCE`]; None with the default Lease.
    instance: Option<String>,
    pub(crate) services: Store<Service>,
    /// The annotations that the provider has written although its traits do not name them.
    written: Arc<Mutex<BTreeSet<String>>>,
    pub(crate) nodes: Store<Node>,
    pub(crate) queue: WorkQueue<Name>,
    pub(crate) slow: WorkQueue<Name>,
    pub(crate) balancers: Arc<Balancers>,
    /// The set of nodes that load balancers are to have now.
    pub(crate) node_set: watch::Sender<Arc<NodeSet>>,
    /// The labels that the nodes of that set have. Who changes the set holds the lock.
    pub(crate) label_keys: Arc<Mutex<LabelKeys>>,
    /// The marks of nodes that went since the last comparison.
    pub(crate) went: Arc<Mutex<Marks>>,
    /// Wakes the comparison of the nodes with that set.
    pub(crate) nodes_changed: Arc<Notify>,
    /// When that set went out.
    pub(crate) published: Arc<Mutex<Instant>>,
    /// Wakes the audit.
    pub(crate) audit: Passes,
    /// Wakes the poll of load balancers on which the cloud works.
    pub(crate) poll: Arc<Notify>,
    /// The load balancers without a Service, as this leader has seen them.
    pub(crate) orphans: Arc<Mutex<Orphans>>,
    /// The load balancers that are gone or have failed, as this leader has seen them.
    pub(crate) losses: Arc<Mutex<Losses>>,
    /// The Services whose finalizer no known controller removes.
    pub(crate) unclaimed: Arc<Unclaimed>,
    /// The Services by namespace.
    rooms: Arc<Rooms>,
    /// The addresses that the cluster itself uses.
    pub(crate) in_use: Arc<RwLock<InUse>>,
    /// Wakes the deletion of orphans.
    pub(crate) deletions: Passes,
    /// What the Lease approves.
    pub(crate) approved: Arc<Mutex<lease::Approved>>,
    pub(crate) reports: ServiceReports,
    pub(crate) plans: Plans,
    pub(crate) settings: watch::Receiver<Arc<ServiceSettings>>,
    pub(crate) metrics: ServiceMetrics,
    pub(crate) repeats: RepeatMetrics,
    pub(crate) timeline: Timeline,
    /// See [`Inputs::revision`].
    revision: Arc<AtomicU64>,
}

impl Handles {
    pub(crate) fn new<P>(context: &Context<P>, cluster: ClusterId) -> Self
    where
        P: Program<Settings = ServiceSettings>,
    {
        let metrics = ServiceMetrics::new(&context.metrics);
        let queues = QueueMetrics::new(&context.metrics);
        Self {
            cloud: Arc::clone(&context.cloud),
            same_cloud: context.same_cloud.clone(),
            cluster,
            instance: instance::<P>(&context.common.borrow().election),
            services: Store::new(),
            written: Arc::default(),
            nodes: Store::new(),
            queue: WorkQueue::grouped(QUEUE, queue_config(), &queues, namespace),
            slow: WorkQueue::grouped(SLOW_QUEUE, queue_config(), &queues, namespace),
            balancers: Arc::default(),
            node_set: watch::Sender::new(Arc::default()),
            label_keys: Arc::default(),
            went: Arc::default(),
            nodes_changed: Arc::default(),
            published: Arc::new(Mutex::new(Instant::now())),
            audit: Passes::default(),
            poll: Arc::default(),
            orphans: Arc::default(),
            losses: Arc::default(),
            unclaimed: Arc::default(),
            rooms: Arc::default(),
            in_use: Arc::default(),
            deletions: Passes::default(),
            approved: Arc::default(),
            reports: ServiceReports::new(context.events.clone()),
            plans: context.plans.clone(),
            settings: context.settings.clone(),
            metrics,
            repeats: RepeatMetrics::beginning(&context.metrics, "Service", "finalizer"),
            timeline: Timeline::begin(),
            revision: Arc::default(),
        }
    }

    /// Counts the Services of type LoadBalancer that this program does not serve, by class. Nothing is
    /// stored for them.
    pub(crate) fn not_served(&self) -> BTreeMap<Arc<str>, usize> {
        let settings = self.settings.borrow().classes();
        let mut counts = BTreeMap::new();
        for service in self.services.list().iter().filter(|service| service.is_load_balancer) {
            let class = service.details.as_ref().and_then(|details| details.class.as_deref());
            if !settings.serves(class) {
                *counts.entry(Arc::from(class.unwrap_or("none"))).or_default() += 1;
            }
        }
        crate::plan::first_classes(counts)
    }

    /// The provider's load balancers.
    ///
    /// # Errors
    ///
    /// It is not known yet whether the cloud offers them, or it has stopped to offer them.
    pub(crate) fn load_balancers(&self) -> Result<Arc<dyn LoadBalancers>, CloudError> {
        self.cloud.load_balancers()?.ok_or_else(|| {
            CloudError::new(ErrorKind::Unsupported, "the cloud does not offer load balancers")
        })
    }

    /// Records that settings or the provider have changed: calls that have failed may succeed.
    pub(crate) fn revised(&self) {
        self.revision.fetch_add(1, Ordering::Relaxed);
        self.balancers.each(|name, entry| {
            if !entry.state().failed.is_empty() {
                self.queue.add(Name::clone(name), Priority::Routine);
            }
        });
    }

    /// Follows the changes of the provider until the token is cancelled.
    pub(crate) async fn follow_provider(self, token: CancellationToken) {
        let work = async {
            let mut selector = self.default_selector();
            loop {
                self.cloud.changed().await;
                self.revised();
                let current = self.default_selector();
                if current != selector {
                    selector = current;
                    self.balancers
                        .each(|name, _| self.queue.add(Name::clone(name), Priority::Routine));
                }
            }
        };
        token.run_until_cancelled(work).await;
    }

    /// A call to the cloud with the time limit of the settings.
    pub(crate) fn call(&self, is_urgent: bool) -> Call {
        let limit = self.settings.borrow().cloud_call_timeout;
        if is_urgent { Call::waiting(limit) } else { Call::routine(limit) }
    }

    /// The classes that this program serves, and its name on Services.
    pub(crate) fn classes(&self) -> Classes {
        Classes { instance: self.instance.clone(), ..self.settings.borrow().classes() }
    }

    /// Reports the end of a creation or a change, the provider's remarks, and the reason of empty pools.
    pub(crate) fn completed(&self, service: &Service) {
        let Completed { was_announced, notes, why_empty } =
            self.balancers.with(service, Entry::completed);
        if was_announced {
            self.reports.ensured(service);
        }
        self.losses.lock().end(self.timeline.now(), &service.uid);
        self.reports.notes(service, &notes);
        if let Some(why) = why_empty {
            self.reports.no_members(service, Some(&why));
        }
    }

    /// Reports that the load balancer whose address the Service shows is gone, and which one has
    /// taken its place.
    pub(crate) fn gone(&self, service: &Service, id: &str, by: Option<&str>) {
        if self.reports.gone(service, id, by) {
            self.metrics.gone();
        }
    }

    /// Whether a user has approved what this key stands for: by a mark on the Service, or for a set.
    fn is_approved(&self, service: &Service, key: &str) -> bool {
        let Some(details) = &service.details else { return false };
        is_marked_at(service.annotation(key), details.labels.get(key), self.timeline.now())
            || self.approved.lock().covers(key, &details.labels)
    }

    /// What calls depend on now, besides their Services.
    fn inputs(&self) -> Inputs {
        let revision = self.revision.load(Ordering::Relaxed);
        Inputs { nodes: self.balancers.machine().published(), revision }
    }

    /// The plan for a Service as it is now.
    pub(crate) fn plan(&self, service: &Service, load_balancers: &dyn LoadBalancers) -> Planned {
        let (traits, settings) = (load_balancers.traits(), self.settings.borrow().clone());
        let desired = desired(service, &self.cluster, &traits);
        let (selector, is_default) = self.selector(service, load_balancers);
        let (nodes, now) = (self.node_set.borrow().clone(), self.timeline.now());
        let (approved, classes) = (self.is_approved(service, APPROVED), self.classes());
        let loss = self.loss(service, &classes, &traits, now);
        let inputs = self.inputs();
        let agreed = self.balancers.machine().digest_of(&nodes.members);
        let list = if traits.lists { self.balancers.machine().list() } else { List::Compared };
        let full = self.full(service, &classes, desired.front_end.is_some(), list);
        let (allowed, in_use) = (settings.shown(), self.in_use.read());
        let round = Round {
            service,
            desired,
            classes: &classes,
            traits: &traits,
            nodes: &nodes,
            agreed,
            selector: &selector,
            is_default,
            budget: settings.budget(),
            approved,
            adopts: settings.adopt_load_balancers,
            loss,
            held_replacement: self.held_replacement(service, loss),
            full,
            list,
            guard: (&allowed, &in_use),
            inputs,
            now,
        };
        let planned = self.balancers.with(service, |entry| entry.plan(round));
        if planned.members.changes {
            self.balancers.set_departures();
        }
        if planned.reads_members {
            self.audit.wake();
        }
        planned
    }
}

/// The name of a program with this Lease on Services. The default Lease has no name: most Services
/// belong to it, and an upgrade writes nothing to them.
fn instance<P: Program>(election: &ElectionSettings) -> Option<String> {
    let is_default = election.lease == P::IDENTITY.lease && election.namespace == "kube-system";
    (!is_default).then(|| format!("{}/{}", election.namespace, election.lease))
}

/// How often a Service may change until each change waits, and for how long.
const CHANGES: KeyRate = KeyRate { burst: 5, interval: Duration::from_secs(10) };

/// How the queues space their retries.
fn queue_config() -> QueueConfig {
    QueueConfig { waits: RETRY, key_rate: CHANGES, ..QueueConfig::default() }
}

/// The group of a Service in the queues: tenants take turns.
fn namespace(key: &Name) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.split('/').next().hash(&mut hasher);
    hasher.finish()
}
