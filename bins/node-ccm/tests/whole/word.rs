//! A kubelet's own statements about its Node: another instance's ID, addresses that it writes
//! itself, labels of the cloud.

use super::{edges::OFTEN, *};

const HELD: &str = "ProviderIDUnconfirmed";

impl Whole {
    /// The events with which the node says that its provider ID is in doubt.
    fn doubts(&self, name: &str) -> Vec<String> {
        let events = self.events(name).into_iter().filter(|(reason, _)| reason == HELD);
        events.map(|(_, text)| text).collect()
    }

    fn first_address(&self, name: &str) -> Value {
        self.node(name)["status"]["addresses"][0]["address"].clone()
    }

    /// The kubelet writes another InternalIP into its status.
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
    // Its first label agrees, and the whole name of the other one.
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

    // The machine has been renamed: its old node goes at last.
    whole.api.delete("nodes", &victim).unwrap();
    sleep(Duration::from_secs(2)).await;
    assert!(!whole.is_tainted(rogue));
}

/// Machines outside of the cluster, and a slip in `--provider-id`.
#[tokio::test(start_paused = true)]
async fn an_id_with_which_nothing_agrees_is_held() {
    for (policy, is_held) in [("strict", true), ("report", false)] {
        let whole = Whole::start(&[&format!("--node-identity={policy}")]).await;
        whole.cloud.add(SimInstance::numbered(3));
        whole.register("rogue", Some("sim://i-00003"));
        sleep(Duration::from_mins(30)).await;
        assert_eq!(whole.is_tainted("rogue"), is_held, "{policy}");
        let told = whole.doubts("rogue");
        assert_eq!(told.len(), 1, "{policy}: {told:?}");
        assert!(told[0].contains("sim://i-00003 (node-00003"), "{told:?}");
        for (result, count) in [("held", is_held), ("reported", !is_held)] {
            let series = format!("ccm_node_unconfirmed_identities_total{{result=\"{result}\"}}");
            assert_eq!(whole.metric(&series), u64::from(count), "{policy}: {result}");
        }
        let calls = whole.cloud.calls().lookup;
        assert!(calls < 12, "{policy}: {calls} calls to the cloud in half an hour");
    }
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

/// Nodes as real clusters have them: each is initialised at once and without a warning.
#[tokio::test(start_paused = true)]
async fn honest_kubelets_with_an_id_of_their_own_are_initialised() {
    let node_ip = json!({"alpha.kubernetes.io/provided-node-ip": "10.0.0.4"});
    let uuid = SimInstance::numbered(3).system_uuid.unwrap();
    for (name, id, annotations, uuid) in [
        ("node-00003", "i-00003", json!({}), ""),
        ("node-00003.example.com", "i-00003", json!({}), ""),
        // A name of its own, with --node-ip.
        ("worker-a", "i-00003", node_ip, ""),
        // A name of its own, and a virtual machine.
        ("worker-a", &uuid, json!({}), &uuid),
    ] {
        let whole = Whole::start(&[]).await;
        let instance = SimInstance { id: id.to_owned(), ..SimInstance::numbered(3) };
        whole.cloud.add(instance);
        let taint = json!({"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"});
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"providerID": format!("sim://{id}"), "taints": [taint]},
            "status": {"nodeInfo": {"systemUUID": uuid.to_uppercase()}},
        });
        whole.api.create(node).unwrap();
        sleep(Duration::from_secs(2)).await;
        assert!(!whole.is_tainted(name), "{name} {id}");
        assert_eq!(whole.doubts(name), [""; 0], "{name} {id}");
    }
}

/// A cloud that gives neither names nor addresses: nothing can be compared.
#[tokio::test(start_paused = true)]
async fn a_cloud_without_names_locks_no_node_out() {
    let whole = Whole::start(&["--node-addresses-required=false"]).await;
    let nameless =
        SimInstance { name: String::new(), addresses: Vec::new(), ..SimInstance::numbered(3) };
    whole.cloud.add(nameless);
    whole.register("worker-a", Some("sim://i-00003"));
    sleep(Duration::from_secs(2)).await;
    assert!(!whole.is_tainted("worker-a"));
    assert_eq!(whole.doubts("worker-a"), [""; 0], "a line of the log says so");
    assert_eq!(whole.metric("ccm_node_unconfirmed_identities_total{result=\"reported\"}"), 1);
}

