//! node-ccm reports at the start that the nodes belong to another provider or project, and `/plan`
//! shows why node-ccm does nothing about a node.

use ccm_cloud::{AddressKind, NodeAddress};
use ccm_runtime::health::Verdict;

use super::*;

impl Whole {
    /// Adds a node that another controller has initialised.
    fn settled_elsewhere(&self, name: &str, provider_id: &str) {
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
            "spec": {"providerID": provider_id},
        });
        self.api.create(node).unwrap();
    }

    fn fleet_verdict(&self) -> Verdict {
        let findings = self.context().health.findings();
        findings.into_iter().find(|finding| finding.name == "fleet").unwrap().verdict
    }

    fn plan_of(&self, name: &str) -> String {
        self.context().plans.text(Some(name))
    }
}

/// Returns a node-ccm that has led, or observed, for half an hour with these nodes of another
/// controller.
async fn after_half_an_hour(arguments: &[&str], nodes: &[(&str, &str)]) -> Whole {
    let whole = Whole::before_start(arguments);
    for (name, id) in nodes {
        whole.settled_elsewhere(name, id);
    }
    let program = Arc::new(NodeCcm::prepare(whole.context()).await.unwrap());
    program.lead(whole.context());
    sleep(Duration::from_mins(30)).await;
    whole
}

#[tokio::test(start_paused = true)]
async fn a_fleet_of_another_provider_is_no_fleet_without_work() {
    let nodes = [("k3s-1", "k3s://k3s-1"), ("k3s-2", "k3s://k3s-2")];
    let whole = after_half_an_hour(&[], &nodes).await;
    let what = "2 of 2 nodes have provider IDs of k3s; is its cloud controller still on?";
    assert_eq!(whole.fleet_verdict(), Verdict::Failed(what.to_owned()));

    let one_of_many = [nodes[0], ("node-00000", "sim://i-00000"), ("node-00001", "sim://i-00001")];
    let whole = Whole::before_start(&[]);
    for number in 0..2 {
        whole.cloud.add(SimInstance::numbered(number));
    }
    for (name, id) in one_of_many {
        whole.settled_elsewhere(name, id);
    }
    let program = Arc::new(NodeCcm::prepare(whole.context()).await.unwrap());
    program.lead(whole.context());
    sleep(Duration::from_mins(30)).await;
    assert!(whole.fleet_verdict().is_passed(), "{:?}", whole.fleet_verdict());
}

#[tokio::test(start_paused = true)]
async fn a_project_without_any_of_the_nodes_is_no_fleet_that_is_in_sync() {
    for mode in ["--mode=observe", "--mode=control"] {
        let whole = after_half_an_hour(
            &[mode],
            &[("node-00000", "sim://i-00000"), ("node-00001", "sim://i-00001")],
        )
        .await;
        let what = "0 of 2 initialised nodes found: wrong project, region or credentials?";
        assert_eq!(whole.fleet_verdict(), Verdict::Failed(what.to_owned()), "{mode}");
        let page = whole.plan_of("node-00000");
        assert!(page.contains("blocked: instance gone"), "{mode}: {page}");
    }
}

/// Two cloud controllers share the cluster on purpose, each with its selector.
#[tokio::test(start_paused = true)]
async fn nodes_that_are_not_selected_say_nothing_about_the_fleet() {
    for mode in ["--mode=observe", "--mode=control"] {
        let nodes = [("k3s-1", "k3s://k3s-1"), ("k3s-2", "k3s://k3s-2")];
        let whole = after_half_an_hour(&[mode, "--node-selector=pool=a"], &nodes).await;
        assert!(whole.fleet_verdict().is_passed(), "{mode}: {:?}", whole.fleet_verdict());
    }
}

