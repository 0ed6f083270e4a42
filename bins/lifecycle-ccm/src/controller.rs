//! What the parts of the controller share, and what wakes it.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use ccm_base::clock;
use ccm_cloud::Cloud;
use ccm_controller::{instances, writer::Writer};
use ccm_kube::{
    events::EventRecorder,
    store::{Change, Store},
};
use ccm_objects::{Node, Shared as Name};
use ccm_runtime::health::Condition;
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{
    court::{At, Subject},
    docket::Docket,
    metrics::LifecycleMetrics,
    observe,
    settings::LifecycleSettings,
    tell::Told,
};

/// All nodes at one moment, as the court sees them and as they were read, in the same
/// order.
pub(crate) struct Nodes {
    pub(crate) subjects: Vec<Subject>,
    pub(crate) nodes: Vec<Arc<Node>>,
}

impl Nodes {
    /// Each node with what the court sees of it.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Subject, &Arc<Node>)> + Clone {
        self.subjects.iter().zip(&self.nodes)
    }
}

/// What the parts share.
pub(crate) struct Controller {
    pub(crate) store: Store<Node>,
    pub(crate) writer: Writer<Node>,
    pub(crate) cloud: Arc<dyn Cloud>,
    pub(crate) events: EventRecorder,
    pub(crate) settings: watch::Receiver<Arc<LifecycleSettings>>,
    pub(crate) metrics: LifecycleMetrics,
    /// The line `breaker` of `/readyz?verbose`.
    pub(crate) breaker: Condition,
    pub(crate) told: Told,
    /// Set once this replica leads: before that nothing wakes it.
    pub(crate) leads: AtomicBool,
    /// A node may have to be looked at now.
    pub(crate) wake: Notify,
    /// Cancelled when nothing new is to be begun.
    pub(crate) closing: CancellationToken,
    /// Held during a pass: whoever gets it knows that none is under way.
    pub(crate) passing: tokio::sync::Mutex<()>,
    /// Moments are counted from here.
    pub(crate) started: Instant,
    /// Nodes that appeared while this process watched, and when.
    pub(crate) appeared: Mutex<HashMap<Name, Instant>>,
    /// Who waits for a verdict; used by the passes alone.
    pub(crate) docket: Mutex<Docket>,
}

impl Controller {
    /// The settings as they are now.
    pub(crate) fn settings(&self) -> Arc<LifecycleSettings> {
        Arc::clone(&self.settings.borrow())
    }

    /// This moment, for the court.
    pub(crate) fn now(&self) -> At {
        At(self.started.elapsed())
    }

    /// Takes notice of a change of a node, on every replica. Never waits.
    pub(crate) fn changed(&self, change: &Change<Node>) {
        let matters = match change {
            Change::Added(node) => {
                // What the first list shows may have been there for long.
                if self.store.is_synced() {
                    self.appeared.lock().insert(Arc::clone(&node.name), Instant::now());
                }
                !node.is_ready()
            }
            Change::Updated { old, new } => observe::wakes(old, new),
            Change::Deleted(node) => {
                self.appeared.lock().remove(&node.name);
                self.told.forget(&node.name);
                false
            }
        };
        if matters && self.leads.load(Ordering::SeqCst) {
            self.wake.notify_one();
        }
    }

    /// All nodes as they are now. Those whose provider ID cannot be judged yet, because
    /// the provider has not said which ones are its own, are left out.
    pub(crate) fn look(&self) -> Nodes {
        let (settings, wall, appeared) = (self.settings(), clock::wall(), self.appeared.lock());
        let subject = |node: Arc<Node>| {
            let claim = instances::claim(&*self.cloud, &node)?;
            let seen = appeared.get(&node.name).map(Instant::elapsed);
            let selected = settings.node_selector.matches(&node);
            let age = observe::age(node.age(wall), seen);
            Some((observe::subject(&node, claim, selected, age), node))
        };
        let (subjects, nodes) = self.store.list().into_iter().filter_map(subject).unzip();
        Nodes { subjects, nodes }
    }
}
