//! Changes of Services and settings.

use std::sync::Arc;

use ccm_kube::store::Change;
use ccm_objects::Service;
use tokio_util::sync::CancellationToken;

use super::{Translator, changed};
use crate::machine::event::Event;

impl Translator {
    /// Applies the event that a Service has changed. The informer calls it on every replica; never
    /// blocks.
    pub(crate) fn service_changed(&self, change: &Change<Service>) {
        self.performer.apply(Event::Service(changed(change)));
    }

    /// Begins to lead with this replica: all Services may need work.
    pub(crate) fn start_leading(&self) {
        // This comes before the list, so that no Service is missed between the list and the first
        // change.
        self.performer.apply(Event::QueueOpens);
        self.performer.apply(Event::Services(self.services.list()));
    }

    /// Follows the settings until the token is cancelled.
    pub(crate) async fn follow_settings(self: Arc<Self>, token: CancellationToken) {
        let mut settings = self.settings.clone();
        let work = async {
            while settings.changed().await.is_ok() {
                let parameters = settings.borrow_and_update().parameters(self.instance.clone());
                let (settings, services) = (Box::new(parameters), self.services.list());
                self.performer.apply(Event::Settings { settings, services });
            }
            std::future::pending::<()>().await;
        };
        token.run_until_cancelled(work).await;
    }

    /// Returns the Services that have the type or the finalizer.
    pub(crate) fn concerned(&self) -> Vec<Arc<Service>> {
        let mut services = self.services.list();
        services.retain(|service| service.concerns_load_balancers());
        services
    }
}
