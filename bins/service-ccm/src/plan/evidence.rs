//! Finds the controller that the finalizer of a Service belongs to: all cloud controllers use the
//! same name.
//!
//! The API server removes the class of a Service whose type changes. After that only the conditions
//! and annotations of the Service can show which controller has served it.

use std::collections::BTreeMap;

use ccm_objects::{Service, service_keys};

use super::{
    Classes, Known, List, Plan, RELEASE_APPROVED, View, approving_mark, reason::PROVISIONING,
    status::ID,
};

/// The annotation with namespace and name of the Lease of the service-ccm that serves a Service.
/// Services of a service-ccm with the default Lease do not have it.
pub const INSTANCE: &str = "quartet.dev/load-balancer-controller";

/// The controller that has written to a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// This program.
    Ours,
    /// Another service-ccm with its own Lease.
    Anothers,
    /// Unknown: the Service does not show that any service-ccm has written to it.
    Nobodys,
}

/// The part that this program may clean up for a Service that is not [wanted](View::wants).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CleanUp {
    /// It deletes the load balancer, then removes the finalizer.
    All,
    /// It deletes the load balancer. The finalizer and the status belong to another controller.
    LoadBalancer,
    /// Nothing.
    Nothing,
}

/// Returns the class of a Service.
pub fn class(service: &Service) -> Option<&str> {
    service.details.as_ref()?.class.as_deref()
}

impl Classes {
    /// Returns true if a Service has the type LoadBalancer and a class that this program serves.
    /// The API server does not keep the class of a Service of another type.
    pub fn cover(&self, service: &Service) -> bool {
        service.is_load_balancer && self.serves(class(service))
    }

    /// Returns which service-ccm has written to a Service. A manifest copies annotations, but not
    /// conditions: if the class belongs to another controller, only the condition counts.
    pub fn whose(&self, service: &Service) -> Whose {
        let instance = service.annotation(INSTANCE);
        let is_annotated = instance.is_some() || service.annotation(ID).is_some();
        let has_class_of_others = service.is_load_balancer && !self.cover(service);
        let shows = service.condition(PROVISIONING).is_some();
        match shows || is_annotated && !has_class_of_others {
            false => Whose::Nobodys,
            true if instance == self.instance.as_deref() => Whose::Ours,
            true => Whose::Anothers,
        }
    }

    /// Returns true if anything on a Service shows that a service-ccm has written to it. Whoever
    /// removes the finalizer in the name of a service-ccm removes all of that in the same write.
    pub fn is_marked(service: &Service) -> bool {
        let has_annotation = [ID, INSTANCE].iter().any(|key| service.annotation(key).is_some());
        has_annotation || service.condition(PROVISIONING).is_some()
    }

    /// Returns the annotations that mark a Service as served by this program.
    pub fn signature(&self) -> BTreeMap<String, Option<String>> {
        [(INSTANCE.to_owned(), self.instance.clone())].into()
    }
}

impl View<'_> {
    /// Returns true if the Service should have a load balancer of this program.
    pub(super) fn wants(&self) -> bool {
        self.classes.cover(self.service) && !self.service.deleting
    }

    /// Returns which service-ccm has written to the Service.
    pub(super) fn whose(&self) -> Whose {
        self.classes.whose(self.service)
    }

    /// Returns true if only the settings exclude a Service that asks for a load balancer: one wrong
    /// setting excludes all Services at once, so each load balancer stays until a user releases it.
    pub(super) fn holds_release(&self) -> bool {
        let asks = self.service.is_load_balancer && !self.service.deleting;
        asks && !self.wants() && !self.may_release && !self.state.proved_absent
    }

    /// Returns true if the finalizer of a service-ccm has been removed already, by a write whose answer
    /// was lost or by another replica: the marks went with it. If the Service has a finalizer, another
    /// controller has set that since.
    fn is_released(&self) -> bool {
        self.state.was_marked && !Classes::is_marked(self.service)
    }

    /// Returns what to clean up for a Service with the finalizer that is not [wanted](Self::wants).
    pub(super) fn part(&self) -> CleanUp {
        let (service, state) = (self.service, self.state);
        let serves = self.classes.cover(service);
        let asks = service.is_load_balancer && !service.deleting;
        let is_there = state.balancer().is_some();
        let is_recorded = matches!(state.known, Known::Recorded { .. });
        // If a change of settings excludes a Service that still asks for a load balancer, only the
        // cloud's word counts, if it has lists. A list without the load balancer does not prove that
        // it is gone: the cloud of another service-ccm may have it.
        let is_known = is_there || state.proved_absent || is_recorded && !self.traits.lists;
        let all = match self.whose() {
            Whose::Ours => !asks || is_known,
            Whose::Nobodys => {
                let is_proved = state.proved_absent && !self.is_released();
                serves || is_there || is_recorded && !asks || is_proved
            }
            Whose::Anothers => serves,
        };
        if all {
            return CleanUp::All;
        }
        // In a shared cloud another service-ccm may use this load balancer.
        let named = service.annotation(ID);
        let is_left = !asks || named.is_some() && named != state.id();
        if is_there && is_left { CleanUp::LoadBalancer } else { CleanUp::Nothing }
    }
}

/// Returns why the load balancer of a Service stays although service-ccm does not serve the class of
/// the Service.
pub fn held_release(view: View<'_>) -> Option<String> {
    let id = view.state.id()?;
    if !view.holds_release() || !view.service.has_finalizer || view.part() == CleanUp::Nothing {
        return None;
    }
    let class = class(view.service);
    let class =
        class.map_or("Services without a class".to_owned(), |class| format!("class {class}"));
    Some(format!(
        "the settings of this service-ccm exclude {class}: load balancer {id} of this Service stays, and its members follow the nodes while the cloud can change it; serve the class again, or approve the deletion with the annotation {}",
        approving_mark(view.service, RELEASE_APPROVED)
    ))
}

/// Returns why the finalizer stays, if no known controller removes it. `None` before the first
/// comparison with the cloud, and for the type LoadBalancer: the class names the controller.
pub fn unclaimed(view: View<'_>, plan: &Plan) -> Option<String> {
    let service = view.service;
    let is_left = service.has_finalizer && !service.is_load_balancer && *plan == Plan::NotOurs;
    if !is_left || view.list != List::Compared {
        return None;
    }
    let whose = match (view.whose(), service.annotation(INSTANCE)) {
        (Whose::Anothers, Some(lease)) => {
            format!("it was served by the service-ccm with the Lease {lease}")
        }
        (Whose::Anothers, None) => {
            "it was served by the service-ccm with the default Lease".to_owned()
        }
        _ => "nothing on it shows which controller has set that".to_owned(),
    };
    let ((namespace, name), finalizer) = (service.names(), service_keys::CLEANUP);
    Some(format!(
        "the Service is not of the type LoadBalancer and has the finalizer {finalizer}, and {whose}; this service-ccm does not have a load balancer for it and does not touch it. If no controller removes the finalizer: kubectl patch service -n {namespace} {name} --type=strategic -p '{{\"metadata\":{{\"$deleteFromPrimitiveList/finalizers\":[\"{finalizer}\"]}}}}'"
    ))
}

#[cfg(test)]
mod tests;
