//! A kubelet's own statements about its Node: another instance's ID, addresses that it writes
//! itself, labels of the cloud.

use super::{edges::OFTEN, *};

const HELD: &str = "ProviderIDUnconfirmed";

impl Whole {
    /// Returns the events about the node that say that its provider ID is in doubt.
    fn doubts(&self, name: &str) -> Vec<String> {
        let events = self.events(name).into_iter().filter(|(reason, _)| reason == HELD);
        events.map(|(_, text)| text).collect()
    }

    fn first_address(&self, name: &str) -> Value {
        self.node(name)["status"]["addresses"][0]["address"].clone()
    }

    /// Writes another InternalIP into the node's status, as the kubelet does.
    fn write_address(&self, name: &str, address: &str) {
        let list = json!([{"type": "InternalIP", "address": address}]);
        let status = json!({"status": {"addresses": list}});
        self.api.patch("nodes", name, "status", PatchKind::Merge, status).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn the_id_of_another_node_is_held_until_that_node_is_gone() {
    let whole = Whole::start(&[]).await;
    let victim = whole.add_node(0);
    whole.initialised(&victim).await;
    // The first label of its name agrees, and the whole name of the other node does.
    let rogue = "node-00000.example.com";
    whole.register(rogue, Some("sim://i-00000"));
    sleep(Duration::from_secs(10)).await;
    assert!(whole.is_tainted(rogue), "{:?}", whole.node(rogue)["status"]);
    assert_eq!(whole.node(rogue)["status"]["addresses"], Value::Null);
    let [text] = whole.doubts(rogue).try_into().unwrap();
    let expect = "sim://i-00000 is the instance of node-00000";
    assert!(text.contains(expect), "{text}");
    assert_eq!(whole.metric("ccm_node_waiting{reason=\"identity\"}"), 1);
    let held = "ccm_node_unconfirmed_identities_total{result=\"held\"}";
    assert_eq!(whole.metric(held), 1);
    let page = whole.context().plans.text(Some(rogue));
    assert!(page.contains("blocked: waits (identity): "), "{page}");
    assert!(whole.doubts(&victim).is_empty());

    // The machine has been renamed, and its old node is finally deleted.
    whole.api.delete("nodes", &victim).unwrap();
    sleep(Duration::from_secs(2)).await;
    assert!(!whole.is_tainted(rogue));
}

/// The setting is live, and a held node that is fixed goes on at once.
#[tokio::test(start_paused = true)]
async fn a_held_node_goes_on_by_the_setting_or_by_its_kubelet() {
    for how in ["setting", "kubelet"] {
        let whole = Whole::start(&[]).await;
        whole.cloud.add(SimInstance::numbered(3));
        whole.register("renamed", Some("sim://i-00003"));
        sleep(Duration::from_mins(30)).await;
        assert!(whole.is_tainted("renamed"), "{how}");
        match how {
            "setting" => whole.reload(&["--node-identity=report"]),
            _ => {
                let annotation = json!({"alpha.kubernetes.io/provided-node-ip": "10.0.0.4"});
                let patch = json!({"metadata": {"annotations": annotation}});
                whole.api.patch("nodes", "renamed", "", PatchKind::Merge, patch).unwrap();
            }
        }
        sleep(Duration::from_secs(2)).await;
        assert!(!whole.is_tainted("renamed"), "{how}");
    }
}

/// H1 is about the cloud. A kubelet that writes its own address does not use up the budget of other
/// nodes.
#[tokio::test(start_paused = true)]
async fn writes_of_others_use_up_no_budget() {
    for policy in ["apply", "hold"] {
        let hold = format!("--node-internal-ip-change={policy}");
        let whole = Whole::start(&[OFTEN, &hold, "--node-change-budget=3"]).await;
        let names = whole.ready(0..10).await;
        for name in &names[..5] {
            whole.write_address(name, "10.9.9.9");
            let label = json!({"metadata": {"labels": {ZONE: "elsewhere"}}});
            whole.api.patch("nodes", name, "", PatchKind::Merge, label).unwrap();
        }
        sleep(Duration::from_mins(3)).await;
        for (number, name) in names.iter().enumerate() {
            let instance = SimInstance::numbered(number);
            assert_eq!(whole.first_address(name), instance.addresses[0].address, "{policy} {name}");
            assert_eq!(whole.node(name)["metadata"]["labels"][ZONE], json!(instance.zone));
        }
        assert_eq!((whole.metric("ccm_brake_used "), whole.metric("ccm_brake_held ")), (0, 0));
        let told = whole.reasons(&names);
        let count = |wanted: &str| told.iter().filter(|reason| *reason == wanted).count();
        assert_eq!(count("NodeInternalIPRestored"), 5, "{policy}: {told:?}");
        assert_eq!(count("NodeInternalIPChanged"), 0, "{policy}: {told:?}");

        // The budget is charged for a change of the cloud, and holds it.
        whole.move_instances(0..5);
        sleep(Duration::from_mins(3)).await;
        let waiting = whole.metric("ccm_brake_held ");
        assert_eq!((whole.moved(&names), waiting), (0, if policy == "hold" { 0 } else { 5 }));
        // So node-ccm keeps the old address, even if another client writes it in the meantime.
        whole.write_address(&names[0], "10.9.9.9");
        sleep(Duration::from_mins(3)).await;
        assert_eq!(whole.moved(&names), 0, "{policy}");
    }
}

/// A new setting for all nodes does not count as a write of another client.
#[tokio::test(start_paused = true)]
async fn a_label_policy_that_comes_into_force_for_all_nodes_is_held() {
    let arguments = [OFTEN, "--node-change-budget=3"];
    let whole = Whole::start(&[arguments[0], arguments[1], "--node-label-policy=off"]).await;
    let names = whole.ready(0..10).await;
    for name in &names {
        let label = json!({"metadata": {"labels": {ZONE: "rack-7"}}});
        whole.api.patch("nodes", name, "", PatchKind::Merge, label).unwrap();
    }
    // The memory is at most as old as a refresh.
    let last = whole.context().leadership.clone();
    let settings = ccm_tests::in_process::loaded::<NodeCcm>(&arguments).unwrap();
    let cloud = Arc::new(whole.cloud.clone());
    let metrics = ccm_runtime::metrics::Metrics::new();
    let mut whole = whole;
    whole.process =
        InProcess::leading(&whole.api, cloud, &settings, Some(&last), metrics).await.unwrap();
    sleep(Duration::from_mins(10)).await;
    assert_eq!(whole.metric("ccm_brake_held "), 10);
    let kept = |name: &String| whole.node(name)["metadata"]["labels"][ZONE] == "rack-7";
    assert!(names.iter().all(kept));
}
