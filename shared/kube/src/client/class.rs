//! Classifies requests for rate limits.

use ccm_metrics::label;
use http::{Method, Request, Uri};
use strum::{IntoStaticStr, VariantNames};

/// The rate limit that a request counts against. Watches and lease requests are not limited:
/// a watch is one request for minutes of events, and a late lease request loses leadership.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum RequestClass {
    /// GET: single objects and lists. Access reviews count as reads.
    Read,
    /// Every request that changes something.
    Write,
    /// Any request for Events. They have their own bucket, so that an event storm never
    /// delays a controller's work.
    Event,
}

label!(RequestClass);

/// Returns the class of a request, or `None` if it is exempt.
pub(super) fn classify<B>(request: &Request<B>) -> Option<RequestClass> {
    let resource = resource(request.uri().path());
    if is_watch(request.uri()) || resource == Some("leases") {
        return None;
    }
    Some(match (resource, request.method()) {
        (Some("events"), _) => RequestClass::Event,
        (Some("selfsubjectaccessreviews"), _) | (_, &Method::GET | &Method::HEAD) => {
            RequestClass::Read
        }
        _ => RequestClass::Write,
    })
}

/// Returns true if the request opens a watch.
pub(super) fn is_watch(uri: &Uri) -> bool {
    uri.query()
        .is_some_and(|query| query.split('&').any(|pair| pair == "watch=true" || pair == "watch=1"))
}

/// Returns the resource (`nodes`, `events`, ...) of an API path. The path may start with a prefix:
/// some servers are mounted below one.
fn resource(path: &str) -> Option<&str> {
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    let after_version = segments.windows(2).enumerate().find_map(|(at, pair)| match *pair {
        ["api", "v1"] => Some(at + 2),
        ["apis", _] => Some(at + 3),
        _ => None,
    })?;
    let rest = segments.get(after_version..)?;
    match rest {
        ["namespaces", _, resource, ..] | [resource, ..] => Some(resource),
        [] => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_classified_by_method_and_resource() {
        let check = |method: &str, uri: &str, expect: Option<RequestClass>| {
            let request = Request::builder().method(method).uri(uri).body(()).unwrap();
            assert_eq!(classify(&request), expect, "{method} {uri}");
        };
        check("GET", "/api/v1/nodes/a", Some(RequestClass::Read));
        check("GET", "/api/v1/nodes?limit=500", Some(RequestClass::Read));
        check("GET", "/api/v1/nodes?limit=500&watch=false", Some(RequestClass::Read));
        check("PATCH", "/api/v1/nodes/a", Some(RequestClass::Write));
        check("PATCH", "/api/v1/nodes/events", Some(RequestClass::Write));
        check("PATCH", "/api/v1/namespaces/events", Some(RequestClass::Write));
        check("POST", "/api/v1/namespaces/x/events", Some(RequestClass::Event));
        check("PATCH", "/api/v1/namespaces/leases/events/e", Some(RequestClass::Event));
        check(
            "POST",
            "https://h/prefix/apis/events.k8s.io/v1/namespaces/x/events",
            Some(RequestClass::Event),
        );
        check("GET", "/api/v1/nodes?watch=true&resourceVersion=1", None);
        check("GET", "/api/v1/nodes?watch=1", None);
        check("PUT", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/node-ccm", None);
        check(
            "POST",
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            Some(RequestClass::Read),
        );
        check("GET", "/version", Some(RequestClass::Read));
        check("GET", "/", Some(RequestClass::Read));
        check("DELETE", "/api/v1", Some(RequestClass::Write));
    }
}
