//! Receives changes of Services and queues those that need work.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use ccm_controller::queue::Priority;
use ccm_kube::store::Change;
use ccm_objects::{Service, Shared as Name};
use tokio_util::sync::CancellationToken;

use super::Handles;

/// Receives changes of Services.
pub(crate) struct Intake {
    handles: Handles,
    /// Set once this replica leads: nothing is queued before that.
    leads: AtomicBool,
}

impl Intake {
    pub(crate) fn new(handles: &Handles) -> Self {
        Self { handles: handles.clone(), leads: AtomicBool::new(false) }
    }

    /// Queues all Services when this replica begins to lead.
    pub(crate) fn start_leading(&self) {
        // Set before listing, so that no Service is missed between the list and the first change.
        self.leads.store(true, Ordering::SeqCst);
        for service in self.handles.services.list() {
            if service.details.is_some() {
                self.handles.queue.add(Name::clone(&service.key), priority(&service));
            }
        }
    }

    /// Queues the Services that are served, or that have the finalizer, whenever settings change,
    /// until the token is cancelled: classes, adoption and limits of members apply from then on.
    /// service-ccm reports the Services that it does not serve any more.
    pub(crate) async fn follow_settings(self: Arc<Self>, token: CancellationToken) {
        let mut settings = self.handles.settings.clone();
        let work = async {
            while settings.changed().await.is_ok() {
                let classes = settings.borrow_and_update().classes();
                self.handles.revised();
                let mut services = self.handles.services.list();
                services.retain(|service| {
                    classes.cover(service) || service.is_load_balancer && service.has_finalizer
                });
                for service in services {
                    self.handles.queue.add(Name::clone(&service.key), priority(&service));
                }
            }
        };
        token.run_until_cancelled(work).await;
    }

    /// Queues a Service that its user has changed. One that changes all the time waits, but its
    /// deletion does not.
    fn add(&self, service: &Service, priority: Priority) {
        let name = Name::clone(&service.key);
        if service.is_load_balancer && !service.deleting {
            self.handles.queue.add_paced(name, priority);
        } else {
            self.handles.queue.add(name, priority);
        }
    }

    /// Queues a changed Service. The informer calls it on every replica; never blocks.
    pub(crate) fn changed(&self, change: &Change<Service>) {
        let leads = self.leads.load(Ordering::SeqCst);
        self.handles.service_in_use(change);
        self.handles.room_changed(change, leads);
        if !leads {
            return;
        }
        let queue = &self.handles.queue;
        match change {
            Change::Added(new) if new.details.is_some() => self.add(new, priority(new)),
            Change::Updated { old, new } if old.details.is_some() || new.details.is_some() => {
                // Our own write of status and conditions changes no wish.
                let same = old.is_load_balancer == new.is_load_balancer
                    && old.deleting == new.deleting
                    && old.uid == new.uid
                    && configuration(old) == configuration(new);
                if same {
                    queue.add(Name::clone(&new.key), Priority::Routine);
                } else {
                    self.add(new, Priority::Urgent);
                }
            }
            Change::Deleted(gone) if gone.details.is_some() => {
                // A Service that is created again waits for nothing of its predecessor.
                queue.remove(&gone.key);
                self.handles.slow.remove(&gone.key);
                queue.add(Name::clone(&gone.key), Priority::Routine);
            }
            // The record of writes ends with the Service.
            Change::Deleted(gone) => self.handles.balancers.machine().remove(&gone.key),
            _ => {}
        }
    }
}

/// How soon a Service is synced that this process has not seen before. One without finalizer is
/// new: its user waits.
fn priority(service: &Service) -> Priority {
    if service.has_finalizer && !service.deleting { Priority::Routine } else { Priority::Urgent }
}

/// The part of a Service that its user writes.
fn configuration(service: &Service) -> Option<ccm_objects::ServiceDetails> {
    let details = service.details.as_deref()?;
    Some(ccm_objects::ServiceDetails {
        ingress: Vec::new(),
        conditions: Vec::new(),
        ..details.clone()
    })
}
