use http::{HeaderValue, header::LOCATION};
use proptest::prelude::*;

use super::*;

const NOW: &str = "2026-11-21T12:00:00Z";

fn headers(id: Option<&str>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Some(id) = id {
        headers.insert("x-openstack-request-id", HeaderValue::try_from(id).unwrap());
    }
    headers
}

fn fault(service: Service, status: u16, id: Option<&str>, body: &str) -> CloudError {
    let status = StatusCode::from_u16(status).unwrap();
    cloud_error(service, status, &headers(id), body.as_bytes(), NOW.parse().unwrap()).unwrap()
}

fn check(service: Service, status: u16, body: &str, kind: ErrorKind, message: &str) {
    let error = fault(service, status, Some("req-1"), body);
    assert_eq!((error.kind, error.message.as_str()), (kind, message), "{body}");
    assert_eq!(error.request_id.as_deref(), Some("req-1"));
}

#[test]
fn the_bodies_of_keystone_and_nova_are_understood() {
    use ErrorKind as K;
    use Service::{Compute, Identity};
    check(
        Identity,
        401,
        r#"{"error":{"code":401,"message":"The request you have made requires authentication.","title":"Unauthorized"}}"#,
        K::Unauthorized,
        "HTTP 401: The request you have made requires authentication.",
    );
    check(
        Identity,
        404,
        r#"{"error":{"code":404,"message":"Failed to validate token","title":"Not Found"}}"#,
        K::Unauthorized,
        "HTTP 404: Failed to validate token",
    );
    check(
        Compute,
        404,
        r#"{"itemNotFound":{"code":404,"message":"Instance 5 could not be found."}}"#,
        K::NotFound,
        "HTTP 404: Instance 5 could not be found.",
    );
    check(
        Compute,
        403,
        r#"{"forbidden":{"code":403,"message":"Quota exceeded for instances: Requested 1"}}"#,
        K::QuotaExceeded,
        "HTTP 403: Quota exceeded for instances: Requested 1",
    );
    check(
        Compute,
        403,
        r#"{"forbidden":{"code":403,"message":"Policy doesn't allow it"}}"#,
        K::Forbidden,
        "HTTP 403: Policy doesn't allow it",
    );
    check(
        Compute,
        413,
        r#"{"overLimit":{"code":413,"message":"Slow down","retryAfter":"7"}}"#,
        K::Throttled,
        "HTTP 413: Slow down",
    );
    check(
        Compute,
        409,
        r#"{"conflictingRequest":{"code":409,"message":"It is\nbusy\u0007"}}"#,
        K::Conflict,
        "HTTP 409: It is busy",
    );
}

