//! The effects of one wrong answer, another owner or a foreign server on nodes.

use ccm_cloud::NodeAddress;
use ccm_runtime::leadership::Leadership;
use ccm_tests::in_process::loaded;

use super::*;

pub(super) const OFTEN: &str = "--node-status-update-frequency=1m";
const APPROVED: &str = "quartet.dev/change-approved";

impl Whole {
    /// Registers initialised Ready nodes that agree with their instances.
    pub(super) async fn ready(&self, numbers: std::ops::Range<usize>) -> Vec<String> {
        let names = numbers.map(|number| {
            let instance = SimInstance::numbered(number);
            let address =
                |one: &NodeAddress| json!({"type": one.kind.as_ref(), "address": one.address});
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

    /// Gives these instances another InternalIP in the cloud.
    pub(super) fn move_instances(&self, numbers: std::ops::Range<usize>) {
        for number in numbers {
            let moved = |instance: &mut SimInstance| {
                instance.addresses[0].address = format!("10.200.0.{number}");
            };
            assert!(self.cloud.update(&SimInstance::numbered(number).id, moved));
        }
    }

    /// Returns how many of these nodes have been written.
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

/// The approval must not stay for a later change, even if the rest of the write fails.
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
        // From here on, every write except of the addresses is refused.
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

/// The cloud does not want another address any more, and also says nothing about the others.
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

/// A leader that dies of its changes does not leave a new budget to the next one. New nodes do not
/// use budget.
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
            // The instance's port is bound now.
            whole.cloud.update(&instance.id, |instance| instance.addresses = addresses.clone());
            whole.initialised(&instance.name).await;
        }
    }
}

/// L7: the host was renamed, and its old Node still counts as existing.
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
    // Nodes of other providers do not matter here.
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

/// An initialised node has lost its last address, and the cloud does not know an address either.
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
