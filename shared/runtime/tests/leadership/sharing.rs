//! Two programs with one Lease: the one that stands by reports it.

use std::time::Duration;

use ccm_testing::Log;
use tokio::time::sleep;
use tracing::Level;

use crate::{
    lease_api::LeaseApi,
    line::Line,
    replicas::{Replica, terms, until},
};

const LONG: Duration = Duration::from_mins(2);
const METRIC: &str = r#"ccm_leader_election_lease_of_other_program{name="node-ccm"}"#;

#[tokio::test(start_paused = true)]
async fn a_standby_reports_that_another_program_holds_its_lease() {
    let log = Log::new();
    let _listening = log.listen(Level::INFO);
    let api = LeaseApi::default();
    let other = Replica::of("lifecycle-ccm", &Line::new(&api), terms(), true);
    until(&[&other], LONG, || other.leads()).await.unwrap();
    let replica = Replica::start(&api);
    sleep(LONG).await;
    assert_eq!((other.metric(METRIC), replica.metric(METRIC)), (0.0, 1.0));
    let line = "the Lease kube-system/node-ccm is held by another program, lifecycle-ccm: ";
    assert_eq!(log.lines_with(line), 1, "once: {}", log.text());

    other.release();
    until(&[&other, &replica], LONG, || replica.leads()).await.unwrap();
    assert_eq!(replica.metric(METRIC), 0.0);
}

#[tokio::test(start_paused = true)]
async fn a_standby_of_the_same_program_reports_nothing() {
    let log = Log::new();
    let _listening = log.listen(Level::INFO);
    let api = LeaseApi::default();
    let leader = Replica::start(&api);
    until(&[&leader], LONG, || leader.leads()).await.unwrap();
    let standby = Replica::start(&api);
    sleep(LONG).await;
    assert_eq!(standby.metric(METRIC), 0.0);
    assert_eq!(log.lines_with("another replica leads"), 1, "{}", log.text());
    assert_eq!(log.lines_with("another program"), 0, "{}", log.text());
}
