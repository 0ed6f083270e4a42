//! A simulated cloud.
//!
//! [`SimCloud`] holds instances in memory and implements the provider contract over them like a
//! real cloud: lookups in batches of 500 and lists in pages of 500, each of them one call that is
//! counted and that the [`FaultPlan`] may hit. The same applies to load balancers ([`Balancers`])
//! and routes ([`Router`]). Served through `ccm_external_server` it is a cloud for separate
//! programs.

pub mod balancers;
mod batch;
mod counts;
mod fleet;
mod instance;
pub mod routes;
mod service;

use std::sync::Arc;

use async_trait::async_trait;
use ccm_cloud::{
    CallGate, Cloud, CloudError, InstanceTraits, OpenGate, PowerState, ProviderContext,
    ProviderFactory, ProviderId,
};
use parking_lot::RwLock;

pub use balancers::Balancers;
pub use counts::{Calls, LoadBalancerCalls, RouteCalls};
pub use instance::SimInstance;
pub use routes::Router;

use self::{counts::Counter, fleet::Fleet};
use crate::faults::FaultPlan;
pub use crate::faults::Operation;

/// The provider's name and the scheme of its provider IDs.
pub const SCHEME: &str = "sim";

/// The identity that this cloud reports, until a test changes it.
pub const IDENTITY: &str = "sim, project default";

/// The maximum number of nodes in one lookup call, and of instances on one page of a list.
pub const PAGE: usize = 500;

/// A cloud in memory. Clones share the state; [`SimCloud::behind`] returns a view whose
/// calls pass a gate.
#[derive(Clone)]
pub struct SimCloud {
    state: Arc<State>,
    gate: Arc<dyn CallGate>,
}

struct State {
    fleet: RwLock<Fleet>,
    balancers: Balancers,
    router: Router,
    faults: FaultPlan,
    counter: Counter,
    traits: RwLock<InstanceTraits>,
    identity: RwLock<Option<String>>,
    scheme: RwLock<String>,
    /// The cloud's only worker, for [`crate::faults::FaultEffect::OneByOne`].
    worker: tokio::sync::Mutex<()>,
}

impl Default for SimCloud {
    fn default() -> Self {
        Self::new()
    }
}

impl SimCloud {
    /// Creates an empty cloud without faults.
    pub fn new() -> Self {
        Self::with_faults(FaultPlan::default())
    }

    /// Returns an empty cloud with these faults.
    pub fn with_faults(faults: FaultPlan) -> Self {
        let (fleet, balancers, router, counter, traits, worker) = Default::default();
        let identity = RwLock::new(Some(IDENTITY.to_owned()));
        let scheme = RwLock::new(SCHEME.to_owned());
        let state =
            State { fleet, balancers, router, faults, counter, traits, identity, scheme, worker };
        Self { state: Arc::new(state), gate: Arc::new(OpenGate) }
    }

    /// Returns this cloud, reached through a gate.
    #[must_use]
    pub fn behind(&self, gate: Arc<dyn CallGate>) -> Self {
        Self { state: Arc::clone(&self.state), gate }
    }

    /// Changes the traits of this cloud, for instance to one without a list.
    pub fn set_traits(&self, traits: InstanceTraits) {
        *self.state.traits.write() = traits;
    }

    /// Returns the identity that this cloud reports, or `None` if it cannot tell.
    pub fn identity(&self) -> Option<String> {
        self.state.identity.read().clone()
    }

    /// Changes the identity that this cloud reports. Its contents stay.
    pub fn set_identity(&self, identity: Option<&str>) {
        *self.state.identity.write() = identity.map(str::to_owned);
    }

    /// Returns the scheme whose provider IDs this cloud says are its.
    pub fn scheme(&self) -> String {
        self.state.scheme.read().clone()
    }

    /// Changes the scheme that this cloud names as its own. Its instances keep their provider IDs.
    pub fn set_scheme(&self, scheme: &str) {
        scheme.clone_into(&mut self.state.scheme.write());
    }

    /// Returns the faults, to be added and cleared.
    pub fn faults(&self) -> &FaultPlan {
        &self.state.faults
    }

    /// Returns the load balancers.
    pub fn balancers(&self) -> &Balancers {
        &self.state.balancers
    }

    /// Returns the router, with the routes of all clusters.
    pub fn router(&self) -> &Router {
        &self.state.router
    }

    /// Returns the calls so far, as the cloud would bill them, including refused and failed ones.
    pub fn calls(&self) -> Calls {
        self.state.counter.read()
    }

    /// Resets the counts and returns the old ones.
    pub fn reset_calls(&self) -> Calls {
        self.state.counter.reset()
    }

    /// Adds an instance, or replaces the one with the same ID.
    pub fn add(&self, instance: SimInstance) -> ProviderId {
        let id = instance.provider_id();
        self.state.fleet.write().insert(instance);
        id
    }

    /// Adds the instances numbered `from` to `from + count - 1` (see
    /// [`SimInstance::numbered`]) and returns them.
    pub fn add_many(&self, from: usize, count: usize) -> Vec<SimInstance> {
        let instances: Vec<_> = (from..from + count).map(SimInstance::numbered).collect();
        let mut fleet = self.state.fleet.write();
        for instance in &instances {
            fleet.insert(instance.clone());
        }
        instances
    }

    /// Returns the instance with this ID (the part of the provider ID after `sim://`).
    pub fn get(&self, id: &str) -> Option<SimInstance> {
        self.state.fleet.read().get(id).cloned()
    }

    /// Returns the first instance with this name.
    pub fn find(&self, name: &str) -> Option<SimInstance> {
        self.state.fleet.read().named(name).first().map(|instance| (*instance).clone())
    }

    /// Returns all instances, by ID.
    pub fn all(&self) -> Vec<SimInstance> {
        self.state.fleet.read().iter().cloned().collect()
    }

    /// Changes an instance. Returns false if no instance has this ID.
    pub fn update(&self, id: &str, change: impl FnOnce(&mut SimInstance)) -> bool {
        let mut fleet = self.state.fleet.write();
        let Some(mut instance) = fleet.remove(id) else { return false };
        change(&mut instance);
        id.clone_into(&mut instance.id);
        fleet.insert(instance);
        true
    }

    /// Starts, stops or moves an instance. Returns false if no instance has this ID.
    pub fn set_power(&self, id: &str, power: PowerState) -> bool {
        self.update(id, |instance| instance.power = power)
    }

    /// Deletes an instance.
    pub fn remove(&self, id: &str) -> Option<SimInstance> {
        self.state.fleet.write().remove(id)
    }

    /// Deletes all instances.
    pub fn clear(&self) {
        *self.state.fleet.write() = Fleet::default();
    }

    /// Returns the number of instances.
    pub fn len(&self) -> usize {
        self.state.fleet.read().len()
    }

    /// Returns true if there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Registers the simulated cloud under the name `sim`, for programs in the same process.
#[async_trait]
impl ProviderFactory for SimCloud {
    fn name(&self) -> &'static str {
        SCHEME
    }

    async fn build(&self, context: ProviderContext) -> Result<Arc<dyn Cloud>, CloudError> {
        Ok(Arc::new(self.behind(context.gate)))
    }
}

#[cfg(test)]
mod tests;
