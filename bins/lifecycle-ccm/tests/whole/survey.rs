//! lifecycle-ccm reports at the start that the nodes belong to another provider or project.

use ccm_runtime::{health::Verdict, program::Program as _};
use ccm_testing::Log;

use super::*;

/// The line `fleet` after ten minutes with these nodes, all Ready, and the number of lists.
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

/// Two cloud controllers share the cluster on purpose, each with its selector.
#[tokio::test(start_paused = true)]
async fn nodes_that_are_not_selected_say_nothing_about_the_fleet() {
    for mode in ["--mode=observe", "--mode=control"] {
        let arguments = [mode, "--node-selector=pool=a"];
        let (verdict, _) = after_ten_minutes(&arguments, &["k3s://a", "k3s://b"], 0..0).await;
        assert!(verdict.is_passed(), "{mode}: {verdict:?}");
    }
}

/// Another scheme and another region are two causes: the provider says which one it is.
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
