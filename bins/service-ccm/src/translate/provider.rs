//! Tells the machine the offer of the provider, and the addresses of the API server.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Duration};

use ccm_cloud::{CloudError, ErrorKind, LoadBalancers, NodeSelector};
use ccm_objects::Service;
use tokio::{net::lookup_host, time::sleep};
use tokio_util::sync::CancellationToken;

use super::Translator;
use crate::{
    machine::event::{Event, Offer},
    plan::front_end::settings,
};

/// How often the name of the API server is resolved.
const RESOLVE: Duration = Duration::from_mins(5);
/// How often it is resolved while that fails: until then a Service may show the address of the API
/// server.
const AGAIN: Duration = Duration::from_secs(10);

impl Translator {
    /// Returns the provider's load balancers. The machine knows then what the provider offers.
    ///
    /// # Errors
    ///
    /// It is not known yet whether the cloud offers them, or it has stopped offering them.
    pub(crate) fn load_balancers(&self) -> Result<Arc<dyn LoadBalancers>, CloudError> {
        self.offered(false)
    }

    fn offered(&self, has_changed: bool) -> Result<Arc<dyn LoadBalancers>, CloudError> {
        // An offer that was read before another one must not be reported after it.
        let telling = self.telling.lock();
        let found = self.cloud.load_balancers().and_then(|found| {
            found.ok_or_else(|| {
                CloudError::new(ErrorKind::Unsupported, "the cloud does not offer load balancers")
            })
        });
        let offer = found.as_ref().map_err(CloudError::clone).map(|found| Offer {
            traits: found.traits(),
            selector: found.selector(&BTreeMap::new()),
        });
        if has_changed || !self.performer.door.read(|machine, _| machine.knows(&offer)) {
            let offer = Box::new(offer);
            self.performer.apply(Event::Offered { offer, has_changed });
        }
        drop(telling);
        found
    }

    /// Tells the store which parts of Services the machine reads.
    pub(crate) fn begin_to_read(&self) {
        drop(self.load_balancers());
        let reading = self.performer.door.read(|machine, _| machine.reading());
        self.services.keep(Some(reading));
    }

    /// Follows the changes of the provider until the token is cancelled.
    pub(crate) async fn follow_provider(self: Arc<Self>, token: CancellationToken) {
        let work = async {
            loop {
                self.cloud.changed().await;
                drop(self.offered(true));
            }
        };
        token.run_until_cancelled(work).await;
    }

    /// Follows the addresses of the API server, which is `host:port`, until the token is cancelled. Without an
    /// answer about its name the last addresses stay.
    pub(crate) async fn follow_api_server(
        self: Arc<Self>,
        server: String,
        token: CancellationToken,
    ) {
        let work = async {
            loop {
                let found = lookup_host(&*server).await;
                let next = if found.is_ok() { RESOLVE } else { AGAIN };
                if let Ok(found) = found {
                    let found: Vec<IpAddr> = found.map(|address| address.ip()).collect();
                    self.performer.apply(Event::ApiServer(found));
                }
                sleep(next).await;
            }
        };
        token.run_until_cancelled(work).await;
    }
}

/// Returns the nodes that may be members of the load balancer of this Service.
pub(super) fn selector(service: &Service, load_balancers: &dyn LoadBalancers) -> NodeSelector {
    let traits = load_balancers.traits();
    let details = service.details.as_deref().filter(|_| traits.member_labels);
    details.map(|details| load_balancers.selector(&settings(details, &traits))).unwrap_or_default()
}
