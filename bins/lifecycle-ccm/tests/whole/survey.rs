//! lifecycle-ccm reports at the start that the nodes belong to another provider or project, and `/plan` shows
//! why lifecycle-ccm does nothing about a node that is not Ready.

use ccm_cloud::{CloudError, ErrorKind};
use ccm_runtime::{health::Verdict, program::Program as _};
use ccm_sim::faults::{Fault, FaultEffect};
use ccm_testing::Log;

use super::*;

/// Returns the line `fleet` after ten minutes with these nodes, all Ready, and the number of lists.
async fn after_ten_minutes(
    arguments: &[&str],
    ids: &[&str],
    instances: std::ops::Range<usize>,
) -> (Verdict, u64) {
    let (api, cloud) = (ApiServer::new(Options::default()), SimCloud::new());
    for number in instances {
        cloud.add(SimInstance::numbered(number));
    }
    for (number, id) in ids.iter().enumerate() {
        let name = name(number);
        api.create(json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
            "spec": {"providerID": id},
        }))
        .unwrap();
        let untainted = json!({"spec": {"taints": null}});
        api.patch("nodes", &name, "", PatchKind::Merge, untainted).unwrap();
        set_ready(&api, number, "True");
    }
    let process = InProcess::<LifecycleCcm>::new(&api, Arc::new(cloud.clone()), arguments).unwrap();
    let program = Arc::new(LifecycleCcm::prepare(&process.context).await.unwrap());
    program.lead(&process.context);
    sleep(Duration::from_mins(10)).await;
    let findings = process.context.health.findings();
    let fleet = findings.into_iter().find(|finding| finding.name == "fleet");
    (fleet.unwrap().verdict, cloud.calls().list)
}

const OWN: [&str; 2] = ["sim://i-00000", "sim://i-00001"];

#[tokio::test(start_paused = true)]
async fn an_observer_asks_for_one_list_and_says_that_it_shows_none_of_the_nodes() {
    let what = "0 of 2 initialised nodes found: wrong project, region or credentials?";
    let (verdict, lists) = after_ten_minutes(&["--mode=observe"], &OWN, 5..7).await;
    assert_eq!(verdict, Verdict::Failed(what.to_owned()));
    assert!((1..=20).contains(&lists), "{lists}");
    let (verdict, lists) = after_ten_minutes(&["--mode=observe"], &OWN, 0..2).await;
    assert_eq!(verdict, Verdict::Passed("the last list has shown 2 of 2 nodes".to_owned()));
    assert_eq!(lists, 1);
    let (verdict, lists) = after_ten_minutes(&["--mode=control"], &OWN, 0..2).await;
    assert!(verdict.is_passed(), "{verdict:?}");
    assert_eq!(lists, 0, "a leader lists when it needs a list");
}

#[tokio::test(start_paused = true)]
async fn a_fleet_of_another_provider_is_said() {
    let what = "2 of 2 nodes have provider IDs of k3s; is its cloud controller still on?";
    for mode in ["--mode=observe", "--mode=control"] {
        let (verdict, _) = after_ten_minutes(&[mode], &["k3s://a", "k3s://b"], 0..0).await;
        assert_eq!(verdict, Verdict::Failed(what.to_owned()), "{mode}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_page_says_why_nothing_is_done_for_a_node() {
    for mode in ["--mode=observe", "--mode=control"] {
        let (api, cloud) = (ApiServer::new(Options::default()), SimCloud::new());
        for number in 0..5 {
            register(&api, number);
            cloud.add(SimInstance::numbered(number));
            let label = json!({"metadata": {"labels": {"pool": "a"}}});
            api.patch("nodes", &name(number), "", PatchKind::Merge, label).unwrap();
        }
        let foreign = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name(5), "labels": {"pool": "a"}},
            "spec": {"providerID": "elsewhere://i-5"},
        });
        api.create(foreign).unwrap();
        let label = |number, pool| {
            let label = json!({"metadata": {"labels": {"pool": pool}}});
            api.patch("nodes", &name(number), "", PatchKind::Merge, label).unwrap();
        };
        label(1, "b");
        let refused = CloudError::new(ErrorKind::Unauthorized, "no (request req-1)");
        let refused = FaultEffect::FailNodes(vec![name(2)], refused);
        let refused = cloud.faults().add(Fault::new(refused));
        let arguments = [mode, "--node-selector=pool=a"];
        let cloud_of = Arc::new(cloud.clone());
        let process = InProcess::<LifecycleCcm>::new(&api, cloud_of, &arguments).unwrap();
        let program = Arc::new(LifecycleCcm::prepare(&process.context).await.unwrap());
        program.lead(&process.context);
        let page = |number: usize| process.context.plans.text(Some(&name(number)));
        sleep(Duration::from_mins(2)).await;
        assert!(!page(1).contains("blocked"), "{mode}: a Ready node: {}", page(1));
        (0..6).filter(|number| *number != 4).for_each(|number| set_ready(&api, number, "Unknown"));
        sleep(Duration::from_mins(2)).await;
        let foreign = "blocked: provider ID elsewhere://i-5 has no scheme of this provider (sim)";
        for (number, why) in [
            (1, "blocked: --node-selector does not select it"),
            (2, "blocked: the lookup gave no usable answer; the node is kept (unauthorized)"),
            (5, foreign),
        ] {
            assert!(page(number).contains(why), "{mode} {number}: {}", page(number));
        }
        for number in [0, 3, 4] {
            assert!(!page(number).contains("blocked"), "{mode} {number}: {}", page(number));
        }
        // The nodes are not blocked any more.
        label(1, "a");
        cloud.faults().remove(refused);
        set_ready(&api, 5, "True");
        sleep(Duration::from_mins(2)).await;
        for number in [1, 2, 5] {
            assert!(!page(number).contains("blocked"), "{mode} {number}: {}", page(number));
        }
    }
}

