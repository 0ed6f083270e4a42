//! Complete electors: who leads when, and how they end.

use std::time::Duration;

use ccm_runtime::leadership::{Ended, HANDOVER, Lost};
use http::{Method, StatusCode};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use crate::{
    lease_api::LeaseApi,
    line::{Fault, Line},
    replicas::{Replica, terms, until},
};

const LEASE: Duration = Duration::from_secs(15);
const DEADLINE: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_secs(2);
/// The longest time between two attempts of a standby: client-go's jitter.
const POLL: Duration = Duration::from_millis(4400);
const LONG: Duration = Duration::from_mins(2);

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

/// Returns a leader and a standby that knows it.
async fn two(api: &LeaseApi) -> (Replica, Replica) {
    let leader = Replica::start(api);
    assert!(until(&[&leader], seconds(1.0), || leader.leads()).await.is_some());
    let standby = Replica::start(api);
    assert_eq!(until(&[&leader, &standby], seconds(9.0), || standby.leads()).await, None);
    (leader, standby)
}

#[tokio::test(start_paused = true)]
async fn the_first_candidate_leads_at_once_and_renews() {
    let api = LeaseApi::default();
    let replica = Replica::start(&api);
    let took = until(&[&replica], LONG, || replica.leads()).await.unwrap();
    assert!(took < seconds(0.1), "{took:?}");
    assert_eq!(api.holder(), replica.identity);
    assert_eq!(until(&[], seconds(60.5), || !replica.leads()).await, None, "for a minute");
    let (get, update) = (Method::GET, Method::PUT);
    let mut expect = vec![get.clone(), Method::POST];
    expect.extend(std::iter::repeat_n([get, update], 30).flatten());
    assert_eq!(api.requests(), expect, "a renewal each two seconds");
    assert!(api.record().unwrap()["leaseTransitions"] == 0);
}

#[tokio::test(start_paused = true)]
async fn a_released_lease_is_taken_over_at_once() {
    let api = LeaseApi::default();
    let (mut leader, standby) = two(&api).await;
    leader.release();
    let took = until(&[&leader, &standby], LONG, || standby.leads()).await.unwrap();
    assert!(took < seconds(0.2), "took {took:?}");
    assert_eq!(leader.end().await.0, Ended::Released);
    assert_eq!(api.record().unwrap()["leaseTransitions"], 1);
}

/// A leader's text goes out with its next renewal, or with the release.
#[tokio::test(start_paused = true)]
async fn the_next_leader_finds_what_the_last_one_left() {
    let api = LeaseApi::default();
    let (leader, standby) = two(&api).await;
    assert_eq!(leader.leadership().annotations().found(), "");
    assert!(leader.leadership().annotations().leave(|| "first".to_owned()));
    until(&[&leader, &standby], seconds(4.0), || false).await;
    leader.kill();
    until(&[&standby], LONG, || standby.leads()).await.unwrap();
    assert_eq!(standby.leadership().annotations().found(), "first");
    until(&[&standby], seconds(10.0), || false).await;
    assert_eq!(api.lease().unwrap()["metadata"]["annotations"][HANDOVER], "first", "it stays");
    assert!(standby.leadership().annotations().leave(|| "second".to_owned()));
    standby.release();
    let third = Replica::start(&api);
    until(&[&third], LONG, || third.leads()).await.unwrap();
    assert_eq!(third.leadership().annotations().found(), "second");
}

/// A leader that dies right after a deletion has told the next one of it.
#[tokio::test(start_paused = true)]
async fn what_is_left_is_stored_at_once_if_somebody_waits() {
    let api = LeaseApi::default();
    let (leader, _standby) = two(&api).await;
    let annotations = leader.leadership().annotations().clone();
    let left = || api.lease().unwrap()["metadata"]["annotations"][HANDOVER].clone();
    for text in ["first", "second"] {
        assert!(annotations.leave(move || text.to_owned()));
        let began = Instant::now();
        annotations.stored().await;
        assert!(began.elapsed() < seconds(0.5), "{:?}", began.elapsed());
        assert_eq!(left(), text);
    }
    // Nothing new: nobody waits.
    let requests = api.requests().len();
    assert!(annotations.leave(|| "second".to_owned()));
    annotations.stored().await;
    assert_eq!(api.requests().len(), requests);

    // A refused renewal has stored nothing.
    leader.line.set(Fault::NoWrite(StatusCode::SERVICE_UNAVAILABLE));
    assert!(annotations.leave(|| "third".to_owned()));
    assert!(timeout(seconds(5.0), annotations.stored()).await.is_err());
    leader.line.set(Fault::None);
    annotations.stored().await;
    assert_eq!(left(), "third");
}

