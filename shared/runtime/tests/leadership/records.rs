//! All kinds of records: who holds the Lease, and whether it may be taken.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    lease_api::LeaseApi,
    races::{Caller, Claim, LEASE},
};

fn api_with(record: Option<&Value>) -> LeaseApi {
    let api = LeaseApi::default();
    if let Some(record) = record {
        api.put(record);
    }
    api
}

/// How long a Lease may be respected, in seconds.
const LONGEST: u64 = 600;

/// Returns the number of attempts, one per second, until the candidate `a` leads.
async fn leads_after(caller: &Caller) -> Option<u64> {
    for second in 0..=LONGEST {
        if caller.attempt().await == Claim::Leads {
            return Some(second);
        }
        sleep(Duration::from_secs(1)).await;
    }
    None
}

fn held(holder: &str, seconds: u64, renewed: &str) -> Value {
    json!({
        "holderIdentity": holder, "leaseDurationSeconds": seconds, "leaseTransitions": 4,
        "acquireTime": renewed, "renewTime": renewed,
    })
}

const OLD: &str = "2020-01-01T00:00:00.000000Z";
const FUTURE: &str = "2999-01-01T00:00:00.000000Z";

/// client-go's rules of taking a Lease.
#[tokio::test(start_paused = true)]
async fn a_lease_is_taken_when_it_is_free_or_observed_to_expire() {
    let check = async |record: Option<Value>, after: u64, transitions: u64| {
        let api = api_with(record.as_ref());
        let caller = Caller::new(&api, "a", true);
        assert_eq!(leads_after(&caller).await, Some(after), "{record:?}");
        let now = api.record().unwrap();
        assert_eq!(now["leaseTransitions"], json!(transitions), "{record:?}");
        assert_eq!(
            (&now["holderIdentity"], &now["leaseDurationSeconds"]),
            (&json!("a"), &json!(15))
        );
        assert_eq!(caller.attempt().await, Claim::Leads, "and renewed");
        assert_eq!(
            api.record().unwrap()["leaseTransitions"],
            json!(transitions),
            "a renewal is not a transition"
        );
    };
    check(None, 0, 0).await;
    check(Some(Value::Null), 0, 1).await;
    check(Some(held("", 15, OLD)), 0, 5).await;
    check(Some(held("", 15, FUTURE)), 0, 5).await;
    check(Some(held("b", 15, OLD)), 15, 5).await;
    check(Some(held("b", 15, FUTURE)), 15, 5).await;
    // Replicas may have different settings: the longer duration counts.
    check(Some(held("b", 3, OLD)), 15, 5).await;
    check(Some(held("b", 40, OLD)), 40, 5).await;
    // But no longer than the longest that a setting can be: this one is a mistake.
    check(Some(held("b", 86_400, OLD)), LONGEST, 5).await;
    check(Some(held("b", 2_147_483_647, FUTURE)), LONGEST, 5).await;
    check(Some(held("a", 15, OLD)), 0, 4).await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_three_seconds_is_respected_for_three_seconds() {
    let api = api_with(Some(&held("b", 3, FUTURE)));
    let caller = Caller::with_duration(&api, "a", true, Duration::from_secs(3));
    assert_eq!(leads_after(&caller).await, Some(3));
}

/// Leases made by hand, by Helm, or released by libraries that remove fields.
#[tokio::test(start_paused = true)]
async fn missing_fields_do_not_block_the_election() {
    let full = held("b", 15, OLD);
    let without = |fields: &[&str]| {
        let mut record = full.clone();
        for field in fields {
            record.as_object_mut().unwrap().remove(*field);
        }
        record
    };
    let check = async |record: Value, after: u64| {
        let alone = leads_after(&Caller::new(&api_with(Some(&record)), "a", false)).await;
        assert_eq!(alone, None, "the library alone can never take {record}");
        let guarded = leads_after(&Caller::new(&api_with(Some(&record)), "a", true)).await;
        assert_eq!(guarded, Some(after), "{record}");
    };
    check(Value::Null, 0).await;
    check(json!({}), 0).await;
    check(without(&["holderIdentity"]), 0).await;
    check(without(&["leaseTransitions"]), 15).await;
    check(without(&["renewTime"]), 15).await;
    check(without(&["leaseDurationSeconds"]), 15).await;
    check(without(&["renewTime", "leaseDurationSeconds", "leaseTransitions", "acquireTime"]), 15)
        .await;
    check(json!({"holderIdentity": null, "leaseTransitions": null, "renewTime": OLD}), 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_released_lease_is_free_at_once() {
    let check = async |guarded: bool, next: Claim| {
        let api = LeaseApi::default();
        let (a, b) = (Caller::new(&api, "a", guarded), Caller::new(&api, "b", guarded));
        assert_eq!(a.attempt().await, Claim::Leads);
        assert_eq!(b.attempt().await, Claim::NotAcquired);
        assert_eq!(a.step_down().await, Ok(()));
        assert_eq!(api.holder(), "");
        assert_eq!(b.attempt().await, next, "guarded: {guarded}");
    };
    check(false, Claim::NotAcquired).await;
    check(true, Claim::Leads).await;
}

#[tokio::test(start_paused = true)]
async fn a_release_reads_before_it_writes_and_frees_only_its_own() {
    let api = LeaseApi::default();
    let (a, b) = (Caller::new(&api, "a", true), Caller::new(&api, "b", true));
    assert_eq!(a.attempt().await, Claim::Leads);
    assert!(b.step_down().await.is_err(), "it is not b's to release");
    assert_eq!(api.holder(), "a");
    let before = api.requests().len();
    assert_eq!(a.step_down().await, Ok(()));
    assert_eq!(api.requests().split_off(before), [Method::GET, Method::PUT]);
}

/// The holder of a deleted Lease keeps leading until its next renewal.
#[tokio::test(start_paused = true)]
async fn a_deleted_lease_is_not_recreated_by_another_at_once() {
    let check = async |guarded: bool, other: Claim, after: Option<u64>| {
        let api = LeaseApi::default();
        let (a, b) = (Caller::new(&api, "a", guarded), Caller::new(&api, "b", guarded));
        assert_eq!(a.attempt().await, Claim::Leads);
        assert_eq!(b.attempt().await, Claim::NotAcquired);
        api.delete();
        assert_eq!(b.attempt().await, other, "guarded: {guarded}");
        assert_eq!(leads_after(&b).await, after, "a never comes back");
    };
    check(false, Claim::Leads, Some(0)).await;
    check(true, Claim::NotAcquired, Some(LEASE.as_secs())).await;
}

/// The count of transitions starts over at its maximum; it has no effect.
#[tokio::test(start_paused = true)]
async fn a_lease_with_the_maximum_of_transitions_is_taken() {
    for (transitions, next) in [(i32::MAX - 1, i32::MAX), (i32::MAX, 1), (-5, 1), (-1, 1)] {
        let api = api_with(Some(&json!({"holderIdentity": "", "leaseTransitions": transitions})));
        assert_eq!(Caller::new(&api, "a", true).attempt().await, Claim::Leads, "{transitions}");
        assert_eq!(api.record().unwrap()["leaseTransitions"], json!(next), "{transitions}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_recreates_its_deleted_lease() {
    let api = LeaseApi::default();
    let (a, b) = (Caller::new(&api, "a", true), Caller::new(&api, "b", true));
    assert_eq!(a.attempt().await, Claim::Leads);
    assert_eq!(b.attempt().await, Claim::NotAcquired);
    api.delete();
    assert_eq!(b.attempt().await, Claim::NotAcquired);
    assert_eq!(a.attempt().await, Claim::Leads);
    assert_eq!(b.attempt().await, Claim::NotAcquired);
    assert_eq!(api.holder(), "a");
}

#[tokio::test(start_paused = true)]
async fn one_of_two_concurrent_creations_is_rejected() {
    let api = LeaseApi::default();
    let (a, b) = (Caller::new(&api, "a", true), Caller::new(&api, "b", true));
    let mut held = b.line.hold(Method::POST);
    let first = async {
        held.came().await;
        assert_eq!(a.attempt().await, Claim::Leads);
        held.deliver();
    };
    let (late, ()) = tokio::join!(b.attempt(), first);
    assert_eq!((late, api.holder().as_str()), (Claim::Refused(409), "a"));
}

/// Mistakes that the guard cannot detect, so the elector has to avoid them.
#[tokio::test(start_paused = true)]
async fn identities_and_durations_must_be_right() {
    for guarded in [false, true] {
        let api = LeaseApi::default();
        let twins = (Caller::new(&api, "a", guarded), Caller::new(&api, "a", guarded));
        for _ in 0..5 {
            assert_eq!(
                (twins.0.attempt().await, twins.1.attempt().await),
                (Claim::Leads, Claim::Leads)
            );
        }
        let long = Caller::new(&LeaseApi::default(), "x".repeat(129).leak(), guarded);
        assert_eq!(long.attempt().await, Claim::Leads, "it can be created");
        assert!(matches!(long.attempt().await, Claim::Failed(_)), "and never renewed");
        let short = Duration::from_millis(500);
        let short = Caller::with_duration(&LeaseApi::default(), "a", guarded, short);
        assert_eq!(short.attempt().await, Claim::Refused(422));
    }
}
