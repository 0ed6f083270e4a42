//! Races of requests, with the library alone and behind the guard. Each scenario first
//! shows the behaviour without the guard.

use std::time::Duration;

use ccm_runtime::leadership::guard::LeaseGuard;
use http::Method;
use kube_leader_election::{Error, LeaseLock, LeaseLockParams, LeaseLockResult};
use tokio::time::sleep;

use crate::{
    lease_api::{LeaseApi, NAME, NAMESPACE},
    line::Line,
};

/// The Lease's duration.
pub const LEASE: Duration = Duration::from_secs(15);

/// The result of a call of the library.
#[derive(Debug, PartialEq, Eq)]
pub enum Claim {
    /// It reports that the candidate leads, with a Lease that names it.
    Leads,
    /// It reports that the candidate leads, although the Lease names another.
    LeadsByAnothersLease(String),
    /// Another candidate leads.
    NotAcquired,
    /// The API server refused with this status.
    Refused(u16),
    /// Something else went wrong.
    Failed(String),
}

/// A candidate that uses the library like its examples.
pub struct Caller {
    pub line: Line,
    lock: LeaseLock,
    name: &'static str,
}

impl Caller {
    /// Creates a candidate of this name, behind the guard or not.
    pub fn new(api: &LeaseApi, name: &'static str, guarded: bool) -> Self {
        Self::with_duration(api, name, guarded, LEASE)
    }

    /// Creates a candidate with another duration.
    pub fn with_duration(
        api: &LeaseApi,
        name: &'static str,
        guarded: bool,
        duration: Duration,
    ) -> Self {
        let line = Line::new(api);
        let client = line.client(guarded.then(|| LeaseGuard::new(name, duration)));
        let params = LeaseLockParams {
            holder_id: name.to_owned(),
            lease_name: NAME.to_owned(),
            lease_ttl: duration,
        };
        Self { lock: LeaseLock::new(client, NAMESPACE, params), line, name }
    }

    /// Acquires or renews the Lease, if possible.
    pub async fn attempt(&self) -> Claim {
        match self.lock.try_acquire_or_renew().await {
            Ok(LeaseLockResult::Acquired(lease)) => {
                let holder = lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
                if holder == self.name { Claim::Leads } else { Claim::LeadsByAnothersLease(holder) }
            }
            Ok(LeaseLockResult::NotAcquired(_)) => Claim::NotAcquired,
            Err(error) => claim(&error),
        }
    }

    /// Releases the Lease.
    pub async fn step_down(&self) -> Result<(), Claim> {
        self.lock.step_down().await.map_err(|error| claim(&error))
    }
}

fn claim(error: &Error) -> Claim {
    match error {
        Error::CreateLease(kube::Error::Api(status))
        | Error::AcquireLease(kube::Error::Api(status))
        | Error::RenewLease(kube::Error::Api(status))
        | Error::ReleaseLease(kube::Error::Api(status)) => Claim::Refused(status.code),
        other => Claim::Failed(other.to_string()),
    }
}

/// Returns the method of the library's patches on the wire: the guard turns them into updates.
fn write(guarded: bool) -> Method {
    if guarded { Method::PUT } else { Method::PATCH }
}

/// Returns two candidates and the API server.
fn candidates(guarded: bool) -> (LeaseApi, Caller, Caller) {
    let api = LeaseApi::default();
    let (a, b) = (Caller::new(&api, "a", guarded), Caller::new(&api, "b", guarded));
    (api, a, b)
}

/// Leaves a Lease of a process that ended long ago, which both candidates have observed.
async fn expired(api: &LeaseApi, guarded: bool, callers: [&Caller; 2]) {
    api.put_held("dead", 100);
    if guarded {
        for caller in callers {
            assert_eq!(
                caller.attempt().await,
                Claim::NotAcquired,
                "it must be seen unchanged for its duration"
            );
        }
        sleep(LEASE).await;
    }
}

/// Both read an expired Lease, then both write.
#[tokio::test(start_paused = true)]
async fn the_second_to_take_an_expired_lease_is_refused() {
    let check = async |guarded: bool, second: Claim, holder: &str| {
        let (api, a, b) = candidates(guarded);
        expired(&api, guarded, [&a, &b]).await;
        let mut held = b.line.hold(write(guarded));
        let first = async {
            held.came().await;
            assert_eq!(a.attempt().await, Claim::Leads);
            held.deliver();
        };
        let (late, ()) = tokio::join!(b.attempt(), first);
        assert_eq!((late, api.holder().as_str()), (second, holder), "guarded: {guarded}");
    };
    check(false, Claim::Leads, "b").await;
    check(true, Claim::Refused(409), "a").await;
}

