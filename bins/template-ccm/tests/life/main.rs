//! The life cycle of a process, tested with this program: the order of its phases, its admin
//! pages in each phase, and its end.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod process;

use std::{net::TcpListener, time::Duration};

use ccm_runtime::program::{Failure, Program as _};
use ccm_sim::apiserver::{Action, Fault, Verb};
use process::{Outage, Process, Script, begin};
use template_ccm::TemplateCcm;
use tokio::time::timeout;

/// The identity of a process that runs without election.
async fn alone(script: Script) -> Process {
    begin(script, &["--leader-elect=false"]).await
}

/// Patches of nodes get this response.
fn patches(action: Action) -> Fault {
    Fault::new(action).verb(Verb::Patch).resource("nodes")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_phases_run_in_order() {
    let mut process = alone(Script::default()).await;
    process.named("node-1").await;
    process.ready().await;
    assert_eq!(process.get("/readyz").await, (200, "ok".to_owned()));
    let (_, page) = process.get("/readyz?verbose").await;
    assert!(
        page.contains("[+]startup ok: prepared\n")
            && page.contains("[+]nodes ok: 1 nodes watched\n")
            && page.contains("[+]template-controller ok: 2 tasks\n"),
        "{page}"
    );
    let (_, metrics) = process.get("/metrics").await;
    assert!(
        metrics.contains(
            "running_managed_controllers{name=\"template\",manager=\"cloud-controller-manager\"} 1"
        ),
        "{metrics}"
    );
    assert!(metrics.contains("ccm_config_valid 1"), "{metrics}");
    let (_, settings) = process.get("/configz").await;
    assert!(settings.contains("\"origin\": \"flag\""), "{settings}");

    // Running work is finished before it is cancelled.
    let slow = patches(Action::Delay(Duration::from_secs(1)));
    let slow = process.api.faults().add(slow);
    process.register("node-2");
    while process.api.faults().hits(slow) == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(!process.is_named("node-2"));
    assert_eq!(process.end().await, Ok(()));
    assert!(process.is_named("node-2"), "it was not drained");
    process.is_silent().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_observer_needs_no_lease_and_reports_its_mode() {
    let mut process = begin(Script::default(), &["--mode=observe"]).await;
    process.page_has("/plan", "node-1").await;
    process.ready().await;
    let (_, page) = process.get("/readyz?verbose").await;
    assert!(page.contains("[+]mode ok: observe mode: no Lease and no writes"), "{page}");
    assert!(!page.contains("leaderElection"), "{page}");
    let (_, metrics) = process.get("/metrics").await;
    assert!(metrics.contains("\nccm_observing 1\n"), "{metrics}");
    for absent in ["running_managed_controllers{", "leader_election_master_status{"] {
        assert!(!metrics.contains(absent), "{metrics}");
    }
    let (status, plan) = process.get("/plan").await;
    assert!(status == 200 && plan.starts_with("mode: observe, "), "{plan}");
    assert_eq!(process.end().await, Ok(()));
    assert!(!process.requests("nodes").contains(&"patch nodes".to_owned()));
    // The survey of other cloud controllers reads Leases.
    let leases = process.requests("leases");
    assert!(leases.iter().all(|request| request == "list leases"), "{leases:?}");
    process.is_silent().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_waits_for_an_unavailable_cloud() {
    let mut process = alone(Script { outage: Outage::Down, ..Script::default() }).await;
    process
        .page_has(
            "/readyz",
            "[-]startup failed: cannot build the cloud provider test yet: unavailable: no route\n",
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
    process.named("node-1").await;
    process.ready().await;
    assert_eq!(process.end().await, Ok(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disabled_controller_idles() {
    let check = async |script: Script, arguments: &[&str], why: &str| {
        let mut process = begin(script, arguments).await;
        process.page_has("/readyz?verbose", &format!("[+]startup ok: idle: {why}\n")).await;
        process.ready().await;
        assert!(
            !process.get("/metrics").await.1.contains("running_managed_controllers{"),
            "nothing runs"
        );
        assert_eq!(process.end().await, Ok(()));
        assert!(process.requests("nodes").is_empty() && process.lookups().is_empty());
        assert_eq!(process.requests("leases"), [""; 0]);
    };
    let offers_nothing = Script { offers_nothing: true, ..Script::default() };
    check(offers_nothing, &[], "the cloud provider test does not offer instances").await;
    let off = "--controllers disables template-controller";
    check(Script::default(), &["--controllers=*,-template"], off).await;
    check(Script::default(), &["--controllers=service-lb-controller"], off).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn configuration_errors_end_the_program() {
    let check = async |script: Script, arguments: &[&str], expect: &str| {
        let mut process = begin(script, arguments).await;
        let failure = process.ended().await.unwrap_err();
        assert!(matches!(failure, Failure::Usage(_)), "{failure:?}");
        assert!(failure.to_string().contains(expect), "{failure}");
        assert_eq!(process.requests("nodes"), [""; 0]);
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
    let mut process = begin(Script::default(), &[&port]).await;
    let failure = process.ended().await.unwrap_err();
    assert!(matches!(failure, Failure::Broken(_)), "{failure:?}");
    assert!(failure.to_string().contains("the port is in use"), "{failure}");
}

/// A drain would wait for the node whose worker has panicked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unexpected_end_of_a_task_ends_the_program_without_a_drain() {
    let panics = Script { lookup_panics: true, ..Script::default() };
    let mut process = begin(panics, &["--leader-elect=false", "--drain-timeout=1h"]).await;
    let failure = process.ended().await.unwrap_err();
    assert_eq!(failure, Failure::Broken("task workers panicked: broken".to_owned()));
    process.is_silent().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signal_ends_every_phase() {
    let mut process = alone(Script { no_server: true, ..Script::default() }).await;
    process.page_has("/readyz", "[-]startup failed: preparing\n").await;
    let unknown = "[+]rights ok: not known yet, reviewed again every 30 s: unavailable";
    process.page_has("/readyz?verbose", unknown).await;
    assert_eq!(process.end().await, Ok(()));
    let unreachable = Script { outage: Outage::Down, ..Script::default() };
    let mut process = alone(unreachable).await;
    process.page_has("/readyz", "cannot build the cloud provider test yet").await;
    assert_eq!(process.end().await, Ok(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn draining_is_bounded() {
    let stalls = Script { fault: Some(patches(Action::Stall)), ..Script::default() };
    let mut process = begin(stalls, &["--leader-elect=false", "--drain-timeout=300ms"]).await;
    process.requested("nodes", "patch nodes").await;
    assert_eq!(timeout(Duration::from_secs(3), process.end()).await.expect("an end"), Ok(()));
    assert!(!process.is_named("node-1"));
    process.is_silent().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_lease_no_replica_leads_and_everything_ends() {
    let refuses = Action::Status { code: 503, retry_after: None };
    let fault = Some(Fault::new(refuses).resource("leases"));
    let mut process = begin(Script { fault, ..Script::default() }, &[]).await;
    process
        .page_has("/readyz?verbose", "[+]leaderElection ok: standing by for lease template-ccm as ")
        .await;
    process.page_has("/readyz?verbose", "[+]startup ok: prepared\n").await;
    assert_eq!(process.get("/healthz").await, (200, "ok".to_owned()), "a standby is healthy");
    assert!(
        process
            .get("/metrics")
            .await
            .1
            .contains("leader_election_master_status{name=\"template-ccm\"} 0")
    );
    assert_eq!(timeout(Duration::from_secs(15), process.end()).await.expect("an end"), Ok(()));
    assert!(process.lookups().is_empty(), "it did not lead");
    assert!(!process.requests("nodes").contains(&"patch nodes".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_the_file_reaches_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ccm.yaml");
    std::fs::write(&path, "cloud_call_timeout: 2s").unwrap();
    let flag = format!("--config={}", path.display());
    let mut process = begin(Script::default(), &["--leader-elect=false", &flag]).await;
    process.named("node-1").await;
    std::fs::write(&path, "cloud_call_timeout: 3s\nv: 4").unwrap();
    process.page_has("/configz", "\"value\": \"3s\"").await;
    process.register("node-2");
    process.named("node-2").await;
    let lookups = process.lookups();
    let ends = [lookups.first(), lookups.last()].map(|time| time.map(Duration::as_secs));
    assert_eq!(ends, [Some(2), Some(3)], "{lookups:?}");
    std::fs::write(&path, "cloud_call_timeout: none").unwrap();
    process.page_has("/readyz?verbose", "[!]config: the new version is invalid").await;
    assert!(process.get("/metrics").await.1.contains("ccm_config_valid 0"));
    process.ready().await; // The old version still works.
    assert_eq!(process.end().await, Ok(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_user_agent_names_the_program() {
    let agent = TemplateCcm::IDENTITY.user_agent();
    let start = format!("template-ccm/{} (linux/", env!("CARGO_PKG_VERSION"));
    assert!(agent.starts_with(&start), "{agent}");
    for (arguments, expect) in [
        (vec![], String::new()),
        (vec!["--user-agent=k8s-prod/7"], "k8s-prod/7 ".to_owned()),
        (
            vec!["--user-agent=k8s-prod/7", "--user-agent", "team a"],
            "k8s-prod/7 team a ".to_owned(),
        ),
        (vec!["--user-agent=", "--user-agent= x "], "x ".to_owned()),
    ] {
        let mut process = begin(Script::default(), &arguments).await;
        assert_eq!(process.user_agent().await, expect + &agent, "{arguments:?}");
        assert_eq!(process.end().await, Ok(()));
    }
}
