//! The load balancers that a Service names by its annotations, and the errors about them.

use ccm_cloud::{CloudError, ErrorKind, LoadBalancerTraits};
use ccm_objects::Service;

use super::{
    ADOPT,
    losses::is_shown,
    status::{ID, has_address},
};

/// Returns the load balancer that a user has approved to adopt. What the Service calls its own was
/// adopted before.
pub fn to_adopt(service: &Service) -> Option<&str> {
    service.annotation(ADOPT).filter(|id| service.annotation(ID) != Some(id))
}

/// Returns the provider's annotation with the ID of a load balancer, and the ID, if this program
/// has not written it: another controller has, or a user who asks for an existing load balancer.
pub fn by_provider<'a>(
    service: &'a Service,
    traits: &'a LoadBalancerTraits,
) -> Option<(&'a str, &'a str)> {
    let key = traits.id_annotation.as_deref()?;
    let id = service.annotation(key).filter(|id| !id.is_empty())?;
    let is_own = [ADOPT, ID].iter().any(|own| service.annotation(own) == Some(id));
    (!is_own).then_some((key, id))
}

/// Returns the ID of the load balancer whose address the Service shows.
pub fn shown_id(service: &Service) -> Option<&str> {
    service.annotation(ID).filter(|_| has_address(service))
}

/// Returns the load balancer whose address the Service shows, if the one with this `id` has
/// replaced it. `known` is the ID that service-ccm knew before.
pub fn replaced<'a>(service: &'a Service, known: Option<&str>, id: &str) -> Option<&'a str> {
    let is_new = known != Some(id);
    shown_id(service).filter(|shown| is_new && *shown != id)
}

/// Returns the load balancers that a Service names: the one to adopt, its own, and the one that
/// [`by_provider`] returns.
pub fn named<'a>(service: &'a Service, traits: &'a LoadBalancerTraits) -> [Option<&'a str>; 3] {
    let by_provider = by_provider(service, traits).map(|(_, id)| id);
    [service.annotation(ADOPT), service.annotation(ID), by_provider]
}

/// Returns the error of a call that looked for the load balancer by the ID in an annotation. If the
/// load balancer belongs to another owner, the message names the annotation, because it may be a
/// copy. `known` is the ID that the cloud has shown.
pub fn of_name(
    service: &Service,
    traits: &LoadBalancerTraits,
    known: Option<&str>,
    error: CloudError,
) -> CloudError {
    if known.is_some() || error.kind != ErrorKind::Conflict {
        return error;
    }
    let keys = std::iter::once(ID).chain(traits.id_annotation.as_deref());
    let is_named = |key: &&str| service.annotation(key).is_some_and(|id| is_about(id, &error));
    let keys: Vec<&str> = keys.filter(is_named).collect();
    let (annotation, them) = match keys.len() {
        0 => return error,
        1 => ("annotation", "the annotation"),
        _ => ("annotations", "them"),
    };
    let message = format!(
        "{annotation} {}: {}; remove {them} if the Service should get another one",
        keys.join(" and "),
        error.message
    );
    CloudError { message, ..error }
}

/// Returns the ID that was copied from another Service, as by a backup: a client that restores a
/// Service brings the annotations that service-ccm has written, and no status. `known` is the ID
/// that the cloud has shown, `error` the error of the call that looked for the ID in the annotation.
pub fn copied<'a>(
    service: &'a Service,
    known: Option<&str>,
    error: &CloudError,
) -> Option<&'a str> {
    let is_anothers = error.kind == ErrorKind::Conflict && known.is_none() && !is_shown(service);
    let id = service.annotation(ID).filter(|id| is_about(id, error));
    id.filter(|_| is_anothers && to_adopt(service).is_none())
}

fn is_about(id: &str, error: &CloudError) -> bool {
    error.message.contains(id) || error.subject.as_ref().is_some_and(|subject| subject.contains(id))
}

/// Returns the error of a call that should adopt the load balancer that a Service names. It is a
/// mistake in the Service if that load balancer does not exist or cannot be adopted.
pub fn of_adoption(service: &Service, error: CloudError) -> CloudError {
    let is_mistake = matches!(error.kind, ErrorKind::NotFound | ErrorKind::Conflict);
    if !is_mistake || !to_adopt(service).is_some_and(|id| is_about(id, &error)) {
        return error;
    }
    let message = format!("annotation {ADOPT}: {}", error.message);
    CloudError { kind: ErrorKind::Invalid, message, ..error }
}

#[cfg(test)]
mod tests {
    use ccm_objects::{ServiceDetails, ServiceIngress};

    use super::*;

    fn service(id: Option<&str>) -> Service {
        let annotations = id.into_iter().map(|id| (ID.into(), id.into())).collect();
        let details = ServiceDetails { annotations, ..ServiceDetails::default() };
        Service { details: Some(Box::new(details)), ..Service::default() }
    }

    fn conflict(message: &str) -> CloudError {
        CloudError::new(ErrorKind::Conflict, message)
    }

    #[test]
    fn an_annotation_that_names_anothers_load_balancer_is_named() {
        let copy = service(Some("lb-1"));
        let own = || conflict("load balancer lb-1 is busy");
        let traits = LoadBalancerTraits::default();
        let of_name = |service: &Service, known: Option<&str>, error: CloudError| {
            of_name(service, &traits, known, error)
        };
        let error = of_name(&copy, None, conflict("load balancer lb-1 is shop/web's"));
        assert_eq!(
            error.message,
            "annotation quartet.dev/load-balancer-id: load balancer lb-1 is shop/web's; remove the annotation if the Service should get another one"
        );
        assert_eq!(error.kind, ErrorKind::Conflict);
        assert_eq!(of_name(&copy, Some("lb-1"), own()), own(), "it is known to be the Service's");
        let other = conflict("two networks of that name");
        assert_eq!(of_name(&copy, None, other.clone()), other);
        assert_eq!(of_name(&service(None), None, own()), own());
    }

    #[test]
    fn the_own_load_balancer_is_not_adopted_again() {
        let mut service = service(Some("lb-1"));
        for (id, expect) in [("lb-1", None), ("lb-2", Some("lb-2"))] {
            let details = service.details.as_mut().unwrap();
            details.annotations.insert(ADOPT.into(), id.into());
            assert_eq!(to_adopt(&service), expect);
        }
    }

    /// Only the API server's word about the status shows that service-ccm has written the ID.
    #[test]
    fn an_id_without_an_address_may_be_a_copy() {
        let mut service = service(Some("lb-1"));
        let anothers = conflict("load balancer lb-1 is shop/web's");
        assert_eq!(copied(&service, None, &anothers), Some("lb-1"));
        assert_eq!(copied(&service, Some("lb-2"), &anothers), None, "it has one");
        assert_eq!(copied(&service, None, &conflict("two networks of that name")), None);
        let busy = CloudError::new(ErrorKind::Busy, "load balancer lb-1 is being changed");
        assert_eq!(copied(&service, None, &busy), None);
        service.has_finalizer = true;
        assert_eq!(copied(&service, None, &anothers), Some("lb-1"), "a backup has it, too");
        let details = service.details.as_mut().unwrap();
        details.annotations.insert(ADOPT.into(), "lb-3".into());
        assert_eq!(copied(&service, None, &anothers), None, "another one should be adopted");
        let details = service.details.as_mut().unwrap();
        details.annotations.remove(ADOPT);
        details.ingress = [ServiceIngress::default()].into();
        assert_eq!(copied(&service, None, &anothers), None, "clients use it");
    }
}
