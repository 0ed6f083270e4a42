//! Wrong wall clocks: the library relies on them, the guard does not.

use std::time::Duration;

use tokio::time::sleep;

use crate::{
    lease_api::LeaseApi,
    races::{Caller, Claim, LEASE},
};

const RETRY: Duration = Duration::from_secs(2);

/// Returns how often in ten rounds another candidate can take the Lease from a leader that renews
/// every two seconds.
async fn takeovers(guarded: bool, leader_ahead: i64, other_ahead: i64) -> usize {
    let api = LeaseApi::default();
    let (leader, other) = (Caller::new(&api, "a", guarded), Caller::new(&api, "b", guarded));
    leader.line.set_clock_ahead(leader_ahead);
    other.line.set_clock_ahead(other_ahead);
    let mut takeovers = 0;
    for _ in 0..10 {
        // The leader gets the Lease back, as if an operator had repaired it.
        if api.holder() != "a" {
            api.put_held("a", -leader_ahead);
        }
        assert_eq!(leader.attempt().await, Claim::Leads);
        sleep(RETRY / 2).await;
        takeovers += usize::from(other.attempt().await == Claim::Leads);
        sleep(RETRY / 2).await;
    }
    takeovers
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_ahead_does_not_take_the_lease() {
    assert_eq!(takeovers(false, 0, 0).await, 0, "with perfect clocks the library is right");
    assert_eq!(takeovers(false, 0, 16).await, 10);
    assert_eq!(takeovers(true, 0, 16).await, 0);
    assert_eq!(takeovers(true, 0, 86_400).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_leaders_clock_that_was_set_back_has_no_effect() {
    assert_eq!(takeovers(false, -16, 0).await, 10);
    assert_eq!(takeovers(true, -16, 0).await, 0);
}

/// Returns how long after a leader's last renewal a standby, which polls each second, leads.
async fn takeover(guarded: bool, leader_ahead: i64, other_ahead: i64) -> Option<u64> {
    let api = LeaseApi::default();
    let (leader, other) = (Caller::new(&api, "a", guarded), Caller::new(&api, "b", guarded));
    leader.line.set_clock_ahead(leader_ahead);
    other.line.set_clock_ahead(other_ahead);
    assert_eq!(leader.attempt().await, Claim::Leads);
    for second in 0..60 {
        if other.attempt().await == Claim::Leads {
            return Some(second);
        }
        sleep(Duration::from_secs(1)).await;
    }
    None
}

#[tokio::test(start_paused = true)]
async fn wrong_clocks_do_not_delay_a_takeover() {
    assert_eq!(takeover(false, 0, -3600).await, None);
    for (leader_ahead, other_ahead) in [(0, 0), (0, -3600), (3600, 0), (0, 3600), (-3600, 3600)] {
        assert_eq!(takeover(true, leader_ahead, other_ahead).await, Some(LEASE.as_secs()));
    }
}
