//! The log line about a lost Lease: which of the two causes it was.

use std::time::Duration;

use ccm_testing::Log;
use tracing::Level;

use crate::{
    lease_api::LeaseApi,
    line::Fault,
    replicas::{Replica, until},
};

const LONG: Duration = Duration::from_mins(2);

/// The log line about the loss after this change to a leader.
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
    assert!(cut_off.contains("it was not renewed within 10s"), "{cut_off}");
    assert!(!cut_off.contains("holder"), "no other replica has taken it: {cut_off}");
    let taken = line_of(|api, _| api.put_held("another", 0)).await;
    assert!(taken.contains("another replica took it"), "{taken}");
    assert!(taken.contains("holder=\"another\""), "{taken}");
}