#[test]
fn the_bodies_of_neutron_and_octavia_are_understood() {
    use ErrorKind as K;
    use Service::Network;
    check(
        Network,
        404,
        r#"{"NeutronError":{"type":"PortNotFound","message":"Port 7 could not be found.","detail":""}}"#,
        K::NotFound,
        "HTTP 404: Port 7 could not be found.",
    );
    check(
        Network,
        409,
        r#"{"NeutronError":{"type":"OverQuota","message":"Quota exceeded for resources: ['port'].","detail":""}}"#,
        K::QuotaExceeded,
        "HTTP 409: Quota exceeded for resources: ['port'].",
    );
    check(Network, 400, r#"{"NeutronError":"Bad filter"}"#, K::Invalid, "HTTP 400: Bad filter");
    check(
        Network,
        500,
        r#"{"faultcode":"Server","faultstring":"It broke","debuginfo":null}"#,
        K::Unavailable,
        "HTTP 500: It broke",
    );
}

#[test]
fn a_quota_is_known_by_each_services_words_and_named() {
    let neutron = |kind: &str, message: &str| {
        format!(
            "{{\"NeutronError\":{{\"type\":\"{kind}\",\"message\":\"{message}\",\"detail\":\"\"}}}}"
        )
    };
    let octavia = r#"{"faultcode":"Client","faultstring":"Quota has been met for resources: Load Balancer","debuginfo":null}"#;
    for (status, body, quota) in [
        (409, neutron("OverQuota", "Quota exceeded for resources: ['floatingip']."), "floatingip"),
        (
            409,
            neutron("OverQuota", "Quota exceeded for resources: ['router_route']."),
            "routes of a router (router_route)",
        ),
        (
            400,
            neutron(
                "RoutesExhausted",
                "Unable to complete operation for r1. The number of routes exceeds the maximum 30.",
            ),
            "routes of a router (max_routes)",
        ),
        (
            400,
            neutron(
                "AllowedAddressPairExhausted",
                "The number of allowed address pair exceeds the maximum 10.",
            ),
            "allowed address pairs of a port (max_allowed_address_pair)",
        ),
        (403, octavia.to_owned(), "Load Balancer"),
    ] {
        let error = fault(Service::Network, status, Some("req-1"), &body);
        assert_eq!(error.kind, ErrorKind::QuotaExceeded, "{error}");
        assert_eq!(error.subject.as_deref(), Some(quota));
    }
    let other = neutron("HTTPBadRequest", "Invalid input for routes.");
    assert_eq!(fault(Service::Network, 400, None, &other).kind, ErrorKind::Invalid);
}

#[test]
fn what_something_else_changes_is_busy() {
    let immutable = r#"{"faultcode":"Client","faultstring":"Load Balancer 5 is immutable and cannot be updated.","debuginfo":null}"#;
    let stale = r#"{"NeutronError":{"type":"RevisionNumberConstraintFailed","message":"Constrained to 4, but current revision is 5","detail":""}}"#;
    let in_use =
        r#"{"NeutronError":{"type":"PortInUse","message":"Port 7 is in use","detail":""}}"#;
    for (status, body, kind) in [
        (409, immutable, ErrorKind::Busy),
        (412, stale, ErrorKind::Busy),
        (409, in_use, ErrorKind::Conflict),
    ] {
        assert_eq!(fault(Service::Network, status, Some("req-1"), body).kind, kind, "{body}");
    }
}

fn faultstring(words: &str) -> String {
    let code = "Client";
    serde_json::json!({ "faultcode": code, "faultstring": words, "debuginfo": null }).to_string()
}

/// Octavia's own words, as its versions 2.26 and 2.30 say them: the status, the kind of the error,
/// and the subject.
const OCTAVIA: [(u16, &str, ErrorKind, Option<&str>); 21] = [
    (404, "Load Balancer 5f0d not found.", ErrorKind::NotFound, None),
    (404, "Health Monitor 5f0d not found.", ErrorKind::NotFound, None),
    (400, "Subnet 5f0d not found.", ErrorKind::Invalid, None),
    (400, "Validation failure: Invalid flavor_id.", ErrorKind::Invalid, None),
    (409, "Load Balancer 5f0d is immutable and cannot be updated.", ErrorKind::Busy, None),
    (409, "Pool 5f0d is immutable and cannot be updated.", ErrorKind::Busy, None),
    (409, "Invalid state PENDING_UPDATE of loadbalancer resource 5f0d", ErrorKind::Busy, None),
    (409, "Invalid state ERROR of loadbalancer resource 5f0d", ErrorKind::Conflict, None),
    (
        409,
        "Another Listener on this Load Balancer is already using protocol TCP and protocol_port 80",
        ErrorKind::Conflict,
        None,
    ),
    (403, "Policy does not allow this request to be performed.", ErrorKind::Forbidden, None),
    (
        403,
        "Quota has been met for resources: Load Balancer",
        ErrorKind::QuotaExceeded,
        Some("Load Balancer"),
    ),
    (403, "Quota has been met for resources: Listener", ErrorKind::QuotaExceeded, Some("Listener")),
    (503, "Project busy.  Unable to lock the project.  Please try again.", ErrorKind::Busy, None),
    (503, "It is down", ErrorKind::Unavailable, None),
    (
        501,
        "Provider 'ovn' does not support a requested option: this algorithm",
        ErrorKind::Unsupported,
        None,
    ),
    (
        500,
        "Provider 'amphora' reports error: IP address 10.0.0.7 already allocated in subnet 5f0d\nNeutron server returns request_ids: ['req-1']",
        ErrorKind::Conflict,
        None,
    ),
    (
        409,
        "The VIP IP address is already in use: IP address 10.0.0.7 already allocated in subnet 5f0d",
        ErrorKind::Conflict,
        None,
    ),
    (
        500,
        "Provider 'amphora' reports error: IP address 10.9.9.9 is not a valid IP for the specified subnet.",
        ErrorKind::Invalid,
        None,
    ),
    (
        500,
        "Provider 'amphora' reports error: No more IP addresses available on network 5f0d.\nNeutron server returns request_ids: ['req-1']",
        ErrorKind::QuotaExceeded,
        Some("addresses of network 5f0d"),
    ),
    (
        409,
        "The VIP IP address is already in use: No more IP addresses available on network 5f0d.",
        ErrorKind::QuotaExceeded,
        Some("addresses of network 5f0d"),
    ),
    (500, "Provider 'amphora' reports error: It broke", ErrorKind::Unavailable, None),
];

#[test]
fn octavias_refusals_have_their_kinds() {
    for (status, words, kind, subject) in OCTAVIA {
        let error = fault(Service::LoadBalancer, status, Some("req-1"), &faultstring(words));
        assert_eq!((error.kind, error.subject.as_deref()), (kind, subject), "{words}");
    }
    let full = r#"{"NeutronError":{"type":"IpAddressGenerationFailure","message":"No more IP addresses available on network 5f0d.","detail":""}}"#;
    let error = fault(Service::Network, 409, Some("req-1"), full);
    assert_eq!(error.kind, ErrorKind::QuotaExceeded);
    assert_eq!(error.subject.as_deref(), Some("addresses of network 5f0d"));
}

#[test]
fn only_octavias_own_words_say_that_something_is_not_there() {
    let own = faultstring("Load Balancer 5f0d not found.");
    let below_pool =
        r#"{"code": 404, "title": "Bad Request", "description": "Pool 5f0d not found."}"#;
    let found = |id: Option<&str>, body: &str| fault(Service::LoadBalancer, 404, id, body).kind;
    assert_eq!(found(Some("req-1"), &own), ErrorKind::NotFound);
    assert_eq!(found(Some("req-1"), below_pool), ErrorKind::NotFound);
    for (id, body) in [
        (None, &*own),
        (None, below_pool),
        (Some("req-1"), r#"{"code": 404, "title": "Not Found", "description": ""}"#),
        (Some("req-1"), r#"{"code": 404, "title": "Not Found", "description": null}"#),
        (Some("req-1"), &faultstring("The resource could not be found.")),
        (Some("req-1"), &faultstring("Not found, sorry")),
        (Some("req-1"), r#"{"message": "Load Balancer 5f0d not found."}"#),
        (
            Some("req-1"),
            r#"{"NeutronError":{"type":"PortNotFound","message":"Port 7 not found.","detail":""}}"#,
        ),
        (
            Some("req-1"),
            r#"{"itemNotFound":{"code":404,"message":"Load Balancer 5f0d not found."}}"#,
        ),
        (Some("req-1"), "<html><h1>503 not found.</h1>"),
        (Some("req-1"), ""),
    ] {
        assert_eq!(found(id, body), ErrorKind::Malformed, "{body}");
    }
    // The words do not count in an answer of another service.
    assert_eq!(fault(Service::Network, 404, Some("req-1"), &own).kind, ErrorKind::Malformed);
}

#[test]
fn a_404_that_lost_its_request_id_says_why_it_does_not_count() {
    let own = r#"{"itemNotFound":{"code":404,"message":"Instance 5 could not be found."}}"#;
    let error = fault(Service::Compute, 404, None, own);
    assert_eq!(error.kind, ErrorKind::Malformed);
    for part in ["Instance 5 could not be found.", "x-openstack-request-id", "compute removes it"] {
        assert!(error.message.contains(part), "{error}");
    }
}

#[test]
fn no_other_404_is_an_absence() {
    use Service::{Compute, Identity, Network};
    let own = r#"{"itemNotFound":{"code":404,"message":"Instance 5 could not be found."}}"#;
    let port = r#"{"NeutronError":{"type":"PortNotFound","message":"Port 7 could not be found.","detail":""}}"#;
    for (service, id, body) in [
        (Compute, None, own),
        (Compute, Some(""), own),
        (Network, None, port),
        (Network, Some("req-1"), own),
        (Compute, Some("req-1"), port),
        (Identity, Some("req-1"), r#"{"error":{"code":404,"message":"Could not find user"}}"#),
        (
            Identity,
            Some("req-1"),
            r#"{"error":{"code":404,"message":"no handler for POST /v3/auth/tokens"}}"#,
        ),
        (Compute, Some("req-1"), "<html><body><h1>404 Not Found</h1>nginx</body></html>"),
        (Compute, Some("req-1"), "404 Not Found\n\nThe resource could not be found.\n"),
        (
            Compute,
            Some("req-1"),
            r#"{"itemNotFound":{"code":404,"message":"The resource could not be found."}}"#,
        ),
        (Compute, Some("req-1"), r#"{"itemNotFound":{}}"#),
        (Compute, Some("req-1"), r#"{"itemNotFound":{"message":"Instance 5"},"more":1}"#),
        (
            Network,
            Some("req-1"),
            r#"{"NeutronError":{"type":"HTTPNotFound","message":"The resource could not be found.","detail":""}}"#,
        ),
        (
            Network,
            Some("req-1"),
            r#"{"NeutronError":{"type":"HTTPNotFound","message":"Extension x","detail":""}}"#,
        ),
        (
            Network,
            Some("req-1"),
            r#"{"message":"The resource could not be found.<br /><br />","code":"404 Not Found","title":"Not Found"}"#,
        ),
        (Network, Some("req-1"), r#"{"versions":[{"id":"v2.0"}]}"#),
        (Network, Some("req-1"), ""),
    ] {
        let error = fault(service, 404, id, body);
        assert_eq!(error.kind, ErrorKind::Malformed, "{service:?} {id:?} {body}: {error}");
    }
}

#[test]
fn every_status_has_a_kind() {
    use ErrorKind as K;
    for (status, kind) in [
        (300, K::Malformed),
        (302, K::Malformed),
        (400, K::Invalid),
        (401, K::Unauthorized),
        (403, K::Forbidden),
        (404, K::Malformed),
        (405, K::Unsupported),
        (406, K::Unsupported),
        (408, K::Unavailable),
        (409, K::Conflict),
        (413, K::Invalid),
        (422, K::Invalid),
        (429, K::Throttled),
        (498, K::Throttled),
        (500, K::Unavailable),
        (501, K::Unsupported),
        (502, K::Unavailable),
        (503, K::Unavailable),
        (504, K::Unavailable),
        (599, K::Unavailable),
        (999, K::Malformed),
    ] {
        let error = fault(Service::Compute, status, None, "<html>");
        assert_eq!(error.kind, kind, "{status}");
        assert!(error.message.contains(&status.to_string()), "{error}");
    }
    let good = StatusCode::from_u16(202).unwrap();
    assert_eq!(
        cloud_error(Service::Compute, good, &headers(None), b"", NOW.parse().unwrap()),
        None
    );
}

#[test]
fn a_redirection_is_named() {
    let mut headers = headers(None);
    headers.insert(LOCATION, HeaderValue::from_static("https://other/"));
    let now = NOW.parse().unwrap();
    let error =
        cloud_error(Service::Network, StatusCode::MOVED_PERMANENTLY, &headers, b"", now).unwrap();
    assert!(error.message.contains("https://other/"), "{error}");
}

#[test]
fn retry_after_is_seconds_or_a_date() {
    let check = |value: &str, expect: Option<u64>| {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, HeaderValue::try_from(value).unwrap());
        let expect = expect.map(Duration::from_secs);
        assert_eq!(retry_after(&headers, NOW.parse().unwrap()), expect, "{value:?}");
    };
    check("30", Some(30));
    check(" 7 ", Some(7));
    check("0", None);
    check("301", Some(300));
    check("99999999999999999999999999", Some(300));
    check("Sat, 21 Nov 2026 12:00:09 GMT", Some(9));
    check("Sat, 21 Nov 2026 11:00:00 GMT", None);
    check("-1", None);
    check("1.5", None);
    check("", None);
    check("soon", None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn no_body_panics_and_every_message_is_a_line(
        body in prop::collection::vec(any::<u8>(), 0..600),
        text in "\\PC{0,700}",
        status in 300_u16..600,
    ) {
        let json = serde_json::json!({ "itemNotFound": { "message": text } }).to_string();
        for body in [body.as_slice(), json.as_bytes()] {
            let status = StatusCode::from_u16(status).unwrap();
            let error = cloud_error(Service::Compute, status, &headers(None), body, NOW.parse().unwrap());
            let message = error.unwrap().message;
            prop_assert!(message.chars().count() <= MAX_MESSAGE + 200, "{message}");
            prop_assert!(!message.chars().any(char::is_control));
        }
    }
}