/// Nodes that were initialised before, or that join without the taint.
#[tokio::test(start_paused = true)]
async fn an_initialised_node_is_told_of_it_and_kept_in_sync() {
    let whole = Whole::start(&[OFTEN]).await;
    let names = whole.ready(0..1).await;
    for (name, id) in [("a", "sim://i-00000"), ("b", "sim://i-00001")] {
        whole.cloud.add(SimInstance::numbered(1));
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
            "spec": {"providerID": id},
            "status": {"addresses": [{"type": "InternalIP", "address": "10.9.9.9"}]},
        });
        whole.api.create(node).unwrap();
        sleep(Duration::from_secs(2)).await;
        assert_eq!(whole.doubts(name).len(), 1, "{name}: {:?}", whole.events(name));
        assert!(!whole.is_tainted(name), "{name}");
        sleep(Duration::from_mins(10)).await;
        assert_ne!(whole.first_address(name), json!("10.9.9.9"), "{name}: in sync as before");
        assert_eq!(whole.doubts(name).len(), 1, "{name}: {:?}", whole.events(name));
    }
    assert_eq!(whole.doubts(&names[0]), [""; 0]);
}

/// A kubelet without ID that has another machine's UUID in its status.
#[tokio::test(start_paused = true)]
async fn a_forged_uuid_takes_no_instance_that_a_node_has() {
    for is_new in [true, false] {
        let whole = Whole::start(&[OFTEN]).await;
        let victim = whole.add_node(0);
        whole.initialised(&victim).await;
        let uuid = SimInstance::numbered(0).system_uuid;
        let taint = is_new.then(|| json!({"key": UNINITIALIZED, "effect": "NoSchedule"}));
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": "rogue"},
            "spec": {"taints": Vec::from_iter(taint)},
            "status": {
                "nodeInfo": {"systemUUID": uuid},
                "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
            },
        });
        whole.api.create(node).unwrap();
        sleep(Duration::from_mins(3)).await;
        assert_eq!(
            whole.node("rogue")["spec"]["providerID"],
            Value::Null,
            "{:?}",
            whole.events("rogue")
        );
        assert_eq!(whole.doubts("rogue").len(), 1, "{:?}", whole.events("rogue"));
    }
}

/// H1 is about the cloud. A kubelet that writes its own address costs no other node its change.
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
        // So it stays, whoever writes the address in the meantime.
        whole.write_address(&names[0], "10.9.9.9");
        sleep(Duration::from_mins(3)).await;
        assert_eq!(whole.moved(&names), 0, "{policy}");
    }
}

/// A setting that comes into force for all nodes does not count as a write of another client.
#[tokio::test(start_paused = true)]
async fn a_label_policy_that_comes_into_force_for_all_nodes_is_held() {
    let arguments = [OFTEN, "--node-change-budget=3"];
    let whole = Whole::start(&[arguments[0], arguments[1], "--node-label-policy=off"]).await;
    let names = whole.ready(0..10).await;
    for name in &names {
        let label = json!({"metadata": {"labels": {ZONE: "rack-7"}}});
        whole.api.patch("nodes", name, "", PatchKind::Merge, label).unwrap();
    }
    // Its memory is a refresh old at most.
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

/// The cloud alone names the labels of its domain.
#[tokio::test(start_paused = true)]
async fn a_forged_label_of_the_cloud_goes() {
    for is_new in [true, false] {
        let whole = Whole::start(&[OFTEN]).await;
        let mut instance = SimInstance::numbered(0);
        instance.labels.insert("openstack.quartet.dev/rack".to_owned(), "r1".to_owned());
        let taint = json!({"key": UNINITIALIZED, "effect": "NoSchedule"});
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": instance.name, "labels": {
                "openstack.quartet.dev/rack": "forged", "openstack.quartet.dev/pci": "yes",
                "example.com/mine": "kept",
            }},
            "spec": {
                "providerID": instance.provider_id().to_string(),
                "taints": if is_new { json!([taint]) } else { json!([]) },
            },
        });
        let name = instance.name.clone();
        whole.cloud.add(instance);
        whole.api.create(node).unwrap();
        sleep(Duration::from_secs(10)).await;
        let labels = whole.node(&name)["metadata"]["labels"].clone();
        assert_eq!(labels["openstack.quartet.dev/rack"], "r1", "{is_new}");
        assert_eq!(labels["openstack.quartet.dev/pci"], Value::Null, "{is_new}");
        assert_eq!(labels["example.com/mine"], "kept", "{is_new}");
    }
}