/// One reads an expired Lease; its write is delayed until another leads and renews.
#[tokio::test(start_paused = true)]
async fn a_delayed_write_does_not_take_a_held_lease() {
    let check = async |guarded: bool, late: Claim, holder: &str| {
        let (api, a, b) = candidates(guarded);
        expired(&api, guarded, [&a, &b]).await;
        let mut held = b.line.hold(write(guarded));
        let meanwhile = async {
            held.came().await;
            for _ in 0..60 {
                assert_eq!(a.attempt().await, Claim::Leads);
                sleep(Duration::from_secs(2)).await;
            }
            held.deliver();
        };
        let (claim, ()) = tokio::join!(b.attempt(), meanwhile);
        assert_eq!((claim, api.holder().as_str()), (late, holder), "guarded: {guarded}");
    };
    check(false, Claim::Leads, "b").await;
    check(true, Claim::Refused(409), "a").await;
}

/// A leader reads its Lease and stalls; another one takes it over; the renewal arrives.
#[tokio::test(start_paused = true)]
async fn a_deposed_leader_does_not_renew_anothers_lease() {
    let check = async |guarded: bool, late: Claim| {
        let (api, a, b) = candidates(guarded);
        assert_eq!(a.attempt().await, Claim::Leads);
        assert_eq!(b.attempt().await, Claim::NotAcquired);
        let mut held = a.line.hold(write(guarded));
        let takeover = async {
            held.came().await;
            sleep(LEASE + Duration::from_secs(1)).await;
            assert_eq!(b.attempt().await, Claim::Leads);
            held.deliver();
        };
        let (claim, ()) = tokio::join!(a.attempt(), takeover);
        assert_eq!((claim, api.holder().as_str()), (late, "b"), "guarded: {guarded}");
    };
    check(false, Claim::LeadsByAnothersLease("b".to_owned())).await;
    check(true, Claim::Refused(409)).await;
}

/// A leader that steps down stalls after its read; another one takes the Lease; the
/// release arrives.
#[tokio::test(start_paused = true)]
async fn a_late_release_does_not_free_anothers_lease() {
    let check = async |guarded: bool, released: Result<(), Claim>, holder: &str, third: Claim| {
        let (api, a, b) = candidates(guarded);
        assert_eq!(a.attempt().await, Claim::Leads);
        assert_eq!(b.attempt().await, Claim::NotAcquired);
        let mut held = a.line.hold(write(guarded));
        let takeover = async {
            held.came().await;
            sleep(LEASE + Duration::from_secs(1)).await;
            assert_eq!(b.attempt().await, Claim::Leads);
            held.deliver();
        };
        let (outcome, ()) = tokio::join!(a.step_down(), takeover);
        assert_eq!((outcome, api.holder().as_str()), (released, holder), "guarded: {guarded}");
        let c = Caller::new(&api, "c", guarded);
        sleep(Duration::from_secs(2)).await;
        assert_eq!(c.attempt().await, third, "a third one while b leads");
    };
    check(false, Ok(()), "", Claim::Leads).await;
    check(true, Err(Claim::Refused(409)), "b", Claim::NotAcquired).await;
}

/// A Lease is deleted while a candidate is about to take it: the write must not recreate it,
/// because another candidate may lead by a new one that is deleted as well.
#[tokio::test(start_paused = true)]
async fn a_late_write_does_not_recreate_a_deleted_lease() {
    let (api, a, b) = candidates(true);
    expired(&api, true, [&a, &b]).await;
    let mut held = a.line.hold(Method::PUT);
    let meanwhile = async {
        held.came().await;
        api.delete();
        held.deliver();
    };
    let (claim, ()) = tokio::join!(a.attempt(), meanwhile);
    assert_eq!((claim, api.record()), (Claim::Refused(409), None));
}

/// An update holds the whole Lease: what others have added stays.
#[tokio::test(start_paused = true)]
async fn an_update_keeps_what_the_library_does_not_know() {
    let api = LeaseApi::default();
    api.put(&serde_json::json!({"holderIdentity": "a", "strategy": "OldestEmulationVersion"}));
    api.touch();
    let before = api.lease().unwrap();
    assert_eq!(Caller::new(&api, "a", true).attempt().await, Claim::Leads);
    let after = api.lease().unwrap();
    assert_eq!(after["metadata"]["annotations"], before["metadata"]["annotations"]);
    assert_eq!(after["spec"]["strategy"], "OldestEmulationVersion");
    assert_ne!(after["spec"]["renewTime"], before["spec"]["renewTime"]);
}

/// A write without a preceding read has no resource version and must not be sent.
#[tokio::test(start_paused = true)]
async fn a_read_allows_one_write() {
    let api = LeaseApi::default();
    api.put_held("dead", 100);
    let line = Line::new(&api);
    let leases = kube::Api::<k8s_openapi::api::coordination::v1::Lease>::namespaced(
        line.client(Some(LeaseGuard::new("a", LEASE))),
        NAMESPACE,
    );
    let patch = serde_json::json!({"metadata": {"name": NAME}, "spec": {"holderIdentity": "a"}});
    let send = async || {
        leases
            .patch(NAME, &kube::api::PatchParams::default(), &kube::api::Patch::Merge(&patch))
            .await
    };
    assert!(send().await.is_err(), "nothing was read");
    leases.get(NAME).await.unwrap();
    assert!(send().await.is_ok());
    assert!(send().await.is_err(), "the read is used up");
    assert_eq!(api.requests(), [Method::GET, Method::PUT]);
}
