//! Turns changes and answers into events.

mod due;
mod nodes;
mod note;
mod provider;
mod services;

use std::sync::Arc;

use ccm_cloud::{Call, Cloud};
use ccm_kube::store::{Change, Store};
use ccm_objects::{Node, Service};
use ccm_runtime::{
    program::{Context, Program},
    same_cloud::SameCloud,
    settings::ElectionSettings,
};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::{
    machine::{Machine, event::Changed},
    perform::Performer,
    settings::ServiceSettings,
};

/// The sources of events, and the performer of their effects.
pub(crate) struct Translator {
    pub(crate) cloud: Arc<dyn Cloud>,
    /// Checks that this is the cloud in which the load balancers were made.
    same_cloud: SameCloud,
    pub(crate) services: Store<Service>,
    pub(crate) nodes: Store<Node>,
    pub(crate) settings: watch::Receiver<Arc<ServiceSettings>>,
    /// The name of this program in the annotation [`INSTANCE`](crate::plan::evidence::INSTANCE);
    /// `None` with the default Lease.
    instance: Option<String>,
    pub(crate) performer: Arc<Performer>,
    /// Is locked while the machine is told what the provider offers.
    telling: Mutex<()>,
}

impl Translator {
    /// Begins with the machine of this cluster.
    pub(crate) fn new<P>(context: &Context<P>, cluster: ccm_cloud::ClusterId) -> Arc<Self>
    where
        P: Program<Settings = ServiceSettings>,
    {
        let settings = context.settings.clone();
        let instance = instance::<P>(&context.common.borrow().election);
        let parameters = settings.borrow().parameters(instance.clone());
        let machine = Machine::new(cluster.clone(), parameters, context.plans.is_observing());
        Arc::new(Self {
            cloud: Arc::clone(&context.cloud),
            same_cloud: context.same_cloud.clone(),
            services: Store::new(),
            nodes: Store::new(),
            settings,
            instance,
            performer: Performer::new(context, cluster, machine),
            telling: Mutex::new(()),
        })
    }

    /// Returns a call to the cloud with the time limit of the settings.
    pub(crate) fn call(&self, is_urgent: bool) -> Call {
        let limit = self.settings.borrow().cloud_call_timeout;
        if is_urgent { Call::waiting(limit) } else { Call::routine(limit) }
    }
}

/// Returns the object before and after a change.
fn changed<K>(change: &Change<K>) -> Changed<K> {
    let (old, new) = match change {
        Change::Added(new) => (None, Some(new)),
        Change::Updated { old, new } => (Some(old), Some(new)),
        Change::Deleted(old) => (Some(old), None),
    };
    Changed { old: old.cloned(), new: new.cloned() }
}

/// Returns the name of a program with this Lease on Services. The default Lease has no name: most
/// Services belong to it, and an upgrade writes nothing to them.
fn instance<P: Program>(election: &ElectionSettings) -> Option<String> {
    let is_default = election.lease == P::IDENTITY.binary && election.namespace == "kube-system";
    (!is_default).then(|| format!("{}/{}", election.namespace, election.lease))
}
