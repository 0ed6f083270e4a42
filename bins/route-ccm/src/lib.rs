//! route-ccm: the controllers that give each node its pod CIDRs, and the routes to them.
//!
//! ```text
//! informer --node changed--> routes -----calls------> cloud
//!     |                       |  ^ \--conditions----> API server
//!     |             routes, gone |
//!     |                       v assigned
//!     +--node changed--> node_ipam --pod CIDRs------> API server
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | `routes` | the routes of nodes, and their conditions |
//! | `routes::plan` | what to change in the route table, and the condition of each node: pure |
//! | `node_ipam` | gives nodes their pod CIDRs |
//! | `node_ipam::ipam` | which blocks of the cluster CIDRs nodes get: pure |
//! | `networks` | the networks of the cluster, from the flags: pure |
//! | `lease` | the data that a leader leaves to the next one |
//! | `settings` | flags |

mod lease;
mod networks;
mod node_ipam;
mod routes;
mod settings;

use std::sync::Arc;

use ccm_base::clock;
use ccm_controller::{
    cluster, own_node,
    queue::QueueMetrics,
    record::replay::{self, Replay},
    repeat_reports,
    watch::{self, Stores, Watches},
    writer::{self, Writer},
};
use ccm_kube::store::Store;
use ccm_objects::Node;
use ccm_runtime::{
    metrics::Metrics,
    program::{Context, Failure, Identity, Need, Program},
    programs,
    rights::Right,
};

pub use self::{node_ipam::ipam, routes::plan, settings::RouteSettings};

use crate::{
    lease::{Handover, Left},
    node_ipam::Term,
    routes::{
        Controller,
        metrics::{Look, RouteMetrics},
    },
};

/// Replays the records of this program.
pub const RECORDED: &[(&str, Replay)] = &[
    replay::named_replay::<routes::machine::Machine>(),
    replay::named_replay::<node_ipam::machine::Machine>(),
];

/// The program.
pub struct RouteCcm {
    routes: Arc<Controller>,
    store: Store<Node>,
    stores: Stores,
}

impl Program for RouteCcm {
    const IDENTITY: Identity = programs::ROUTE_CCM;
    type Settings = RouteSettings;

    fn needs(settings: &Self::Settings) -> Vec<Need> {
        settings.needs()
    }

    fn idle(settings: &Self::Settings) -> Option<String> {
        settings.idle()
    }

    fn specimens(metrics: &Metrics) {
        RouteMetrics::new(metrics).specimens();
        repeat_reports::specimens(metrics);
        routes::metrics::collect(metrics, || Look { room: Some(0), ..Look::default() });
        node_ipam::metrics::specimens(metrics);
        let queues = QueueMetrics::new(metrics);
        queues.specimens(routes::QUEUE);
        queues.specimens(node_ipam::QUEUE);
        watch::metrics(metrics).specimens_of::<Node>();
    }

    fn rights() -> Vec<Right> {
        // The node itself is written for its pod CIDRs, its status for the condition.
        let writes = [writer::patch::<Node>(), writer::patch_status::<Node>()];
        [watch::rights::<Node>().as_slice(), &writes, &[cluster::right()]].concat()
    }

    async fn prepare(context: &Context<Self>) -> Result<Self, Failure> {
        let store = Store::new();
        let routes = Arc::new(Controller::new(context, store.clone()).await?);
        let watcher = Arc::clone(&routes);
        let on_change = move |change| {
            watcher.apply_change(&change);
            if let Some(ipam) = watcher.ipam() {
                ipam.apply_change(&change);
            }
        };
        let freshness = Watches::new(context).watch(&store, on_change).await;
        own_node::check(context, &store);
        routes.explain(context);
        let stores = Stores::new(context, [freshness]);
        Ok(Self { routes, store, stores })
    }

    fn lead(self: Arc<Self>, context: &Context<Self>) {
        let is_observing = context.plans.is_observing();
        let (handover, left) = Handover::take_over(context.leadership.annotations());
        let (handover, Left { deleted, held, networks, sizes }) = (Arc::new(handover), left);
        let blocks = context.settings.borrow().ipam().map(|config| {
            let sizes = config.sizes(sizes, clock::wall().into());
            (config.with_sizes(sizes), sizes)
        });
        if let (Some(ipam), Some((_, sizes))) = (self.routes.ipam(), &blocks) {
            if !is_observing {
                handover.change(|left| left.sizes = Some(*sizes));
            }
            let leaves = Arc::clone(&handover);
            let term = Term {
                stores: self.stores.clone(),
                held,
                sizes: *sizes,
                leave: Box::new(move |held| leaves.change(|left| left.held = held)),
                writer: (!is_observing).then(|| Writer::new(context, &self.store)),
            };
            ipam.start(term, &context.supervisor);
        }
        let (begun, blocks) = (clock::wall().into(), blocks.map(|(config, _)| config));
        let term = routes::machine::Term { begun, deleted, networks, blocks };
        self.routes.lead(context, &self.stores, term, handover);
    }

    async fn drain(&self) {
        if let Some(ipam) = self.routes.ipam() {
            ipam.drain().await;
        }
        self.routes.drain().await;
    }
}
