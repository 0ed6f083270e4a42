//! template-ccm: the template for new controllers. It is complete and is tested like the
//! others, but not installed: it keeps the annotation `quartet.dev/instance-name` of each node
//! equal to the name of the node's instance.
//!
//! ```text
//! informer --node changed--> queue --name--> one lookup in the cloud --> plan --> execute --> API server
//!                              ^                                                     |
//!                              +------- retry: period, conflict, back-off -----------+
//! ```
//!
//! | module | what it contains | what to change in a copy |
//! |---|---|---|
//! | [`plan`] | the steps for one node: pure | everything; this is the controller |
//! | `observe` | queues changed nodes, looks one node up in the cloud | the kind of object, which changes matter, the cloud call |
//! | `execute` | executes a plan, schedules the next sync | the requests; keep the error handling |
//! | `report` | events and log lines | the texts |
//! | `settings` | flags | the declarations |
//! | `metrics` | `ccm_template_*` | the declarations |
//! | this file | joins the parts: what each replica does, what the leader does, the drain | the kind of object, the rights |
//!
//! This controller works by key: it processes many objects concurrently, each on its own. A
//! controller that compares all objects at once works in passes ([`ccm_controller::passes`];
//! lifecycle-ccm is one). A controller with many objects looks up many of them in one cloud
//! call ([`get_batch`](ccm_controller::queue::WorkQueue::get_batch); node-ccm does).

mod execute;
mod metrics;
mod observe;
pub mod plan;
mod report;
mod settings;

use std::sync::Arc;

use ccm_cloud::Capability;
use ccm_controller::{
    own_node,
    queue::{QueueMetrics, WorkQueue},
    watch::{self, Watches},
    workers,
    writer::{self, Writer},
};
use ccm_kube::store::Store;
use ccm_objects::{Node, Shared as Name};
use ccm_runtime::{
    metrics::Metrics,
    program::{Context, Failure, Identity, Need, Program},
    programs,
    rights::Right,
};

pub use settings::TemplateSettings;

use crate::{
    execute::Executor,
    metrics::TemplateMetrics,
    observe::{Observer, QUEUE},
};

/// The number of workers.
const WORKERS: usize = 8;

/// The program.
pub struct TemplateCcm {
    observer: Arc<Observer>,
    store: Store<Node>,
    queue: WorkQueue<Name>,
}

impl Program for TemplateCcm {
    const IDENTITY: Identity = programs::TEMPLATE_CCM;
    type Settings = TemplateSettings;

    fn needs(_: &Self::Settings) -> Vec<Need> {
        vec![Need::Required(Capability::Instances)]
    }

    fn specimens(metrics: &Metrics) {
        TemplateMetrics::new(metrics).specimens();
        QueueMetrics::new(metrics).specimens(QUEUE);
        watch::metrics(metrics).specimens_of::<Node>();
    }

    /// One line for each kind of request that the modules send.
    fn rights() -> Vec<Right> {
        let writes = [writer::patch::<Node>(), Right::mark("nodes")];
        [watch::rights::<Node>().as_slice(), &writes].concat()
    }

    /// Runs on every replica, so that a standby has the nodes when it takes over.
    async fn prepare(context: &Context<Self>) -> Result<Self, Failure> {
        let (store, queue) = (Store::new(), observe::queue(&context.metrics));
        let observer = Arc::new(Observer::new(context, store.clone(), queue.clone()));
        let listener = Arc::clone(&observer);
        Watches::new(context).watch(&store, move |change| listener.changed(&change)).await;
        own_node::check(context, &store);
        Ok(Self { observer, store, queue })
    }

    fn lead(self: Arc<Self>, context: &Context<Self>) {
        let writer = Writer::new(context, &self.store);
        let (observer, queue) = (Arc::clone(&self.observer), self.queue.clone());
        let executor = Arc::new(Executor::new(context, observer, queue.clone(), writer));
        let work = move |name| Arc::clone(&executor).work(name);
        let workers = workers::by_key(queue, || WORKERS, context.token.clone(), work);
        context.supervisor.spawn("workers", workers);
        self.observer.start_leading();
    }

    async fn drain(&self) {
        self.observer.close();
        self.queue.drained().await;
    }
}
