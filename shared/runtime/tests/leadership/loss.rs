//! The log line about a lost Lease: which of the two causes it was.

use std::time::Duration;

use ccm_testing::Log;
use http::StatusCode;
use tokio::time::sleep;
use tracing::Level;

use crate::{
    lease_api::LeaseApi,
    line::Fault,
    replicas::{Replica, until},
};

const LONG: Duration = Duration::from_mins(2);

/// Returns the log line about the loss after this change to a leader.
async fn line_of(change: impl FnOnce(&LeaseApi, &Replica)) -> String {
    let log = Log::new();
    let _listening = log.listen(Level::INFO);
    let api = LeaseApi::default();
    let leader = Replica::start(&api);
    assert!(until(&[&leader], LONG, || leader.leads()).await.is_some());
    change(&api, &leader);
    until(&[], LONG, || log.lines_with("lost the lease") > 0).await.expect("a line");
    let said = log.text();
    said.lines().find(|line| line.contains("lost the lease")).unwrap().to_owned()
}

#[tokio::test(start_paused = true)]
async fn the_log_shows_how_the_lease_was_lost() {
    let cut_off = line_of(|_, leader| leader.line.set(Fault::Silent)).await;
    assert!(cut_off.contains("it was not renewed within 10s: no response in time"), "{cut_off}");
    assert!(!cut_off.contains("holder"), "no other replica has taken it: {cut_off}");
    let refused = |_: &LeaseApi, leader: &Replica| {
        leader.line.set(Fault::Status(StatusCode::INTERNAL_SERVER_ERROR));
    };
    let refused = line_of(refused).await;
    assert!(refused.contains("within 10s: unavailable: as the test wants it"), "{refused}");
    let taken = line_of(|api, _| api.put_held("another", 0)).await;
    assert!(taken.contains("another replica took it"), "{taken}");
    assert!(taken.contains("holder=\"another\""), "{taken}");
}

/// A controller that annotates each Lease it sees, for instance. Each write of another client
/// between the leader's read and its write refuses the renewal.
#[tokio::test(start_paused = true)]
async fn a_lease_that_others_write_often_is_renewed() {
    let log = Log::new();
    let _listening = log.listen(Level::INFO);
    let api = LeaseApi::default();
    let leader = Replica::start(&api);
    assert!(until(&[&leader], LONG, || leader.leads()).await.is_some());
    api.disturb(10);
    assert_eq!(until(&[&leader], LONG, || !leader.leads()).await, None, "{}", log.text());
    assert_eq!(log.lines_with("WARN"), 0, "each attempt succeeded: {}", log.text());
    // More often than it can write.
    let before = api.requests().len();
    api.disturb(usize::MAX);
    until(&[&leader], LONG, || !leader.leads()).await.unwrap();
    let requests = api.requests().len() - before;
    assert!(requests < 250, "{requests} requests within a term");
    sleep(Duration::from_secs(1)).await;
    let text = log.text();
    let line = |of: &str| text.lines().find(|line| line.contains(of)).unwrap_or_default();
    assert!(line("WARN").contains("other clients write it too often"), "{text}");
    assert_eq!(log.lines_with("WARN"), 1, "{text}");
    let last = "it was not renewed within 10s: the object has changed since it was read";
    assert!(line("lost the lease").contains(last), "{text}");
}

/// Only its holder tries again at once: for others a conflict is a lost race.
#[tokio::test(start_paused = true)]
async fn a_candidate_that_loses_a_race_waits() {
    let api = LeaseApi::default();
    api.put_held("dead", 100);
    api.disturb(usize::MAX);
    let candidate = Replica::start(&api);
    sleep(Duration::from_secs(31)).await;
    let writes = api.requests().iter().filter(|method| **method == http::Method::PUT).count();
    assert!((1..=10).contains(&writes), "{writes} in 16 seconds");
    assert!(!candidate.leads());
}
