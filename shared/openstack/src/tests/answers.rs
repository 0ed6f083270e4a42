//! Tests answers with any content.

use std::time::Duration;

use ccm_cloud::{Call, Cloud as _, Detail, ErrorKind, Lookup, NodeIdentity};
use ccm_openstack_client::api::{Api as _, Request, Service};

use super::cloud::{Move, Rig};

const ODD: [&str; 14] = [
    "",
    "[]",
    "\"x\"",
    "null",
    "{}",
    "{\"token\": [",
    "{\"token\": {\"catalog\": 7}}",
    "{\"token\": {\"catalog\": [7, null, {\"type\": \"compute\", \"endpoints\": [1]}], \"expires_at\": \"soon\"}}",
    "{\"token\": {\"expires_at\": \"9999-12-31T23:59:59Z\", \"issued_at\": \"-009999-01-02T00:00:00Z\"}}",
    "{\"version\": {\"id\": \"v2.1\", \"version\": \"2.99999999999999999999999\"}}",
    "{\"version\": {\"id\": \"v../../..\", \"version\": \"2.\"}, \"versions\": [1, {\"id\": 5}]}",
    "{\"servers\": 1e999}",
    "<html><title>404</title></html>",
    "\u{fffd}\u{0}\u{1}",
];

#[tokio::test(start_paused = true)]
async fn no_answer_ends_the_process_or_passes_for_a_good_one() {
    for (host, odd) in
        ["keystone", "nova", "neutron"].iter().flat_map(|host| ODD.map(|odd| (*host, odd)))
    {
        for status in [200, 201, 300, 302, 400, 404, 500] {
            let rig = Rig::new();
            let act = Move::text(status, odd).with("x-subject-token", "t");
            rig.cloud.always(host, Some(act));
            let service = if host == "neutron" { Service::Network } else { Service::Compute };
            let outcome = rig.get(service, 100).await;
            // The callers read the bodies of successful answers.
            let fine = matches!(status, 200 | 201) && host != "keystone";
            assert_eq!(outcome.is_ok(), fine, "{host} {status} {odd:?}: {outcome:?}");
            if let Err(error) = outcome {
                assert_ne!(error.kind, ErrorKind::NotFound, "{error}");
                assert!(!error.message.chars().any(char::is_control), "{error}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn only_the_service_itself_says_that_something_does_not_exist() {
    let rig = Rig::new();
    let get = Request::get(Service::Compute, "server_get", "servers/5");
    let call = Call::waiting(Duration::from_secs(5));
    rig.client().probe(Service::Compute, call).await.unwrap();
    let body =
        "{\"itemNotFound\": {\"code\": 404, \"message\": \"Instance 5 could not be found.\"}}";
    rig.cloud.next("nova", [Move::text(404, body).with("x-openstack-request-id", "req-9")]);
    let answer = rig.client().send(get.clone(), call).await.unwrap();
    assert_eq!(answer.status, 404);
    assert_eq!(answer.request_id.as_deref(), Some("req-9"));
    let (_, report) = *rig.gate.reports.lock().last().unwrap();
    assert_eq!(report.error, Some(ErrorKind::NotFound));

    rig.cloud.next("nova", [Move::text(404, body)]);
    let error = rig.client().send(get.clone(), call).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Malformed, "no request ID: {error}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_end_is_not_read_to_the_end() {
    let rig = Rig::new();
    rig.nova(10).await.unwrap();
    let long = "x".repeat((32 << 20) + 1);
    rig.cloud.next("nova", [Move::text(200, &long)]);
    let error = rig.nova(10).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Malformed);
    assert!(error.message.contains("longer than 32 MiB"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_document_of_another_kind_is_malformed_and_says_so() {
    let rig = Rig::new();
    let answer = rig.nova(10).await.unwrap();
    let error = answer.read::<Vec<String>>().unwrap_err();
    assert_eq!(error.kind, ErrorKind::Malformed);
    assert_eq!(error.request_id, answer.request_id);
    assert_eq!(error.message.lines().count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_proof_names_project_and_region() {
    let rig = Rig::new();
    rig.ask(5).await.unwrap();
    let id = "0f0e0d0c-1111-2222-3333-00000000abcd";
    let body = "{\"itemNotFound\": {\"code\": 404, \"message\": \"Instance could not be found.\"}}";
    rig.cloud.next("nova", [Move::text(404, body).with("x-openstack-request-id", "req-9")]);
    let instances = rig.openstack.instances().unwrap().unwrap();
    let node = NodeIdentity {
        provider_id: Some(format!("openstack:///{id}")),
        ..NodeIdentity::named("node-1")
    };
    let mut answers =
        instances.lookup(&[node], Detail::Everything, Call::waiting(Duration::from_secs(5))).await;
    let Ok(Lookup::Gone(proof)) = answers.remove(0) else { panic!("{answers:?}") };
    assert!(proof.evidence.contains("404 for project k8s (p1) in region one: "), "{proof:?}");
    assert_eq!(proof.request_id.as_deref(), Some("req-9"));
}