/// Returns the event `TaintLeftOver` of each node that has it.
fn left_over(api: &ApiServer) -> Vec<String> {
    let events = api.list("events").into_iter();
    let told = events.filter(|event| event["reason"] == "TaintLeftOver");
    told.map(|event| event["involvedObject"]["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn taints_that_nothing_removes_are_named_after_a_quarter_of_an_hour() {
    let (api, cloud) = (ApiServer::new(Options::default()), SimCloud::new());
    let tainted = |number: usize, pool: &str, key: &str| {
        cloud.add(SimInstance::numbered(number));
        register(&api, number);
        let key = format!("node.cloudprovider.kubernetes.io/{key}");
        let taints = json!([{"key": key, "effect": "NoSchedule"}]);
        let patch = json!({"metadata": {"labels": {"pool": pool}}, "spec": {"taints": taints}});
        api.patch("nodes", &name(number), "", PatchKind::Merge, patch).unwrap();
    };
    tainted(0, "a", "uninitialized");
    tainted(1, "a", "shutdown");
    tainted(2, "b", "shutdown");
    // node-ccm reports this about its own settings.
    tainted(3, "b", "uninitialized");
    // The machine may be off.
    tainted(4, "b", "shutdown");
    set_ready(&api, 4, "Unknown");
    let arguments = ["--node-selector=pool=a"];
    let process =
        InProcess::<LifecycleCcm>::new(&api, Arc::new(cloud.clone()), &arguments).unwrap();
    let context = &process.context;
    let line = || {
        let mut findings = context.health.findings().into_iter();
        findings.find(|finding| finding.name == "left-over-taints").unwrap().verdict
    };
    let count = |taint: &str| {
        let series = format!("ccm_left_over_taints{{taint=\"{taint}\"}}");
        ccm_tests::in_process::sample(&context.metrics, &series)
    };
    let program = Arc::new(LifecycleCcm::prepare(context).await.unwrap());
    program.lead(context);
    sleep(Duration::from_mins(14)).await;
    assert_eq!((line(), left_over(&api).len()), (Verdict::Passed("none".to_owned()), 0));
    sleep(Duration::from_hours(1)).await;
    let said = line().detail().to_owned();
    assert!(!line().is_passed(), "{said}");
    for what in [
        "1 nodes keep the taint node.cloudprovider.kubernetes.io/uninitialized, first node-00000: ",
        "1 nodes keep the taint node.cloudprovider.kubernetes.io/shutdown, first node-00002: ",
    ] {
        assert!(said.contains(what), "{said}");
    }
    let mut told = left_over(&api);
    told.sort();
    assert_eq!(told, [name(0), name(2)]);
    assert_eq!((count("uninitialized"), count("shutdown")), (1, 1));
    let untainted = json!({"spec": {"taints": null}});
    for number in [0, 2] {
        api.patch("nodes", &name(number), "", PatchKind::Merge, untainted.clone()).unwrap();
    }
    sleep(Duration::from_mins(2)).await;
    assert_eq!(line(), Verdict::Passed("none".to_owned()));
    assert_eq!((count("uninitialized"), count("shutdown")), (0, 0));
}

/// Two cloud controllers share the cluster on purpose, each with its selector.
#[tokio::test(start_paused = true)]
async fn nodes_that_are_not_selected_say_nothing_about_the_fleet() {
    for mode in ["--mode=observe", "--mode=control"] {
        let arguments = [mode, "--node-selector=pool=a"];
        let (verdict, _) = after_ten_minutes(&arguments, &["k3s://a", "k3s://b"], 0..0).await;
        assert!(verdict.is_passed(), "{mode}: {verdict:?}");
    }
}

/// Another scheme and another region are two different causes, and the provider says which one it
/// is.
#[tokio::test(start_paused = true)]
async fn a_node_that_becomes_another_providers_is_told_why() {
    let log = Log::new();
    let _listening = log.listen(tracing::Level::INFO);
    let api = ApiServer::new(Options { taint_new_nodes: false, ..Options::default() });
    let cloud = SimCloud::new();
    cloud.add_many(0, NODES);
    (0..NODES).for_each(|number| register(&api, number));
    let settings = loaded::<LifecycleCcm>(&["--node-grace-period=0s"]).unwrap();
    let (shared, metrics) = (Arc::new(cloud.clone()), Metrics::new());
    let _process =
        InProcess::<LifecycleCcm>::leading(&api, shared, &settings, None, metrics).await.unwrap();
    cloud.remove(&SimInstance::numbered(0).id).unwrap();
    set_ready(&api, 0, "Unknown");
    sleep(Duration::from_secs(5)).await;
    cloud.set_scheme("other");
    sleep(Duration::from_mins(5)).await;
    let why = "its provider ID sim://i-00000 has no scheme of this provider (other)";
    assert_eq!(log.lines_with(why), 1, "{}", log.text());
}