#[tokio::test(start_paused = true)]
async fn one_of_many_standbys_takes_a_released_lease() {
    let api = LeaseApi::default();
    let (leader, standby) = two(&api).await;
    let others: Vec<_> = (0..6).map(|_| Replica::start(&api)).collect();
    assert_eq!(until(&[], seconds(5.0), || others.iter().any(Replica::leads)).await, None);
    leader.release();
    let mut all: Vec<_> = others.iter().collect();
    all.extend([&leader, &standby]);
    let next = || all.iter().any(|replica| replica.leads() && replica.identity != leader.identity);
    assert!(until(&all, LONG, next).await.unwrap() < seconds(0.2));
    assert_eq!(until(&all, LONG, || !next()).await, None, "and keeps it");
}

/// The watch saw the last renewal as it happened, and the attempt comes when it expires.
#[tokio::test(start_paused = true)]
async fn a_killed_leader_is_replaced_as_soon_as_its_lease_expires() {
    for after_renewal in [0.1, 0.7, 1.3, 1.9] {
        let api = LeaseApi::default();
        let (leader, standby) = two(&api).await;
        let before = api.record();
        until(&[], RETRY, || api.record() != before).await.expect("a renewal");
        sleep(seconds(after_renewal)).await;
        leader.kill();
        let took = until(&[&standby], LONG, || standby.leads()).await.unwrap();
        assert!(took <= LEASE + seconds(0.1), "{took:?} after the kill");
        assert!(took + seconds(after_renewal) >= LEASE - seconds(0.1), "{took:?} is too soon");
    }
}

#[tokio::test(start_paused = true)]
async fn a_dead_watch_delays_a_takeover_by_one_poll() {
    let api = LeaseApi::default();
    let (leader, standby) = two(&api).await;
    standby.line.set(Fault::NoWatch);
    leader.kill();
    let took = until(&[&standby], LONG, || standby.leads()).await.unwrap();
    assert!((LEASE - RETRY..LEASE + POLL).contains(&took), "killed: {took:?}");

    let other = Replica::start(&api);
    other.line.set(Fault::NoWatch);
    assert_eq!(until(&[&standby, &other], seconds(9.0), || other.leads()).await, None);
    standby.release();
    let took = until(&[&standby, &other], LONG, || other.leads()).await.unwrap();
    assert!(took <= POLL + seconds(0.1), "released: {took:?}");
}

/// The library's own example keeps leading despite errors.
#[tokio::test(start_paused = true)]
async fn a_disconnected_leader_ends_before_another_begins() {
    for fault in [
        Fault::Refused,
        Fault::Silent,
        Fault::Deaf,
        Fault::Status(StatusCode::INTERNAL_SERVER_ERROR),
    ] {
        let api = LeaseApi::default();
        let (mut leader, standby) = two(&api).await;
        leader.line.set(fault);
        let both = [&leader, &standby];
        let ended = until(&both, LONG, || !leader.leads()).await.unwrap();
        assert!(
            ended <= DEADLINE && ended >= DEADLINE - RETRY - seconds(0.1),
            "{fault:?}: {ended:?}"
        );
        let begun = until(&both, LONG, || standby.leads()).await.unwrap();
        assert!(begun >= LEASE - DEADLINE - seconds(0.1), "{fault:?}: {begun:?} after the end");
        let how = leader.ended();
        assert_eq!(how, Some(Ended::Lost), "{fault:?}: the process has to exit");
        leader.leadership().lost().await;
        assert!(!leader.leadership().is_overdue());
    }
}

