//! The life of a process: what is called when, what the pages say meanwhile, and how
//! it ends. The API server is one that does not answer.

#![expect(clippy::expect_used, reason = "helpers of tests fail by panic")]

mod program_sample;

use std::{net::TcpListener, time::Duration};

use ccm_runtime::program::Failure;
use ccm_sim::apiserver::{ApiServer, ListenHandle, Options};
use program_sample::{Outage, Process, Script, Step, begin, begin_at};
use tokio::time::timeout;

/// What a process is that runs without election.
fn alone(script: Script) -> Process {
    begin(script, &["--leader-elect=false"])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_steps_come_in_order() {
    let mut process = alone(Script::default());
    process.reached(Step::Working).await;
    process.ready().await;
    assert_eq!(process.get("/readyz").await, (200, "ok".to_owned()));
    let (_, page) = process.get("/readyz?verbose").await;
    assert!(
        page.contains("[+]startup ok: prepared\n")
            && page.contains("[+]rights ok: not known yet, reviewed again every 30 s: unavailable")
            && page.contains("[+]cloud-node-controller ok: 1 tasks\n"),
        "{page}"
    );
    let (_, metrics) = process.get("/metrics").await;
    assert!(metrics.contains("running_managed_controllers{name=\"cloud-node\",manager=\"cloud-controller-manager\"} 1"), "{metrics}");
    assert!(metrics.contains("ccm_config_valid 1"), "{metrics}");
    let (_, settings) = process.get("/configz").await;
    assert!(settings.contains("\"origin\": \"flag\""), "{settings}");
    assert_eq!(process.end().await, Ok(()));
    assert_eq!(
        process.steps(),
        [Step::Prepared, Step::Led, Step::Working, Step::Drained, Step::Cancelled]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_observer_works_without_a_lease_and_says_what_it_is() {
    let mut process = begin(Script::default(), &["--mode=observe"]);
    process.reached(Step::Working).await;
    process.ready().await;
    let (_, page) = process.get("/readyz?verbose").await;
    assert!(page.contains("[+]mode ok: observes: takes no Lease and writes nothing"), "{page}");
    assert!(!page.contains("leaderElection"), "{page}");
    let (_, metrics) = process.get("/metrics").await;
    assert!(metrics.contains("\nccm_observing 1\n"), "{metrics}");
    for absent in ["running_managed_controllers{", "leader_election_master_status{"] {
        assert!(!metrics.contains(absent), "{metrics}");
    }
    let (status, plan) = process.get("/plan").await;
    assert!(status == 200 && plan.starts_with("mode: observe, nothing"), "{plan}");
    assert_eq!(process.end().await, Ok(()));
    assert_eq!(process.steps(), [Step::Prepared, Step::Led, Step::Working, Step::Cancelled]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cloud_that_is_down_at_the_start_is_waited_for() {
    let mut process = alone(Script { outage: Outage::Down, ..Script::default() });
    process
        .page_has(
            "/readyz",
            "[-]startup failed: the cloud provider test cannot be built yet: unavailable: no route\n",
        )
        .await;
    assert_eq!(process.get("/readyz").await.0, 500);
    assert_eq!(process.get("/livez").await.0, 200, "a restart would not help");
    process.cloud_is(Outage::Unknown);
    process
        .page_has(
            "/readyz",
            "not known yet whether the cloud provider test offers instances: timeout: no answer",
        )
        .await;
    process.cloud_is(Outage::None);
    process.reached(Step::Working).await;
    process.ready().await;
    assert_eq!(process.end().await, Ok(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_without_work_idles() {
    let check = async |script: Script, arguments: &[&str], why: &str| {
        let mut process = begin(script, arguments);
        process.page_has("/readyz?verbose", &format!("[+]startup ok: idle: {why}\n")).await;
        process.ready().await;
        assert!(
            !process.get("/metrics").await.1.contains("running_managed_controllers{"),
            "nothing runs"
        );
        assert_eq!(process.end().await, Ok(()));
        assert_eq!(process.steps(), []);
    };
    let offers_nothing = Script { offers_nothing: true, ..Script::default() };
    check(offers_nothing, &[], "the cloud provider test does not offer instances").await;
    let off = "--controllers switches cloud-node-controller off";
    check(Script::default(), &["--controllers=*,-cloud-node"], off).await;
    check(Script::default(), &["--controllers=service-lb-controller"], off).await;
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

/// A simulated API server, and its address.
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
async fn mistakes_in_the_configuration_end_the_program() {
    let check = async |script: Script, arguments: &[&str], expect: &str| {
        let mut process = begin(script, arguments);
        let failure = process.ended().await.unwrap_err();
        assert!(matches!(failure, Failure::Usage(_)), "{failure:?}");
        assert!(failure.to_string().contains(expect), "{failure}");
        assert_eq!(process.steps(), []);
    };
    let invalid = || Script { invalid: true, ..Script::default() };
    check(
        invalid(),
        &["--cloud-config=/etc/cloud.conf"],
        "--cloud-config=/etc/cloud.conf: region must be set",
    )
    .await;
    check(invalid(), &[], "--cloud-provider=test without --cloud-config: region must be set").await;
    check(Script::default(), &["--kubeconfig=/nowhere/kube.conf"], "/nowhere/kube.conf").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_in_use_ends_the_program() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = format!("--secure-port={}", taken.local_addr().unwrap().port());
    let mut process = begin(Script::default(), &[&port]);
    let failure = process.ended().await.unwrap_err();
    assert!(matches!(failure, Failure::Broken(_)), "{failure:?}");
    assert!(failure.to_string().contains("which another process uses"), "{failure}");
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
    check(
        Script { a_task_ends: true, ..Script::default() },
        "task sync-1 ended though it must not",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_cannot_prepare_says_why() {
    let mut process = alone(Script { prepare_fails: true, ..Script::default() });
    assert_eq!(process.ended().await, Err(Failure::Broken("no room".to_owned())));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signal_ends_every_phase() {
    let hangs = Script { prepare_hangs: true, ..Script::default() };
    let mut process = alone(hangs);
    process.page_has("/readyz", "[-]startup failed: preparing\n").await;
    assert_eq!(process.end().await, Ok(()));
    let unreachable = Script { outage: Outage::Down, ..Script::default() };
    let mut process = alone(unreachable);
    process.page_has("/readyz", "cannot be built yet").await;
    assert_eq!(process.end().await, Ok(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn draining_is_bounded() {
    let script = Script { drain_hangs: true, ..Script::default() };
    let mut process = begin(script, &["--leader-elect=false", "--drain-timeout=300ms"]);
    process.reached(Step::Working).await;
    assert_eq!(timeout(Duration::from_secs(10), process.end()).await.expect("an end"), Ok(()));
    assert!(process.steps().ends_with(&[Step::Working, Step::Cancelled]), "{:?}", process.steps());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_an_api_server_nobody_leads_and_everything_ends() {
    let mut process = begin(Script::default(), &[]);
    process.reached(Step::Prepared).await;
    process
        .page_has("/readyz?verbose", "[+]leaderElection ok: standing by for lease node-ccm as ")
        .await;
    assert_eq!(process.get("/healthz").await, (200, "ok".to_owned()), "a standby is healthy");
    assert!(
        process
            .get("/metrics")
            .await
            .1
            .contains("leader_election_master_status{name=\"node-ccm\"} 0")
    );
    assert_eq!(timeout(Duration::from_secs(15), process.end()).await.expect("an end"), Ok(()));
    assert_eq!(process.steps(), [Step::Prepared], "neither led nor drained");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_the_file_reaches_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ccm.yaml");
    std::fs::write(&path, "workers: 2").unwrap();
    let flag = format!("--config={}", path.display());
    let mut process = begin(Script::default(), &["--leader-elect=false", &flag]);
    process.reached(Step::Working).await;
    std::fs::write(&path, "workers: 3\nv: 4").unwrap();
    process.reached(Step::Settings(3)).await;
    std::fs::write(&path, "workers: none").unwrap();
    process.page_has("/readyz?verbose", "[!]config: the new version is refused").await;
    assert!(process.get("/metrics").await.1.contains("ccm_config_valid 0"));
    process.ready().await; // The old version still works.
    assert_eq!(process.end().await, Ok(()));
}