/// The kubelet's `--node-ip` has already been reported, on this node or by an earlier leader.
#[tokio::test(start_paused = true)]
async fn a_family_that_the_kubelet_left_out_is_said_once() {
    for is_new in [true, false] {
        let whole = Whole::start(&["--node-status-update-frequency=1m"]).await;
        let mut instance = SimInstance::numbered(0);
        let v6 = NodeAddress::new(AddressKind::InternalIp, "fd00::1");
        instance.addresses.retain(|one| one.kind == AddressKind::InternalIp);
        let own = instance.addresses[0].address.clone();
        instance.addresses.push(v6);
        let name = instance.name.clone();
        let taint = json!({"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"});
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "annotations": {"alpha.kubernetes.io/provided-node-ip": own}},
            "spec": {
                "providerID": instance.provider_id().to_string(),
                "taints": if is_new { vec![taint] } else { Vec::new() },
            },
            "status": {"addresses": [
                {"type": "InternalIP", "address": own}, {"type": "Hostname", "address": name},
            ]},
        });
        whole.cloud.add(instance);
        whole.api.create(node).unwrap();
        sleep(Duration::from_mins(30)).await;
        let writes = whole.writes();
        assert!(!writes.contains(&"patch nodes/status".to_owned()), "{writes:?}");
        let events = whole.events(&name);
        let told = events.iter().filter(|(reason, _)| reason == "NodeIPFamilyLeftOut");
        assert_eq!(told.count(), 1, "{events:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_page_says_why_nothing_is_done_for_a_node() {
    for mode in ["--mode=observe", "--mode=control"] {
        let whole = Whole::before_start(&[mode]);
        whole.register("lost", None);
        whole.register("foreign", Some("elsewhere://i-1"));
        whole.settled_elsewhere("settled", "elsewhere://i-2");
        let program = Arc::new(NodeCcm::prepare(whole.context()).await.unwrap());
        program.lead(whole.context());
        sleep(Duration::from_mins(2)).await;
        for (name, why) in [
            ("lost", "blocked: waits (instance_not_found): "),
            (
                "foreign",
                "blocked: provider ID elsewhere://i-1 has no scheme of this provider (sim)",
            ),
            (
                "settled",
                "blocked: provider ID elsewhere://i-2 has no scheme of this provider (sim)",
            ),
        ] {
            let page = whole.plan_of(name);
            assert!(page.contains(why), "{mode}: {page}");
        }
        assert_eq!(whole.metric("ccm_plan_objects "), 0, "{mode}");

        let instance = SimInstance { name: "lost".to_owned(), ..SimInstance::numbered(7) };
        whole.cloud.add(instance);
        sleep(Duration::from_mins(10)).await;
        let page = whole.plan_of("lost");
        assert!(!page.contains("blocked: "), "{mode}: {page}");
    }
}

/// Where lifecycle-ccm works, it removes the taint within seconds. It shows itself which nodes it
/// does not serve.
#[tokio::test(start_paused = true)]
async fn a_taint_of_a_shutdown_that_nothing_removes_is_named() {
    let whole = Whole::before_start(&["--node-selector=pool=a"]);
    for (number, pool, status) in [(0, "a", "True"), (1, "a", "Unknown"), (2, "b", "True")] {
        let (instance, key) = (SimInstance::numbered(number), "shutdown");
        let key = format!("node.cloudprovider.kubernetes.io/{key}");
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": instance.name, "labels": {"pool": pool}},
            "spec": {
                "providerID": instance.provider_id().as_str(),
                "taints": [{"key": key, "effect": "NoSchedule"}],
            },
            "status": {"conditions": [{"type": "Ready", "status": status}]},
        });
        whole.api.create(node).unwrap();
        whole.cloud.add(instance);
    }
    let program = Arc::new(NodeCcm::prepare(whole.context()).await.unwrap());
    program.lead(whole.context());
    sleep(Duration::from_mins(30)).await;
    assert_eq!(whole.metric("ccm_left_over_taints{taint=\"shutdown\"}"), 1);
    let findings = whole.context().health.findings();
    let line = findings.into_iter().find(|finding| finding.name == "left-over-taints").unwrap();
    let what =
        "1 nodes keep the taint node.cloudprovider.kubernetes.io/shutdown, first node-00000: ";
    assert!(line.verdict.detail().starts_with(what), "{:?}", line.verdict);
}
