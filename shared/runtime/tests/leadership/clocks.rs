//! Wall clocks that are wrong: the library alone believes them, the guard does not.

use std::time::Duration;

use tokio::time::sleep;

use crate::{
    lease_api::LeaseApi,
    races::{Caller, Claim, LEASE},
};

const RETRY: Duration = Duration::from_secs(2);

/// A leader renews every two seconds; how often in ten rounds can another one take the
/// Lease from it?
async fn stolen(guarded: bool, leader_ahead: i64, other_ahead: i64) -> usize {
    let api = LeaseApi::default();
    let (leader, other) = (Caller::new(&api, "a", guarded), Caller::new(&api, "b", guarded));
    leader.line.set_clock_ahead(leader_ahead);
    other.line.set_clock_ahead(other_ahead);
    let mut stolen = 0;
    for _ in 0..10 {
        // The leader is given back what was stolen from it, as if a human had mended it.
        if api.holder() != "a" {
            api.put_held("a", -leader_ahead);
        }
        assert_eq!(leader.attempt().await, Claim::Leads);
        sleep(RETRY / 2).await;
        stolen += usize::from(other.attempt().await == Claim::Leads);
        sleep(RETRY / 2).await;
    }
    stolen
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_ahead_steals_nothing() {
    assert_eq!(stolen(false, 0, 0).await, 0, "with perfect clocks the library is right");
    assert_eq!(stolen(false, 0, 16).await, 10);
    assert_eq!(stolen(true, 0, 16).await, 0);
    assert_eq!(stolen(true, 0, 86_400).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_leaders_clock_that_was_set_back_costs_it_nothing() {
    assert_eq!(stolen(false, -16, 0).await, 10);
    assert_eq!(stolen(true, -16, 0).await, 0);
}

/// How long after a leader's last renewal a standby, which asks each second, leads.
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
