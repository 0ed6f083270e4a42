//! Whose the finalizer of a Service is: all cloud controllers share one.
//!
//! The API server removes the class of a Service whose type changes. So a Service that asks for no
//! load balancer any more says by what was written to it who has served it, or not at all.

use std::collections::BTreeMap;

use ccm_objects::{Service, service_keys};

use super::{Classes, Known, List, Plan, View, reason::PROVISIONING, status::ID};

/// The annotation with namespace and name of the Lease of the service-ccm that serves a Service. One
/// without it is that of the default Lease.
pub const INSTANCE: &str = "quartet.dev/load-balancer-controller";

/// Who has written to a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// This program.
    Ours,
    /// Another service-ccm, with a Lease of its own.
    Anothers,
    /// Nothing shows that any service-ccm has.
    Nobodys,
}

/// What may be done for a Service that this program is not to serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Its load balancer is deleted, then the finalizer is removed.
    All,
    /// Its load balancer is deleted. What is on the Service is another one's.
    LoadBalancer,
    /// Nothing.
    Nothing,
}

impl Classes {
    /// Whether a Service is of the type and of a class that is served. The class of another type is
    /// not known.
    pub fn cover(&self, service: &Service) -> bool {
        let class = service.details.as_ref().and_then(|details| details.class.as_deref());
        service.is_load_balancer && self.serves(class)
    }

    /// Whose a Service is, by what is on it. Annotations are copied with a manifest, conditions are
    /// not: where the class says that it is another controller's, only the condition counts.
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

    /// The annotations that say that a Service is this program's.
    pub fn signature(&self) -> BTreeMap<String, Option<String>> {
        [(INSTANCE.to_owned(), self.instance.clone())].into()
    }
}

impl View<'_> {
    /// Whether the Service is to have a load balancer of this program.
    pub(super) fn wants(&self) -> bool {
        self.classes.cover(self.service) && !self.service.deleting
    }

    /// Whose the Service is.
    pub(super) fn whose(&self) -> Whose {
        self.classes.whose(self.service)
    }

    /// What may be done for a Service with the finalizer that is not [wanted](Self::wants).
    pub(super) fn part(&self) -> Part {
        let (service, state) = (self.service, self.state);
        let serves = self.classes.cover(service);
        let asks = service.is_load_balancer && !service.deleting;
        let is_there = matches!(state.known, Known::There(_));
        let is_recorded = matches!(state.known, Known::Recorded { .. });
        // What a setting takes away from Services that ask for a load balancer is no more than what
        // the cloud shows. That a list does not show it is no evidence: it may be in the cloud of
        // another service-ccm.
        let is_known = is_there || state.proved_absent;
        let all = match self.whose() {
            Whose::Ours => !asks || is_known,
            Whose::Nobodys => serves || is_there || is_recorded && !asks || state.proved_absent,
            Whose::Anothers => serves,
        };
        if all {
            return Part::All;
        }
        // It may be what the other one uses, in a cloud of both.
        let named = service.annotation(ID);
        let is_left = !asks || named.is_some() && named != state.id();
        if is_there && is_left { Part::LoadBalancer } else { Part::Nothing }
    }
}

/// Why the finalizer stays, if no controller is known that removes it: not before the cloud has been
/// looked at. The class of a Service says who is responsible.
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
        "the Service is not of the type LoadBalancer and has the finalizer {finalizer}, and {whose}; this service-ccm has no load balancer of it and leaves it alone. If no controller removes the finalizer: kubectl patch service -n {namespace} {name} --type=strategic -p '{{\"metadata\":{{\"$deleteFromPrimitiveList/finalizers\":[\"{finalizer}\"]}}}}'"
    ))
}

#[cfg(test)]
mod tests;
