//! The phases of a process: the pages in each of them, and its end.

use std::{net::TcpListener, time::Duration};

use ccm_runtime::program::{Failure, Program as _};
use tokio::time::timeout;

use crate::{
    alone,
    noting::{Noting, Outage, Process, Script, Step, begin},
};

fn outage(outage: Outage) -> Script {
    Script { outage, ..Script::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_phases_run_in_order() {
    let mut process = alone(Script::default());
    process.reached(Step::Working).await;
    process.page_has("/readyz", "ok").await;
    for line in ["startup ok: prepared", "cloud-node-controller ok: 1 tasks"] {
        process.shows(&format!("[+]{line}")).await;
    }
    let (_, metrics) = process.get("/metrics").await;
    let runs =
        "running_managed_controllers{name=\"cloud-node\",manager=\"cloud-controller-manager\"} 1";
    assert!(metrics.contains(runs) && metrics.contains("ccm_config_valid 1"), "{metrics}");
    process.page_has("/configz", "\"origin\": \"flag\"").await;
    assert_eq!(process.end().await, Ok(()));
    let order = [Step::Prepared, Step::Led, Step::Working, Step::Drained, Step::Cancelled];
    assert_eq!(process.steps(), order);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_observer_needs_no_lease_and_reports_its_mode() {
    let mut process = begin(Script::default(), &["--mode=observe"]);
    process.reached(Step::Working).await;
    process.shows("[+]mode ok: observe mode: no Lease and no writes").await;
    let (_, page) = process.get("/readyz?verbose").await;
    assert!(!page.contains("leaderElection"), "{page}");
    let (_, metrics) = process.get("/metrics").await;
    assert!(metrics.contains("\nccm_observing 1\n"), "{metrics}");
    for absent in ["running_managed_controllers{", "leader_election_master_status{"] {
        assert!(!metrics.contains(absent), "{metrics}");
    }
    process.page_has("/plan", "mode: observe, ").await;
    assert_eq!(process.end().await, Ok(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_waits_for_an_unavailable_cloud() {
    let mut process = alone(outage(Outage::Down));
    let down = "cannot build the cloud provider test yet: unavailable: no route\n";
    process.page_has("/readyz", &format!("[-]startup failed: {down}")).await;
    assert_eq!(process.get("/readyz").await.0, 500);
    assert_eq!(process.get("/livez").await.0, 200, "a restart would not help");
    process.cloud_is(Outage::Unknown);
    let unknown =
        "not known yet whether the cloud provider test offers instances: timeout: no answer";
    process.page_has("/readyz", unknown).await;
    process.cloud_is(Outage::None);
    process.reached(Step::Working).await;
    assert_eq!(process.end().await, Ok(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disabled_controller_idles() {
    for disabled in ["--controllers=*,-cloud-node", "--controllers=service-lb-controller"] {
        let mut process = begin(Script::default(), &[disabled]);
        process.shows("[+]startup ok: idle: --controllers disables cloud-node-controller").await;
        process.page_has("/readyz", "ok").await;
        let (_, metrics) = process.get("/metrics").await;
        assert!(!metrics.contains("running_managed_controllers{"), "nothing runs");
        assert_eq!((process.end().await, process.steps()), (Ok(()), Vec::new()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn configuration_errors_end_the_program() {
    let check = async |script: Script, arguments: &[&str], expect: &str| {
        let failure = begin(script, arguments).ended().await.unwrap_err();
        assert!(matches!(failure, Failure::Usage(_)), "{failure:?}");
        assert!(failure.to_string().contains(expect), "{failure}");
    };
    let invalid = || outage(Outage::Invalid);
    let named = "--cloud-config=/etc/cloud.conf: region must be set";
    check(invalid(), &["--cloud-config=/etc/cloud.conf"], named).await;
    check(invalid(), &[], "--cloud-provider=test without --cloud-config: region must be set").await;
    check(Script::default(), &["--kubeconfig=/nowhere/kube.conf"], "/nowhere/kube.conf").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_in_use_ends_the_program() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = format!("--secure-port={}", taken.local_addr().expect("it is bound").port());
    let failure = begin(Script::default(), &[&port]).ended().await.unwrap_err();
    assert!(matches!(failure, Failure::Broken(_)), "{failure:?}");
    assert!(failure.to_string().contains("the port is in use"), "{failure}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signal_ends_every_phase() {
    let mut process = alone(Script { prepare_hangs: true, ..Script::default() });
    process.page_has("/readyz", "[-]startup failed: preparing\n").await;
    process.shows("[+]rights ok: not known yet, reviewed again every 30 s: unavailable").await;
    assert_eq!(process.end().await, Ok(()));
    let mut process = alone(outage(Outage::Down));
    process.page_has("/readyz", "cannot build the cloud provider test yet").await;
    assert_eq!(process.end().await, Ok(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn draining_is_bounded() {
    let script = Script { drain_hangs: true, ..Script::default() };
    let mut process = begin(script, &["--leader-elect=false", "--drain-timeout=300ms"]);
    process.reached(Step::Working).await;
    assert_eq!(timeout(Duration::from_secs(3), process.end()).await.expect("an end"), Ok(()));
    assert!(process.steps().contains(&Step::Cancelled), "{:?}", process.steps());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_lease_no_replica_leads_and_everything_ends() {
    let mut process = begin(Script::default(), &[]);
    process.shows("[+]leaderElection ok: standing by for lease node-ccm as ").await;
    process.shows("[+]startup ok: prepared").await;
    assert_eq!(process.get("/healthz").await, (200, "ok".to_owned()), "a standby is healthy");
    let status = "leader_election_master_status{name=\"node-ccm\"} 0";
    process.page_has("/metrics", status).await;
    assert_eq!(timeout(Duration::from_secs(15), process.end()).await.expect("an end"), Ok(()));
    assert_eq!(process.steps(), [Step::Prepared], "it did not lead");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_the_file_reaches_the_program() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ccm.yaml");
    let write = |text: &str| std::fs::write(&path, text).expect("a file");
    write("cloud_read_qps: 2");
    let flag = format!("--config={}", path.display());
    let mut process = begin(Script::default(), &["--leader-elect=false", &flag]);
    process.reached(Step::Working).await;
    write("cloud_read_qps: 3\nv: 4");
    process.page_has("/configz", "\"value\": \"3\"").await;
    write("cloud_read_qps: none");
    process.shows("[!]config: the new version is invalid").await;
    process.page_has("/metrics", "ccm_config_valid 0").await;
    assert_eq!(process.get("/readyz").await.0, 200, "the old version still works");
    assert_eq!(process.end().await, Ok(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_user_agent_names_the_program() {
    let agent = Noting::IDENTITY.user_agent();
    let start = format!("node-ccm/{} (linux/", env!("CARGO_PKG_VERSION"));
    assert!(agent.starts_with(&start), "{agent}");
    let check = async |mut process: Process, expect: &str| {
        process.reached(Step::Prepared).await;
        assert_eq!(process.user_agent(), format!("{expect}{agent}"));
        assert_eq!(process.end().await, Ok(()));
    };
    check(alone(Script::default()), "").await;
    let two = ["--user-agent=k8s-prod/7", "--user-agent", "team a"];
    check(begin(Script::default(), &two), "k8s-prod/7 team a ").await;
    check(begin(Script::default(), &["--user-agent=", "--user-agent= x "]), "x ").await;
}
