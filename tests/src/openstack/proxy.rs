//! A reverse proxy in front of each service, on loopback. It counts the programs' requests and
//! injects faults on request.
//!
//! Keystone's answers pass through the proxy, which replaces the services' addresses with its
//! own. So the programs send all requests to the proxy.
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! use std::time::Duration;
//!
//! use ccm_tests::openstack::{
//!     Service,
//!     proxy::{Effect, Fault, FaultProxy},
//! };
//!
//! let proxy = FaultProxy::start().await?;
//! proxy.faults().add(Fault::new(Effect::throttle(Some(Duration::from_secs(2)))).on(Service::Compute).times(3));
//! proxy.faults().add(Fault::new(Effect::Hang).on(Service::Network).path("/v2.0/ports"));
//! # Ok(())
//! # }
//! ```

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc};

use anyhow::{Context as _, Result};
use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::Service;

mod fault;
mod forward;
mod log;
mod serve;
mod spoil;
#[cfg(test)]
mod tests;

pub use fault::{Effect, Fault, FaultId, Faults};
pub use log::{Log, Request, tally};

/// The proxied services, and the faults.
pub struct FaultProxy {
    shared: Arc<Shared>,
    /// The running listeners.
    listeners: Mutex<BTreeMap<Service, JoinSet<()>>>,
}

/// The state that all connections share.
struct Shared {
    faults: Faults,
    log: Log,
    upstream: forward::Upstream,
    /// The address of the proxy for each service, and the service's own address.
    places: BTreeMap<Service, Place>,
}

#[derive(Clone, Copy)]
struct Place {
    own: SocketAddr,
    upstream: SocketAddr,
}

impl FaultProxy {
    /// Starts the proxy in front of the services that `tests/openstack/up` has started.
    pub async fn start() -> Result<Self> {
        let at = |service: Service| (service, ([127, 0, 0, 1], service.port()).into());
        Self::before(Service::ALL.map(at).into()).await
    }

    /// Starts the proxy in front of services at these addresses.
    pub async fn before(upstream: BTreeMap<Service, SocketAddr>) -> Result<Self> {
        let mut places = BTreeMap::new();
        let mut bound = Vec::new();
        for (service, upstream) in upstream {
            let listener = serve::bind(([127, 0, 0, 1], 0).into()).await?;
            places.insert(service, Place { own: listener.local_addr()?, upstream });
            bound.push((service, listener));
        }
        let shared = Arc::new(Shared {
            faults: Faults::default(),
            log: Log::default(),
            upstream: forward::Upstream::new(),
            places,
        });
        let listeners = bound
            .into_iter()
            .map(|(service, listener)| (service, serve::run(listener, service, shared.clone())))
            .collect();
        Ok(Self { shared, listeners: Mutex::new(listeners) })
    }

    /// Returns the proxy's URL for a service: scheme, address and port, without a path.
    pub fn url(&self, service: Service) -> Result<String> {
        Ok(format!("http://{}", self.shared.place(service)?.own))
    }

    /// Returns the `auth-url` for the programs.
    pub fn auth_url(&self) -> Result<String> {
        Ok(format!("{}/v3", self.url(Service::Identity)?))
    }

    /// Returns the faults in force, to add to and to clear.
    pub fn faults(&self) -> &Faults {
        &self.shared.faults
    }

    /// Returns the requests so far.
    pub fn log(&self) -> &Log {
        &self.shared.log
    }

    /// Refuses new connections to this service and cuts open ones, like a host without the
    /// service.
    pub async fn pause(&self, service: Service) {
        let running = self.listeners.lock().remove(&service);
        if let Some(mut running) = running {
            running.shutdown().await;
        }
    }

    /// Listens again, at the same address.
    pub async fn resume(&self, service: Service) -> Result<()> {
        let listener = serve::bind(self.shared.place(service)?.own).await?;
        let running = serve::run(listener, service, self.shared.clone());
        self.listeners.lock().insert(service, running);
        Ok(())
    }

    /// Removes all faults and listens for every service.
    pub async fn restore(&self) -> Result<()> {
        self.faults().clear();
        for service in self.shared.places.keys().copied() {
            let listens = self.listeners.lock().contains_key(&service);
            if !listens {
                self.resume(service).await?;
            }
        }
        Ok(())
    }
}

impl Shared {
    fn place(&self, service: Service) -> Result<Place> {
        self.places.get(&service).copied().with_context(|| format!("no proxy before {service}"))
    }
}
