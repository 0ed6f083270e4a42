//! The life of a process, with a program that fails on demand and writes to the cloud.

#![expect(clippy::expect_used, reason = "helpers of tests fail by panic")]

mod noting;
mod phases;

use std::time::Duration;

use ccm_runtime::{leadership::CLOUD_IDENTITY, program::Failure};
use ccm_sim::apiserver::{ApiServer, ListenHandle, Options, PatchKind};
use noting::{Outage, Process, Script, Step, begin, begin_at};
use serde_json::json;

/// Returns a process that runs without election.
fn alone(script: Script) -> Process {
    begin(script, &["--leader-elect=false"])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_program_needs_follows_from_its_settings() {
    let offers_nothing = || Script { offers_nothing: true, ..Script::default() };
    let unknown = || Script { outage: Outage::Unknown, ..Script::default() };
    for script in [offers_nothing, unknown] {
        for needs in ["--needs=optional", "--needs=none"] {
            let mut process = begin(script(), &["--leader-elect=false", needs]);
            process.reached(Step::Working).await;
            assert_eq!(process.end().await, Ok(()));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_work_is_shown_also_while_the_program_idles() {
    let shortfall = Some("no network of this name");
    let mut idle = alone(Script { shortfall, offers_nothing: true, ..Script::default() });
    idle.shows("[!]provider-settings: no network of this name").await;
    idle.shows("[+]startup ok: idle: the cloud provider test does not offer instances: no network of this name").await;
    assert_eq!(idle.end().await, Ok(()));
    let mut good = alone(Script::default());
    good.shows("[+]provider-settings ok: ").await;
    assert_eq!(good.end().await, Ok(()));
}

/// Returns a simulated API server, and its address.
async fn served() -> (ListenHandle, String) {
    let server = ApiServer::new(Options::default());
    let handle = server.listen(([127, 0, 0, 1], 0).into()).await.expect("a free port");
    let address = handle.addr.to_string();
    (handle, address)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_cloud_write_at_default_settings_is_sent() {
    let (server, address) = served().await;
    let script = Script { write: Some(Duration::ZERO), ..Script::default() };
    let mut process = begin_at(&address, script.clone(), &[]);
    process.reached(Step::Answered).await;
    assert_eq!(process.end().await, Ok(()));
    let mut next = begin_at(&address, script.clone(), &[]);
    next.reached(Step::Answered).await;
    assert_eq!(next.end().await, Ok(()));
    let term = |process: &Process| {
        let sent = |step| if let Step::Sent(term) = step { term } else { None };
        process.steps().into_iter().find_map(sent).unwrap()
    };
    assert!(term(&process) < term(&next), "{:?} {:?}", process.steps(), next.steps());
    let mut alone = begin_at(&address, script, &["--leader-elect=false"]);
    alone.reached(Step::Sent(None)).await;
    assert_eq!(alone.end().await, Ok(()));
    server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_under_way_outlives_the_term_and_the_process_waits_for_it() {
    let (server, address) = served().await;
    let script = Script { write: Some(Duration::from_secs(5)), ..Script::default() };
    let terms = [
        "--leader-elect-lease-duration=3s",
        "--leader-elect-renew-deadline=2s",
        "--leader-elect-retry-period=500ms",
    ];
    let mut process = begin_at(&address, script, &terms);
    process.reached(Step::Working).await;
    server.shutdown().await;
    process.reached(Step::Cancelled).await;
    assert!(!process.steps().contains(&Step::Answered), "{:?}", process.steps());
    assert_eq!(
        process.ended().await,
        Err(Failure::Broken("leaderelection lost".to_owned())),
        "and not before the answer"
    );
    assert!(process.steps().ends_with(&[Step::Cancelled, Step::Answered]), "{:?}", process.steps());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_in_order_waits_for_a_write_under_way() {
    let script = Script { write: Some(Duration::from_secs(3)), ..Script::default() };
    let mut process = begin(script, &["--leader-elect=false", "--drain-timeout=300ms"]);
    process.reached(Step::Sent(None)).await;
    assert_eq!(process.end().await, Ok(()));
    assert!(process.steps().ends_with(&[Step::Cancelled, Step::Answered]), "{:?}", process.steps());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unexpected_end_of_a_task_ends_the_program() {
    let check = async |script: Script, expect: &str| {
        let mut process = alone(script);
        let failure = process.ended().await.unwrap_err();
        assert_eq!(failure, Failure::Broken(expect.to_owned()));
        let steps = process.steps();
        assert!(!steps.contains(&Step::Drained), "a broken program is not drained: {steps:?}");
        assert!(steps.contains(&Step::Cancelled), "its other tasks end: {steps:?}");
    };
    check(Script { a_task_panics: true, ..Script::default() }, "task sync-1 panicked: broken")
        .await;
    check(Script { a_task_ends: true, ..Script::default() }, "task sync-1 ended unexpectedly")
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_cannot_prepare_says_why() {
    let mut process = alone(Script { prepare_fails: true, ..Script::default() });
    assert_eq!(process.ended().await, Err(Failure::Broken("no room".to_owned())));
}

/// The record goes through a real Lease, and the next process reads it there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lease_names_the_cloud_and_the_next_process_waits_for_a_person() {
    const LEASE: &str = "kube-system/node-ccm";
    let server = ApiServer::new(Options::default());
    let handle = server.listen(([127, 0, 0, 1], 0).into()).await.expect("a free port");
    let address = handle.addr.to_string();
    let begin = |identity| {
        begin_at(&address, Script { identity: Some(identity), ..Script::default() }, &[])
    };
    let recorded = async |identity: &str| {
        for _ in 0..500 {
            let lease = server.get("leases", LEASE).unwrap_or_default();
            if lease["metadata"]["annotations"][CLOUD_IDENTITY] == identity {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("{identity} is not recorded: {:?}", server.get("leases", LEASE));
    };
    let mut process = begin("one");
    process.shows("[+]cloud-identity ok: the cloud is the one that is recorded: \"one\"").await;
    recorded("one").await;
    assert_eq!(process.end().await, Ok(()));

    let mut next = begin("two");
    next.shows("[!]cloud-identity").await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    recorded("one").await;
    let removed = json!({"metadata": {"annotations": {CLOUD_IDENTITY: null}}});
    server.patch("leases", LEASE, "", PatchKind::Merge, removed).expect("it exists");
    next.shows("[+]cloud-identity").await;
    recorded("two").await;
    assert_eq!(next.end().await, Ok(()));
    handle.shutdown().await;
}

/// A standby that did not end would never be able to lead: its credentials do not change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_ends_when_its_kubeconfig_has_changed() {
    let (server, address) = served().await;
    let folder = tempfile::tempdir().expect("a folder");
    let (path, server_url) = (folder.path().join("config"), format!("http://{address}"));
    let write = |token: &str| {
        let text = json!({
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": {"server": server_url}}],
            "users": [{"name": "u", "user": {"token": token}}],
        });
        std::fs::write(&path, text.to_string()).expect("a file");
    };
    write("one");
    let flag = format!("--kubeconfig={}", path.display());
    let clear = "--kube-api-credentials-over-http";
    let mut leader = begin_at(&address, Script::default(), &[&flag, clear]);
    leader.reached(Step::Working).await;
    let mut standby = begin_at(&address, Script::default(), &[&flag, clear]);
    standby.reached(Step::Prepared).await;
    let mut observer = begin_at(&address, Script::default(), &[&flag, clear, "--mode=observe"]);
    observer.reached(Step::Working).await;
    let disabled = ["--controllers=-cloud-node-controller", &flag, clear];
    let mut idle = begin_at(&address, Script::default(), &disabled);
    idle.shows("[+]startup ok: idle").await;
    std::fs::write(&path, "users: [").expect("a file");
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert!(!standby.has_ended() && !observer.has_ended(), "the file is half written");
    write("two");
    assert_eq!(standby.ended().await, Ok(()));
    assert_eq!(observer.ended().await, Ok(()));
    assert_eq!(idle.ended().await, Ok(()));
    assert!(!leader.has_ended(), "it leaves the others the time to come back");
    assert_eq!(leader.end().await, Ok(()));
    server.shutdown().await;
}