#[tokio::test(start_paused = true)]
async fn a_short_outage_is_survived() {
    for fault in [Fault::Refused, Fault::Silent, Fault::Deaf] {
        let api = LeaseApi::default();
        let (leader, standby) = two(&api).await;
        leader.line.set(fault);
        sleep(seconds(4.0)).await;
        leader.line.set(Fault::None);
        let both = [&leader, &standby];
        assert_eq!(until(&both, LONG, || !leader.leads()).await, None, "{fault:?}");
        assert!(leader.metric(r#"leader_election_slowpath_total{name="node-ccm"}"#) >= 1.0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_term_counts_from_before_its_request_was_sent() {
    let api = LeaseApi::default();
    let leader = Replica::start(&api);
    until(&[&leader], LONG, || leader.leads()).await.unwrap();
    // Half a second each way, a read and a write: two seconds are gone when it is known.
    leader.line.set(Fault::Slow(seconds(0.5), seconds(0.5)));
    let mut before = leader.leadership().remaining();
    for _ in 0..2000 {
        sleep(Duration::from_millis(5)).await;
        let now = leader.leadership().remaining();
        if now > before {
            assert!(now <= DEADLINE - seconds(1.95), "{now:?} right after a renewal");
        }
        before = now;
    }
    assert!(leader.leadership().check(seconds(3.0)).is_ok());
    assert!(matches!(leader.leadership().check(seconds(9.0)), Err(Lost::TooShort { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_lease_names_another_ends_at_its_next_renewal() {
    let api = LeaseApi::default();
    let (mut leader, standby) = two(&api).await;
    api.put_held("another-holder", 0);
    let took = until(&[&leader, &standby], LONG, || !leader.leads()).await.unwrap();
    assert!(took <= RETRY + seconds(0.1), "{took:?}");
    assert_eq!(leader.end().await.0, Ended::Lost);
    assert_eq!(api.holder(), "another-holder", "an ended elector writes nothing");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_lease_stays_with_its_leader() {
    let api = LeaseApi::default();
    let (leader, standby) = two(&api).await;
    for _ in 0..5 {
        api.delete();
        assert_eq!(until(&[&leader, &standby], seconds(3.3), || !leader.leads()).await, None);
    }
    assert_eq!(api.holder(), leader.identity);
}

/// Without the guard a standby creates the Lease again at once, and both lead.
#[tokio::test(start_paused = true)]
async fn a_deleted_lease_of_a_disconnected_leader_is_respected() {
    let api = LeaseApi::default();
    let (leader, standby) = two(&api).await;
    leader.line.set(Fault::Refused);
    api.delete();
    let took = until(&[&leader, &standby], LONG, || standby.leads()).await.unwrap();
    assert!(took >= LEASE && took < LEASE + seconds(1.0), "{took:?}");

    let api = LeaseApi::default();
    let (leader, standby) = (Line::new(&api), Line::new(&api));
    let start = |line: &Line| Replica::over(line, terms(), false);
    let leader = (start(&leader), leader);
    until(&[], LONG, || leader.0.leads()).await.unwrap();
    let standby = start(&standby);
    sleep(seconds(5.0)).await;
    leader.1.set(Fault::Refused);
    api.delete();
    let both = || leader.0.leads() && standby.leads();
    assert!(until(&[], LEASE, both).await.is_some(), "the scenario is harmless without the guard");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_arrives_after_its_timeout_counts() {
    let api = LeaseApi::default();
    let line = Line::new(&api);
    let mut held = line.hold(Method::POST);
    let replica = Replica::over(&line, terms(), true);
    held.came().await;
    sleep(seconds(6.0)).await;
    assert!(!replica.leads());
    held.deliver();
    assert!(until(&[&replica], POLL, || replica.leads()).await.is_some());
    assert_eq!(api.record().unwrap()["leaseTransitions"], 0, "its own Lease, found by a read");
}

#[tokio::test(start_paused = true)]
async fn a_missing_api_is_retried() {
    let check = async |fault: Fault, reason: &str| {
        let api = LeaseApi::default();
        let line = Line::new(&api);
        line.set(fault);
        let mut replica = Replica::over(&line, terms(), true);
        assert_eq!(until(&[&replica], LONG, || replica.leads()).await, None, "{fault:?}");
        assert_eq!(replica.ended(), None, "{fault:?}");
        let failures =
            format!(r#"ccm_leader_election_failures_total{{name="node-ccm",reason="{reason}"}}"#);
        assert!(replica.metric(&failures) >= 10.0, "{fault:?}");
        line.set(Fault::None);
        assert!(
            until(&[&replica], POLL + seconds(5.0), || replica.leads()).await.is_some(),
            "{fault:?}"
        );
    };
    check(Fault::Status(StatusCode::FORBIDDEN), "forbidden").await;
    check(Fault::Status(StatusCode::UNAUTHORIZED), "unauthorized").await;
    check(Fault::Status(StatusCode::SERVICE_UNAVAILABLE), "unavailable").await;
    check(Fault::Refused, "unavailable").await;
    check(Fault::Silent, "timeout").await;
}

#[tokio::test(start_paused = true)]
async fn a_record_with_foreign_changes_is_released() {
    let api = LeaseApi::default();
    let (mut leader, standby) = two(&api).await;
    let mut held = leader.line.hold(Method::PUT);
    leader.release();
    held.came().await;
    api.touch();
    held.deliver();
    assert_eq!(leader.end().await.0, Ended::Released);
    assert!(until(&[&leader, &standby], seconds(0.2), || standby.leads()).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_release_does_not_wait_for_a_call_that_hangs() {
    for method in [Method::GET, Method::PUT] {
        let api = LeaseApi::default();
        let (mut leader, standby) = two(&api).await;
        let mut held = leader.line.hold(method.clone());
        held.came().await;
        leader.release();
        let (ended, took) = leader.end().await;
        assert!(
            ended == Ended::Released && took < seconds(0.2),
            "{method}: {ended:?} after {took:?}"
        );
        assert!(until(&[&leader, &standby], seconds(0.2), || standby.leads()).await.is_some());
        held.deliver();
        assert_eq!(
            until(&[&leader, &standby], LONG, || !standby.leads()).await,
            None,
            "a late renewal"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_without_a_response_times_out() {
    for leads in [true, false] {
        let api = LeaseApi::default();
        let (mut leader, mut standby) = two(&api).await;
        let replica = if leads { &mut leader } else { &mut standby };
        replica.line.set(Fault::Silent);
        sleep(seconds(3.0)).await;
        replica.release();
        let (ended, took) = replica.end().await;
        assert!(ended == Ended::Released && took <= seconds(5.0), "{ended:?} after {took:?}");
        assert!(!replica.leads());
    }
}

#[tokio::test(start_paused = true)]
async fn a_standby_that_ends_does_not_write_the_lease() {
    let api = LeaseApi::default();
    let (leader, mut standby) = two(&api).await;
    standby.release();
    let (ended, took) = standby.end().await;
    assert!(ended == Ended::Released && took < seconds(0.1), "{took:?}");
    assert_eq!(api.holder(), leader.identity);
    assert_eq!(until(&[&leader], LONG, || !leader.leads()).await, None);
}

#[tokio::test(start_paused = true)]
async fn two_processes_on_one_host_are_two_candidates() {
    let api = LeaseApi::default();
    let (leader, standby) = two(&api).await;
    assert_ne!(leader.identity, standby.identity);
    assert_eq!(until(&[&leader, &standby], LONG, || standby.leads()).await, None);
}

#[tokio::test(start_paused = true)]
async fn events_and_metrics_show_the_leader() {
    let api = LeaseApi::default();
    let (mut leader, standby) = two(&api).await;
    let leads = r#"leader_election_master_status{name="node-ccm"}"#;
    let transitions = r#"ccm_leader_election_transitions_total{name="node-ccm"}"#;
    let remaining = "ccm_leader_election_term_remaining_seconds";
    assert_eq!((leader.metric(leads), standby.metric(leads)), (1.0, 0.0));
    assert_eq!((leader.metric(transitions), standby.metric(transitions)), (1.0, 0.0));
    assert_eq!(standby.metric(remaining), 0.0);
    let hands = r#"ccm_leader_election_lease_transitions{name="node-ccm"}"#;
    assert_eq!((leader.metric(hands), standby.metric(hands)), (0.0, 0.0), "made, never taken");
    assert!((7.0..=8.0).contains(&leader.metric(remaining)), "{}", leader.metric(remaining));
    assert!(leader.metric("ccm_leader_election_renew_duration_seconds_count") >= 4.0);

    leader.release();
    leader.end().await;
    until(&[&leader, &standby], LONG, || standby.leads()).await.unwrap();
    sleep(seconds(3.0)).await;
    assert_eq!((leader.metric(leads), standby.metric(leads)), (0.0, 1.0));
    assert_eq!(standby.metric(hands), 1.0, "the Lease's own count outlives its holders");
    let messages: Vec<_> = api
        .events()
        .iter()
        .map(|event| {
            let about = &event["involvedObject"];
            assert_eq!((&about["kind"], &about["name"]), (&json!("Lease"), &json!("node-ccm")));
            assert_eq!(
                (&event["reason"], &event["type"]),
                (&json!("LeaderElection"), &json!("Normal"))
            );
            event["message"].as_str().unwrap().to_owned()
        })
        .collect();
    let (first, second) = (&leader.identity, &standby.identity);
    for message in [
        format!("{first} became leader"),
        format!("{first} stopped leading"),
        format!("{second} became leader"),
    ] {
        assert!(messages.contains(&message), "{message} is not among {messages:?}");
    }
    assert_eq!(messages.len(), 3, "{messages:?}");
}
