//! What must not be seen.

use ccm_testing::Log;
use tracing::Level;

use super::cloud::{Move, PASSWORD, Rig, config};
use crate::openstack::client::Service;

#[tokio::test(start_paused = true)]
async fn neither_token_nor_password_reaches_the_log_or_an_error() {
    let log = Log::new();
    let _listening = log.listen(Level::TRACE);
    let mut told = format!("{:?}", config(PASSWORD));
    let rig = Rig::new();
    // A service that repeats what it was sent.
    let echo = |what: &str| format!("{{\"badRequest\": {{\"message\": \"what is {what}?\"}}}}");
    rig.cloud.next("keystone", [Move::text(400, &echo(PASSWORD))]);
    told += &rig.nova(10).await.unwrap_err().to_string();
    assert!(told.contains("what is ***?"), "{told}");
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
