//! The load balancers that a Service names by its annotations, and the errors about them.

use ccm_cloud::{CloudError, ErrorKind};
use ccm_objects::Service;

use super::{ADOPT, CallKind, Failed, Known, State, status::ID};

/// The load balancer that a user has approved to adopt. What the Service calls its own was adopted
/// before.
pub fn to_adopt(service: &Service) -> Option<&str> {
    service.annotation(ADOPT).filter(|id| service.annotation(ID) != Some(id))
}

/// The load balancers that a Service names: the one to adopt, and its own.
pub fn named(service: &Service) -> [Option<&str>; 2] {
    [ADOPT, ID].map(|key| service.annotation(key))
}

/// The ID of the load balancer by which the cloud is to look for it: the known one; else what the
/// Service says, which may be the copy of another Service's annotation. To delete what is known not
/// to exist, or what the cloud says is another's, no ID is needed: everything of the owner goes.
pub fn to_look_for<'a>(service: &'a Service, state: &'a State, call: CallKind) -> Option<&'a str> {
    let is_anothers = |failed: &Failed| failed.error.kind == ErrorKind::Conflict;
    let is_useless = call == CallKind::Delete
        && (state.known == Known::Absent || state.failure(call).is_some_and(is_anothers));
    state.id().or_else(|| service.annotation(ID).filter(|_| !is_useless))
}

/// The error of a call by which the cloud looked for what the Service calls its own: if that is
/// another's, the annotation is named, because it may be a copy.
pub fn of_name(service: &Service, state: &State, error: CloudError) -> CloudError {
    let Some(id) = service.annotation(ID).filter(|_| state.id().is_none()) else { return error };
    if error.kind != ErrorKind::Conflict || !is_about(id, &error) {
        return error;
    }
    let message = format!(
        "annotation {ID}: {}; remove the annotation if the Service is to get another one",
        error.message
    );
    CloudError { message, ..error }
}

fn is_about(id: &str, error: &CloudError) -> bool {
    error.message.contains(id) || error.subject.as_ref().is_some_and(|subject| subject.contains(id))
}

/// The error of a call that was to adopt this load balancer: if it does not exist or cannot be
/// adopted, that is a mistake in the Service.
pub fn of_adoption(id: &str, error: CloudError) -> CloudError {
    if !is_about(id, &error) || !matches!(error.kind, ErrorKind::NotFound | ErrorKind::Conflict) {
        return error;
    }
    let message = format!("annotation {ADOPT}: {}", error.message);
    CloudError { kind: ErrorKind::Invalid, message, ..error }
}

#[cfg(test)]
mod tests {
    use ccm_base::At;
    use ccm_cloud::LoadBalancer;
    use ccm_objects::ServiceDetails;

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
    fn a_copied_annotation_delays_no_deletion() {
        let copy = service(Some("lb-1"));
        let mut state = State::default();
        let id = |state: &State, call| to_look_for(&copy, state, call).map(str::to_owned);
        let named = || Some("lb-1".to_owned());
        assert_eq!(id(&state, CallKind::Ensure), named());
        assert_eq!(id(&state, CallKind::Delete), named(), "nothing else is known");
        state.failed.push(Failed {
            call: CallKind::Delete,
            digest: None,
            named: [None, None],
            error: conflict("load balancer lb-1 is another's"),
            times: 1,
            retry_at: At::default(),
        });
        assert_eq!(id(&state, CallKind::Delete), None, "the cloud says that it is another's");
        state.failed.clear();
        state.known = Known::Absent;
        assert_eq!(id(&state, CallKind::Delete), None, "the list shows none of this Service");
        assert_eq!(id(&state, CallKind::Ensure), named(), "no second one is made by mistake");
        state.known = Known::There(Box::new(LoadBalancer::new("lb-2", "", None)));
        for call in [CallKind::Ensure, CallKind::Delete] {
            assert_eq!(id(&state, call), Some("lb-2".to_owned()), "what the cloud has shown");
        }
    }

    #[test]
    fn an_annotation_that_names_anothers_load_balancer_is_named() {
        let (copy, state) = (service(Some("lb-1")), State::default());
        let error = of_name(&copy, &state, conflict("load balancer lb-1 is shop/web's"));
        assert_eq!(
            error.message,
            "annotation quartet.dev/load-balancer-id: load balancer lb-1 is shop/web's; remove the annotation if the Service is to get another one"
        );
        assert_eq!(error.kind, ErrorKind::Conflict);
        let other = conflict("two networks of that name");
        assert_eq!(of_name(&copy, &state, other.clone()), other);
        let own = conflict("load balancer lb-1 is busy");
        assert_eq!(of_name(&service(None), &state, own.clone()), own);
    }
}
