//! The effects of one wrong answer, another owner or a foreign server on nodes.

use ccm_cloud::{AddressKind, NodeAddress};
use ccm_runtime::leadership::Leadership;
use ccm_tests::in_process::loaded;

use super::*;

pub(super) const OFTEN: &str = "--node-status-update-frequency=1m";
const APPROVED: &str = "quartet.dev/change-approved";

impl Whole {
    /// Registers initialised Ready nodes that are as their instances say.
    pub(super) async fn ready(&self, numbers: std::ops::Range<usize>) -> Vec<String> {
        let names = numbers.map(|number| {
            let instance = SimInstance::numbered(number);
            let address =
                |one: &NodeAddress| json!({"type": one.kind.as_str(), "address": one.address});
            let node = json!({
                "apiVersion": "v1", "kind": "Node", "metadata": {"name": instance.name, "labels": {
                    ZONE: instance.zone, "failure-domain.beta.kubernetes.io/zone": instance.zone,
                    "topology.kubernetes.io/region": instance.region,
                    "failure-domain.beta.kubernetes.io/region": instance.region,
                    "node.kubernetes.io/instance-type": instance.instance_type,
                    "beta.kubernetes.io/instance-type": instance.instance_type,
                }},
                "spec": {"providerID": instance.provider_id().to_string()},
                "status": {
                    "addresses": instance.addresses.iter().map(address).collect::<Vec<_>>(),
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            });
            self.api.create(node).unwrap();
            let name = instance.name.clone();
            self.cloud.add(instance);
            name
        });
        let names = names.collect();
        sleep(Duration::from_mins(2)).await;
        assert_eq!(self.writes(), [""; 0], "they are as their instances say");
        names
    }

    /// The cloud names another InternalIP for these.
    pub(super) fn move_instances(&self, numbers: std::ops::Range<usize>) {
        for number in numbers {
            let moved = |instance: &mut SimInstance| {
                instance.addresses[0].address = format!("10.200.0.{number}");
            };
            assert!(self.cloud.update(&SimInstance::numbered(number).id, moved));
        }
    }

    /// How many of these nodes have been written.
    pub(super) fn moved(&self, names: &[String]) -> usize {
        let first =
            |name: &String| self.node(name)["status"]["addresses"][0]["address"].to_string();
        names.iter().filter(|name| first(name).contains("10.200.")).count()
    }

    pub(super) fn reasons(&self, names: &[String]) -> Vec<String> {
        names.iter().flat_map(|name| self.events(name)).map(|(reason, _)| reason).collect()
    }

    pub(super) fn condition(&self, name: &str) -> String {
        let findings = self.context().health.findings();
        let found = findings.iter().find(|finding| finding.name == name).unwrap();
        found.verdict.detail().to_owned()
    }
}

/// H1: 50 Ready nodes, of which 5 may change within an hour.
#[tokio::test(start_paused = true)]
async fn a_wrong_answer_about_many_ready_nodes_is_not_written() {
    for count in [50, 6, 4] {
        let whole = Whole::start(&[OFTEN]).await;
        let names = whole.ready(0..50).await;
        whole.move_instances(0..count);
        sleep(Duration::from_mins(10)).await;
        let expect = if count == 4 { 4 } else { 0 };
        assert_eq!(whole.moved(&names), expect, "of {count}");
        assert_eq!(whole.writes().len(), expect, "of {count}");
        let held =
            whole.reasons(&names).iter().filter(|reason| *reason == "NodeChangeHeld").count();
        assert_eq!(held, count - expect, "of {count}");
        assert_eq!(whole.metric("ccm_brake_held "), (count - expect) as u64, "of {count}");
        assert_eq!(whole.metric("ccm_brake_open "), u64::from(count > 5), "of {count}");
        let page: Value = serde_json::from_str(&whole.context().plans.json(None)).unwrap();
        let shown = if count > 5 { json!({"addresses": count}) } else { json!({}) };
        assert_eq!(page["held"], shown, "of {count}");
        let text = whole.condition("brake");
        let expect = format!("{count} of 50 Ready nodes");
        assert_eq!(text.contains(&expect), count > 5, "{text}");
        // New nodes go on.
        let new = whole.add_node(99);
        whole.initialised(&new).await;
        if count == 4 {
            continue;
        }

        // An approval of one is none of the others, and is used up.
        let approve = json!({"metadata": {"annotations": {APPROVED: "yes"}}});
        whole.api.patch("nodes", &names[0], "", PatchKind::Merge, approve).unwrap();
        sleep(Duration::from_mins(5)).await;
        assert_eq!(whole.moved(&names), 1, "of {count}");
        assert_eq!(whole.node(&names[0])["metadata"]["annotations"][APPROVED], Value::Null);
        // A label approves many.
        let approve = json!({"metadata": {"labels": {APPROVED: "true"}}});
        for name in &names[1..count] {
            whole.api.patch("nodes", name, "", PatchKind::Merge, approve.clone()).unwrap();
        }
        sleep(Duration::from_mins(5)).await;
        assert_eq!(whole.moved(&names), count, "of {count}");
        assert_eq!(whole.metric("ccm_brake_held "), 0);
        assert_eq!(whole.metric("ccm_brake_open "), 0);
    }
}

/// It must not stay for a later change: whatever else is written with the change may fail.
#[tokio::test(start_paused = true)]
async fn an_approval_is_used_up_by_the_very_write_that_it_approves() {
    for mark in ["annotations", "labels"] {
        let whole = Whole::start(&[OFTEN]).await;
        let names = whole.ready(0..50).await;
        whole.move_instances(0..6);
        let other = |instance: &mut SimInstance| {
            instance.labels.insert("example.com/rack".to_owned(), "r1".to_owned());
        };
        assert!(whole.cloud.update("i-00000", other));
        sleep(Duration::from_mins(3)).await;
        // Every write except of the addresses is refused from here on.
        let conflict = Action::Status { code: 409, retry_after: None };
        let fault = Fault::new(conflict).verb(Verb::Patch).resource("nodes").subresource("");
        whole.api.faults().add(fault);
        let approve = json!({"metadata": {mark: {APPROVED: "yes"}}});
        whole.api.patch("nodes", &names[0], "", PatchKind::Merge, approve).unwrap();
        sleep(Duration::from_mins(3)).await;
        assert_eq!(whole.moved(&names), 1, "{mark}");
        assert_eq!(whole.node(&names[0])["metadata"][mark][APPROVED], Value::Null, "{mark}");
    }
}

/// The cloud wants no other address any more, and says nothing about the others either.
#[tokio::test(start_paused = true)]
async fn a_held_node_whose_instance_goes_is_not_held_any_more() {
    let whole = Whole::start(&[OFTEN]).await;
    let names = whole.ready(0..50).await;
    whole.move_instances(0..6);
    sleep(Duration::from_mins(3)).await;
    assert_eq!(whole.metric("ccm_brake_held "), 6);
    whole.cloud.remove("i-00000");
    sleep(Duration::from_mins(3)).await;
    assert_eq!((whole.metric("ccm_brake_held "), whole.metric("ccm_brake_open ")), (5, 1));
    whole.api.delete("nodes", &names[1]).unwrap();
    sleep(Duration::from_mins(3)).await;
    assert_eq!((whole.metric("ccm_brake_held "), whole.metric("ccm_brake_open ")), (4, 1));
    (2..6).for_each(|number| drop(whole.cloud.remove(&SimInstance::numbered(number).id)));
    sleep(Duration::from_mins(3)).await;
    assert_eq!((whole.metric("ccm_brake_held "), whole.metric("ccm_brake_open ")), (0, 0));
    assert_eq!(whole.writes(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_wrong_answer_that_is_taken_back_is_never_written() {
    let whole = Whole::start(&[OFTEN]).await;
    let names = whole.ready(0..50).await;
    whole.move_instances(0..50);
    sleep(Duration::from_mins(3)).await;
    for number in 0..50 {
        whole.cloud.add(SimInstance::numbered(number));
    }
    sleep(Duration::from_mins(3)).await;
    assert_eq!((whole.writes().len(), whole.moved(&names)), (0, 0));
    assert_eq!(whole.metric("ccm_brake_open "), 0);
    assert_eq!(whole.metric("ccm_brake_openings_total"), 1);
}

/// A leader that dies of its changes leaves no new budget to the next one. New nodes do not use
/// budget.
#[tokio::test(start_paused = true)]
async fn what_a_change_uses_of_the_budget_is_stored_before_the_change() {
    let mut whole = Whole::before_start(&[]);
    let (settings, cloud) = (loaded::<NodeCcm>(&[OFTEN]).unwrap(), whole.cloud.clone());
    let leadership = Leadership::storing_later();
    whole.process = InProcess::with(&whole.api, Arc::new(cloud), &settings, leadership).unwrap();
    let program = Arc::new(NodeCcm::prepare(whole.context()).await.unwrap());
    program.lead(whole.context());
    let names = whole.ready(0..50).await;
    whole.move_instances(0..4);
    sleep(Duration::from_mins(5)).await;
    let new = whole.add_node(99);
    whole.initialised(&new).await;
    assert_eq!(whole.moved(&names), 0, "the Lease is not renewed");
    whole.process.annotate_lease("quartet.dev/renewed", None);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(whole.moved(&names), 4, "one renewal for all of them");
}

/// H1: the sixth within the hour is held, whatever the refresh.
#[tokio::test(start_paused = true)]
async fn a_few_nodes_in_every_refresh_are_held_at_the_sixth_within_the_hour() {
    let whole = Whole::start(&[OFTEN]).await;
    let names = whole.ready(0..50).await;
    for wave in 0..5 {
        whole.move_instances(wave * 5..wave * 5 + 5);
        sleep(Duration::from_mins(2)).await;
        assert_eq!(whole.moved(&names), 5, "wave {wave}");
    }
    assert_eq!(whole.metric("ccm_brake_open "), 1, "20 at once");
    for number in 7..25 {
        whole.cloud.add(SimInstance::numbered(number));
    }
    sleep(Duration::from_mins(2)).await;
    assert_eq!(whole.metric("ccm_brake_open "), 0);
    assert_eq!(whole.metric("ccm_brake_held "), 2, "by the budget");
    let text = whole.condition("brake");
    assert!(text.contains("the budget is used up until"), "{text}");
    sleep(Duration::from_mins(60)).await;
    assert_eq!(whole.moved(&names), 7);
    assert_eq!(whole.metric("ccm_brake_held "), 0);
}

/// H1: each of the protected properties counts.
#[tokio::test(start_paused = true)]
async fn zone_type_region_and_address_families_are_protected() {
    let v6 = |number: usize| NodeAddress::new(AddressKind::InternalIp, format!("fd00::{number}"));
    for change in 0..4 {
        let whole = Whole::start(&[OFTEN]).await;
        let names = whole.ready(0..50).await;
        if change == 3 {
            for (number, name) in names.iter().enumerate() {
                let both = |instance: &mut SimInstance| instance.addresses.push(v6(number));
                whole.cloud.update(&SimInstance::numbered(number).id, both);
                let status = whole.node(name)["status"].clone();
                let mut addresses = status["addresses"].as_array().unwrap().clone();
                addresses.push(json!({"type": "InternalIP", "address": format!("fd00::{number}")}));
                let patch = json!({"status": {"addresses": addresses}});
                whole.api.patch("nodes", name, "status", PatchKind::Merge, patch).unwrap();
            }
            sleep(Duration::from_mins(2)).await;
        }
        let before = whole.writes().len();
        for number in 0..50 {
            whole.cloud.update(&SimInstance::numbered(number).id, |instance| match change {
                0 => instance.zone = Some("elsewhere".to_owned()),
                1 => instance.region = Some("elsewhere".to_owned()),
                2 => instance.instance_type = Some("other".to_owned()),
                _ => drop(instance.addresses.pop()),
            });
        }
        sleep(Duration::from_mins(5)).await;
        assert_eq!(whole.writes().len() - before, 0, "change {change}");
        assert_eq!(whole.metric("ccm_brake_held "), 50, "change {change}");
    }
}

/// H1: `kubectl exec`, probes and host-network pods need it.
#[tokio::test(start_paused = true)]
async fn the_last_internal_ip_of_a_ready_node_is_never_removed() {
    let whole = Whole::start(&[OFTEN]).await;
    let names = whole.ready(0..1).await;
    whole.cloud.update("i-00000", |instance| drop(instance.addresses.remove(0)));
    sleep(Duration::from_mins(5)).await;
    assert_eq!(whole.node(&names[0])["status"]["addresses"][0]["address"], "10.0.0.1");
    assert_eq!(whole.reasons(&names), ["NodeInternalIPHeld"]);
}

/// M3: a schedulable node has an address.
#[tokio::test(start_paused = true)]
async fn a_new_node_without_an_address_keeps_its_taint() {
    for (arguments, waits) in [(&[][..], true), (&["--node-addresses-required=false"][..], false)] {
        let whole = Whole::start(arguments).await;
        let mut instance = SimInstance::numbered(0);
        let addresses = std::mem::take(&mut instance.addresses);
        whole.cloud.add(instance.clone());
        whole.register(&instance.name, None);
        sleep(Duration::from_mins(2)).await;
        assert_eq!(whole.is_tainted(&instance.name), waits);
        if waits {
            assert_eq!(whole.metric("ccm_node_waiting{reason=\"no_address\"}"), 1);
            assert_eq!(whole.reasons(&[instance.name.clone()]), ["NoNodeAddress"]);
            // Its port is bound now.
            whole.cloud.update(&instance.id, |instance| instance.addresses = addresses.clone());
            whole.initialised(&instance.name).await;
        }
    }
}

/// M4: a provider ID is for good.
#[tokio::test(start_paused = true)]
async fn a_foreign_server_of_the_same_name_is_not_taken() {
    // By the system UUID, by an address, by nothing but the name.
    for (uuid, address, is_ours) in [
        ("00000000-0000-4000-8000-0000000000FF", "10.9.9.9", false),
        ("I-00000", "10.9.9.9", true),
        ("00000000-0000-4000-8000-0000000000FF", "10.0.0.1", true),
    ] {
        let whole = Whole::start(&[OFTEN]).await;
        let instance = SimInstance::numbered(0);
        whole.cloud.add(SimInstance { system_uuid: None, ..instance.clone() });
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": instance.name},
            "status": {
                "addresses": [{"type": "InternalIP", "address": address}],
                "nodeInfo": {"systemUUID": uuid},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        });
        whole.api.create(node).unwrap();
        sleep(Duration::from_mins(5)).await;
        let id = whole.node(&instance.name)["spec"]["providerID"].clone();
        assert_eq!(id.is_string(), is_ours, "{uuid} {address}: {id}");
        assert_eq!(whole.writes().is_empty(), !is_ours, "{uuid} {address}");
        let unconfirmed = whole.metric("ccm_node_nodes{state=\"unconfirmed\"}");
        assert_eq!(unconfirmed, u64::from(!is_ours));
        let reasons = whole.reasons(&[instance.name]);
        assert_eq!(reasons.contains(&"InstanceUnconfirmed".to_owned()), !is_ours, "{reasons:?}");
    }
}

/// L7: the host was renamed; its old Node stays as "exists".
#[tokio::test(start_paused = true)]
async fn two_nodes_of_one_instance_are_reported() {
    let whole = Whole::start(&[OFTEN, "--node-identity=report"]).await;
    let names = whole.ready(0..2).await;
    let id = SimInstance::numbered(0).provider_id().to_string();
    whole.register("renamed", Some(&id));
    sleep(Duration::from_mins(3)).await;
    let problem = "ccm_node_irregular_nodes{problem=\"duplicate_provider_id\"}";
    assert_eq!(whole.metric(problem), 2);
    let reasons = whole.reasons(&["renamed".to_owned(), names[0].clone()]);
    assert_eq!(reasons.iter().filter(|reason| *reason == "DuplicateProviderID").count(), 2);
    assert!(!whole.is_tainted("renamed"), "the new one works");
    whole.api.delete("nodes", &names[0]).unwrap();
    sleep(Duration::from_mins(2)).await;
    assert_eq!(whole.metric(problem), 0);
    // What other providers do with their nodes is theirs.
    whole.register("other-1", Some("elsewhere://i-1"));
    whole.register("other-2", Some("elsewhere://i-1"));
    sleep(Duration::from_mins(2)).await;
    assert_eq!(whole.metric(problem), 0);
}

/// H5: the kubelet of the new machine takes over the Node of the old one, whose provider ID stays.
#[tokio::test(start_paused = true)]
async fn a_ready_node_on_a_replaced_machine_is_reported() {
    let whole = Whole::start(&[OFTEN]).await;
    let names = whole.ready(0..1).await;
    let old = whole.cloud.remove(&SimInstance::numbered(0).id).unwrap();
    whole.cloud.add(SimInstance { id: "i-new".to_owned(), ..old });
    sleep(Duration::from_mins(5)).await;
    assert_eq!(whole.reasons(&names), ["InstanceGone"]);
    assert_eq!(whole.metric("ccm_node_irregular_nodes{problem=\"instance_gone\"}"), 1);
    assert_eq!(whole.writes(), [""; 0]);
}

/// An initialised node that has lost its last address, and the cloud knows no address either.
#[tokio::test(start_paused = true)]
async fn an_initialised_node_without_an_address_is_counted() {
    let whole = Whole::start(&[OFTEN]).await;
    let names = whole.ready(0..1).await;
    whole.cloud.update("i-00000", |instance| instance.addresses.clear());
    sleep(Duration::from_mins(2)).await;
    let none = json!({"status": {"addresses": null}});
    whole.api.patch("nodes", &names[0], "status", PatchKind::Merge, none).unwrap();
    sleep(Duration::from_mins(3)).await;
    assert_eq!(whole.metric("ccm_node_irregular_nodes{problem=\"no_address\"}"), 1);
    whole.cloud.add(SimInstance::numbered(0));
    sleep(Duration::from_mins(3)).await;
    assert_eq!(whole.metric("ccm_node_irregular_nodes{problem=\"no_address\"}"), 0);
}

/// M13: zones that an operator sets on purpose.
#[tokio::test(start_paused = true)]
async fn labels_follow_the_cloud_as_the_policy_says() {
    for (policy, own, at_first, later) in [
        ("follow", None, true, true),
        ("once", None, true, false),
        ("off", None, false, false),
        ("follow", Some("off"), false, false),
        ("off", Some("follow"), true, true),
    ] {
        let argument = format!("--node-label-policy={policy}");
        let whole = Whole::start(&[OFTEN, &argument]).await;
        let instance = SimInstance::numbered(0);
        whole.cloud.add(instance.clone());
        let taint = json!({"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"});
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": instance.name, "annotations": {"quartet.dev/node-label-policy": own}},
            "spec": {"taints": [taint]},
        });
        whole.api.create(node).unwrap();
        whole.initialised(&instance.name).await;
        let zone = || whole.node(&instance.name)["metadata"]["labels"][ZONE].clone();
        let expect = if at_first { json!("sim-1a") } else { Value::Null };
        assert_eq!(zone(), expect, "{policy} {own:?}");
        whole.cloud.update(&instance.id, |instance| instance.zone = Some("rack-7".to_owned()));
        sleep(Duration::from_mins(3)).await;
        let expect = if later { json!("rack-7") } else { expect };
        assert_eq!(zone(), expect, "{policy} {own:?}");
    }
}
