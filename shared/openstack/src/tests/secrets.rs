//! Tests that secrets are not shown.

use std::time::Duration;

use ccm_cloud::Call;
use ccm_openstack_client::api::{Api as _, Request, Service};
use ccm_testing::Log;
use tracing::Level;

use super::cloud::{Move, PASSWORD, Rig, config};

#[tokio::test(start_paused = true)]
async fn neither_token_nor_password_reaches_the_log_or_an_error() {
    let log = Log::new();
    let _listening = log.listen(Level::TRACE);
    let mut told = format!("{:?}", config(PASSWORD));
    let rig = Rig::new();
    // This service repeats the request in its answer.
    let echo = |what: &str| format!("{{\"badRequest\": {{\"message\": \"what is {what}?\"}}}}");
    rig.cloud.next("keystone", [Move::text(400, &echo(PASSWORD))]);
    told += &rig.nova(10).await.unwrap_err().to_string();
    assert!(log.text().contains("what is ***?"), "{}", log.text());
    tokio::time::advance(std::time::Duration::from_secs(60)).await;
    rig.nova(10).await.unwrap();
    rig.cloud.next("nova", [Move::text(400, &echo("gAAAA-token-1"))]);
    told += &rig.nova(10).await.unwrap_err().to_string();
    rig.cloud.next("neutron", [Move::text(401, &echo("gAAAA-token-1")), Move::Cut]);
    rig.get(Service::Network, 10).await.unwrap();
    rig.cloud.set_password("other");
    rig.cloud.revoke();
    told += &rig.nova(10).await.unwrap_err().to_string();
    told += &log.text();
    assert!(told.contains("no token from Keystone"), "{told}");
    assert!(!told.contains(PASSWORD) && !told.contains("gAAAA"), "{told}");
}

/// Returns the error and the log of a login with this password to which Keystone gives this answer.
async fn login(password: &str, answer: Move) -> String {
    let (rig, log) = (Rig::new(), Log::new());
    let _listening = log.listen(Level::TRACE);
    rig.cloud.next("keystone", [answer]);
    let call = Call::waiting(Duration::from_secs(10));
    let error = rig.openstack.adopt(&config(password), call).await.unwrap_err();
    format!("{error}\n{}", log.text())
}

#[tokio::test(start_paused = true)]
async fn a_password_is_hidden_however_keystone_repeats_it() {
    const PASSWORD: &str = "correct  horse";
    let fault = |message: &str| format!("{{\"error\": {{\"message\": \"{message}\"}}}}");
    let straddling = fault(&format!("{}{PASSWORD}", "x".repeat(290)));
    for (status, body) in [
        (400, fault(&format!("what is {PASSWORD}?"))),
        (401, fault("what is corr\\u0065ct  horse?")),
        (403, straddling),
        (500, format!("{{\"error\": \"{PASSWORD}\"}}")),
        (200, format!("{{\"token\": \"{PASSWORD}\"}}")),
    ] {
        let answer = Move::text(status, &body).with("x-subject-token", "t");
        let told = login(PASSWORD, answer).await;
        assert!(told.contains("***"), "{told}");
        for part in ["correct", "horse"] {
            assert!(!told.contains(part), "{part} in {told}");
        }
    }
    let answer = Move::text(302, "").with("location", "http://other/?secret=s3cret");
    let told = login("s3cret", answer).await;
    assert!(told.contains("to http://other/?secret=***:"), "{told}");
}

#[tokio::test(start_paused = true)]
async fn a_token_is_hidden_where_the_text_is_cut_and_in_the_evidence() {
    let rig = Rig::new();
    rig.nova(10).await.unwrap();
    for padding in 280..=300 {
        let message = format!("{}gAAAA-token-1", "x".repeat(padding));
        let body = format!("{{\"badRequest\": {{\"message\": \"{message}\"}}}}");
        rig.cloud.next("nova", [Move::text(400, &body)]);
        let told = rig.nova(10).await.unwrap_err().to_string();
        assert!(!told.contains("xg"), "{told}");
    }
    let body = "{\"itemNotFound\": {\"message\": \"Instance 5, asked for by gAAAA-token-1\"}}";
    rig.cloud.next("nova", [Move::text(404, body).with("x-openstack-request-id", "req-9")]);
    let get = Request::get(Service::Compute, "server_get", "servers/5");
    let answer = rig.client().send(get, Call::waiting(Duration::from_secs(5))).await.unwrap();
    let evidence = String::from_utf8_lossy(&answer.body).into_owned();
    assert!(answer.status == 404 && evidence.contains("asked for by ***"), "{evidence}");
}
