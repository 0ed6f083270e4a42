//! The skeleton of a controller, to be copied: it keeps the annotation `quartet.dev/instance-name` of each node equal
//! to the name of the node's instance.
//!
//! ```text
//! informer --node changed--> queue --name--> lookup in the cloud --> plan --> patch --> API server
//!                              ^                                                |
//!                              +------ period, conflict, back-off --------------+
//! ```

use std::{
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use ccm_base::duration;
use ccm_cloud::{Call, Capability, Claim, Detail, Instance, Lookup};
use ccm_controller::{
    instances, own_node,
    queue::{Priority, QueueConfig, QueueMetrics, WorkQueue},
    watch::{self, Watches},
    workers,
    writer::{self, Stopped, Writer},
};
use ccm_kube::{
    ApiError,
    store::{Change, Store},
    write::Patch,
};
use ccm_objects::{Node, Shared as Name};
use ccm_runtime::{
    metrics::Metrics,
    program::{Context, Failure, Identity, Need, Program},
    rights::Right,
    settings::cloud_call_timeout,
};
use ccm_settings::at_least;
use serde::Serialize;

/// The annotation that the controller owns. The informer keeps only annotations that begin with `quartet.dev/`.
pub const INSTANCE_NAME: &str = "quartet.dev/instance-name";
/// The queue's name in its metrics.
const QUEUE: &str = "skeleton";
/// The number of workers.
const WORKERS: usize = 8;

ccm_settings::settings! {
    /// The settings. Each declaration generates the flag, the key in the file, the environment variable, the check and
    /// the reference page.
    #[derive(Clone, Debug, PartialEq, Serialize)]
    pub struct SkeletonSettings {
        /// Interval between cloud lookups of the instance name of each node. At least 1s.
        #[serde(serialize_with = "duration::serialize")]
        pub instance_name_period: Duration = live(Duration, "instance-name-period", "10m0s"),
            at_least("1s");
        /// Time limit of one lookup, including retries and waiting for the rate limit. From 1s to 10m0s.
        #[serde(serialize_with = "duration::serialize")]
        pub cloud_call_timeout: Duration = live(Duration, "cloud-call-timeout", "30s"), cloud_call_timeout;
    }
}

/// Plans the step for a node whose instance is known: the value to write, if it differs. The
/// decisions of a controller are pure functions like this one, so that a table of cases tests them.
fn plan(node: &Node, instance: &Instance) -> Option<String> {
    let known = node.annotations.get(INSTANCE_NAME);
    let is_right = known.is_some_and(|known| **known == *instance.name);
    (!node.deleting && !is_right).then(|| instance.name.clone())
}

/// The program, as each replica has it.
pub struct Skeleton {
    store: Store<Node>,
    queue: WorkQueue<Name>,
    /// It is set once this replica leads. Nothing is queued earlier.
    leads: Arc<AtomicBool>,
}

impl Program for Skeleton {
    // A controller of this repository has its identity in the list of programs.
    const IDENTITY: Identity = Identity {
        binary: "skeleton-ccm",
        controller: "skeleton-controller",
        alias: "skeleton",
        port: 10298,
        event_component: "skeleton-controller",
    };
    type Settings = SkeletonSettings;

    fn needs(_: &Self::Settings) -> Vec<Need> {
        vec![Need::Required(Capability::Instances)]
    }

    fn specimens(metrics: &Metrics) {
        QueueMetrics::new(metrics).specimens(QUEUE);
        watch::metrics(metrics).specimens_of::<Node>();
    }

    /// Returns one line for each kind of request.
    fn rights() -> Vec<Right> {
        let writes = [writer::patch::<Node>(), Right::mark("nodes")];
        [watch::rights::<Node>().as_slice(), &writes].concat()
    }

    /// Runs on every replica, so that a standby has the nodes when it takes over.
    async fn prepare(context: &Context<Self>) -> Result<Self, Failure> {
        let metrics = QueueMetrics::new(&context.metrics);
        let queue = WorkQueue::new(QUEUE, QueueConfig::default(), &metrics);
        let (store, leads) = (Store::new(), Arc::new(AtomicBool::new(false)));
        let (is_leader, waiting) = (Arc::clone(&leads), queue.clone());
        let changed = move |change: Change<Node>| match change {
            _ if !is_leader.load(Ordering::SeqCst) => {}
            Change::Added(node) => waiting.add(Arc::clone(&node.name), Priority::Urgent),
            Change::Updated { new, .. } => waiting.add(Arc::clone(&new.name), Priority::Routine),
            // A node that is created again does not wait for its predecessor's failures.
            Change::Deleted(node) => waiting.remove(&node.name),
        };
        Watches::new(context).watch(&store, changed).await;
        own_node::check(context, &store);
        Ok(Self { store, queue, leads })
    }

    fn lead(self: Arc<Self>, context: &Context<Self>) {
        // It is set before the list, so that no node is missed between the list and the first
        // change.
        self.leads.store(true, Ordering::SeqCst);
        for node in self.store.list() {
            self.queue.add(Arc::clone(&node.name), Priority::Routine);
        }
        let (queue, writer) = (self.queue.clone(), Arc::new(Writer::new(context, &self.store)));
        let (cloud, settings) = (Arc::clone(&context.cloud), context.settings.clone());
        let work = move |name: Name| {
            let (this, writer, cloud) =
                (Arc::clone(&self), Arc::clone(&writer), Arc::clone(&cloud));
            let settings = settings.borrow().clone();
            async move {
                let Some(node) = this.store.get(&name) else { return this.queue.forget(&name) };
                if instances::claim(&*cloud, &node) == Some(Claim::Foreign) {
                    return;
                }
                let call = Call::routine(settings.cloud_call_timeout);
                let asked = [Arc::clone(&node)];
                let answer = instances::lookup(&*cloud, &asked, Detail::Presence, call).await.pop();
                let planned = match answer {
                    Some(Ok(Lookup::Found(instance))) => plan(&node, &instance),
                    // lifecycle-ccm decides about a node whose instance is gone.
                    Some(Ok(_)) | None => None,
                    Some(Err(error)) => {
                        tracing::warn!(node = &*name, "the cloud does not answer: {error}");
                        this.queue.retry_as(name, error.class());
                        return;
                    }
                };
                if let Some(value) = planned {
                    let annotations = [(INSTANCE_NAME.to_owned(), Some(value))].into();
                    let patch = Patch { annotations, ..Patch::default() };
                    match writer.patch(&node, &patch).await {
                        Ok(_) | Err(Stopped::Refused(ApiError::NotFound)) => {}
                        // The plan was made for an older version of the node.
                        Err(Stopped::Refused(ApiError::Conflict)) => return this.queue.retry(name),
                        Err(Stopped::Refused(error)) => {
                            tracing::warn!(node = &*name, "the node is not written: {error}");
                            this.queue.retry_as(name, error.class());
                            return;
                        }
                        // The next renewal extends a term that is too short.
                        Err(_) => return this.queue.retry(name),
                    }
                }
                this.queue.forget(&name);
                this.queue.add_after(name, settings.instance_name_period, Priority::Routine);
            }
        };
        let (queue, token) = (queue, context.token.clone());
        context.supervisor.spawn("workers", workers::by_key(queue, || WORKERS, token, work));
    }

    async fn drain(&self) {
        self.queue.shut_down();
        self.queue.drained().await;
    }
}

#[allow(dead_code, reason = "a test of the skeleton runs it without a process")]
fn main() -> ExitCode {
    ccm_runtime::program::main::<Skeleton>(ccm_providers::registry())
}
