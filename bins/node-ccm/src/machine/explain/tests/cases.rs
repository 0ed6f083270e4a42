//! The first three lines of the page: the state of a node, the cause and the fix.

use super::*;

#[test]
fn what_is_fine() {
    // Fine.
    check(
        &after(ready(), found(whole("one"))),
        [
            "fine",
            "it is initialised and agrees with its instance sim://one, as the cloud showed it at 1970-01-01T00:16:40Z, 1 min ago",
            "nothing has to be done",
        ],
    );
    // Stale.
    check(
        &with_shown(ready(), shown(ready()), 1000),
        [
            "work is under way",
            "it is initialised and agrees with its instance sim://one as the cloud showed it at 1970-01-01T00:16:40Z, 16 min ago, and the cloud has not shown it since",
            "wait; if it lasts, the lines cloud and fleet of /readyz?verbose say why the cloud does not answer",
        ],
    );
}

#[test]
fn what_is_not_known_here() {
    // No node.
    check(
        &with(NodeFacts { is_listed: true, ..NodeFacts::default() }),
        [
            "unknown",
            "the API server does not show a node \"one\"",
            "check the name (kubectl get nodes); if its machine runs, look at its kubelet, which registers it",
        ],
    );
    // Not listed.
    check(
        &with(NodeFacts::default()),
        [
            "unknown",
            "the nodes have not been listed yet",
            "wait; if it lasts, the line nodes of /readyz?verbose says why the API server does not list them",
        ],
    );
    // Standby.
    check(
        &Machine::new(params()).explain("one", &shown(tainted("one")), at(NOW)),
        [
            "unknown",
            "this replica does not lead, or has begun to lead and waits for a current list of the nodes: it has not looked at the node",
            "ask the replica that holds the Lease of node-ccm (docs/how-to/explain.md); if that is this one, the line stores of /readyz?verbose says what it waits for",
        ],
    );
    // Not asked.
    check(
        &with(shown(tainted("one"))),
        [
            "work is under way",
            "this leader does not have an answer of the cloud about this node yet",
            "wait; if it lasts, the lines cloud and fleet of /readyz?verbose say why the cloud does not answer",
        ],
    );
    // Unasked.
    check(
        &with(NodeFacts {
            seen: Some(SeenNode { claim: None, ..seen(tainted("one")) }),
            ..shown(tainted("one"))
        }),
        [
            "work is under way",
            "the cloud provider has not reported its provider ID schemes yet",
            "wait; if it lasts, the lines cloud and fleet of /readyz?verbose say why the cloud does not answer",
        ],
    );
}

#[test]
fn what_another_controller_does() {
    // Foreign.
    check(
        &with(left_out("provider ID k3s://one has no scheme of this provider (sim)", true)),
        [
            "not responsible",
            "provider ID k3s://one has no scheme of this provider (sim); it stays tainted until another controller initialises it",
            "nothing has to be done if another controller is responsible for it; otherwise correct --cloud-provider of node-ccm; or correct the kubelet's --provider-id, delete this Node (kubectl delete node one) and restart the kubelet, which registers it again: the provider ID of a Node cannot be changed",
        ],
    );
    // Unselected.
    check(
        &with(left_out("--node-selector does not select it", false)),
        [
            "not responsible",
            "--node-selector does not select it; it stays tainted until another controller initialises it",
            "nothing has to be done if another controller is responsible for it; otherwise correct the labels of the node, or --node-selector of node-ccm",
        ],
    );
    // Not ours.
    check(
        &after(tainted("one"), Ok(Lookup::NotOurs("of the other".to_owned()))),
        [
            "not responsible",
            "the cloud says that another controller is responsible: of the other",
            "nothing has to be done if another controller is responsible for it; otherwise correct --cloud-provider of node-ccm; or correct the kubelet's --provider-id, delete this Node (kubectl delete node one) and restart the kubelet, which registers it again: the provider ID of a Node cannot be changed",
        ],
    );
    // Observed.
    check(
        &with_params(|params| params.is_observing = true, tainted("one"), found(whole("one"))),
        [
            "work is under way",
            "--mode=observe does not write; the line decided says which step is due",
            "the controller that leads does it, or this one with --mode=control",
        ],
    );
}

#[test]
fn what_the_cloud_does_not_find() {
    // Not found.
    check(
        &after(tainted("one"), gone()),
        [
            "blocked",
            "it stays tainted because the cloud has no instance for it: no instance sim://one (request req-7) (InstanceNotFound)",
            "compare its provider ID sim://one with the instances of the cloud, and project and region in the cloud config with the project and region of the instance; if that is wrong: correct the kubelet's --provider-id, delete this Node (kubectl delete node one) and restart the kubelet, which registers it again: the provider ID of a Node cannot be changed; if the machine is gone: kubectl delete node one",
        ],
    );
    // Deleting.
    check(
        &after(Node { deleting: true, ..tainted("one") }, gone()),
        [
            "blocked",
            "it is being deleted, and treated as before until it is gone; it stays tainted because the cloud has no instance for it: no instance sim://one (request req-7) (InstanceNotFound)",
            "compare its provider ID sim://one with the instances of the cloud, and project and region in the cloud config with the project and region of the instance; if that is wrong: correct the kubelet's --provider-id, delete this Node (kubectl delete node one) and restart the kubelet, which registers it again: the provider ID of a Node cannot be changed; if the machine is gone: kubectl delete node one",
        ],
    );
    // Gone.
    check(
        &after(node("one"), gone()),
        [
            "work is under way",
            "its instance is gone: no instance sim://one (request req-7); it is not written",
            "nothing has to be done here: lifecycle-ccm decides whether the node is deleted (its page /explain?kind=Node&name=one)",
        ],
    );
    // Gone ready.
    check(
        &after(ready(), gone()),
        [
            "blocked",
            "its instance is gone: no instance sim://one (request req-7); it is not written",
            "find out which machine runs as one: another one may have its name; if that is intended: kubectl delete node one, then restart the kubelet on the machine, which registers a new node",
        ],
    );
}

#[test]
fn what_the_cloud_refuses() {
    // Twins.
    check(
        &after(tainted("one"), failed(ErrorKind::Conflict)),
        [
            "blocked",
            "conflict: the cloud's words (request req-7); it stays tainted until that is fixed",
            "two facts in the cloud contradict each other: correct one",
        ],
    );
    // Quota.
    check(
        &after(tainted("one"), failed(ErrorKind::QuotaExceeded)),
        [
            "blocked",
            "quota_exceeded: the cloud's words (request req-7); it stays tainted until that is fixed",
            "raise the quota of the cloud project, or free some of it",
        ],
    );
    // Forbidden.
    check(
        &after(tainted("one"), failed(ErrorKind::Forbidden)),
        [
            "blocked",
            "forbidden: the cloud's words (request req-7); it stays tainted until that is fixed",
            "give the cloud user the permission that is missing",
        ],
    );
    // Unauthorized, initialised.
    check(
        &after(ready(), failed(ErrorKind::Unauthorized)),
        [
            "blocked",
            "unauthorized: the cloud's words (request req-7); it keeps what it has until that is fixed",
            "renew the credentials of the cloud: they are wrong or expired",
        ],
    );
    // Timeout.
    check(
        &after(tainted("one"), failed(ErrorKind::Timeout)),
        [
            "work is under way",
            "timeout: the cloud's words (request req-7); it stays tainted until the cloud answers",
            "wait; if it lasts, ask the cloud's support about request req-7",
        ],
    );
}

#[test]
fn what_does_not_fit() {
    // Node ip.
    check(
        &after(named_ip(tainted("one")), found(whole("one"))),
        [
            "blocked",
            "it stays tainted until its annotation matches its instance: provided node ip for node \"one\" is not valid: annotation alpha.kubernetes.io/provided-node-ip: failed to get node address from cloud provider that matches ip: 10.9.9.9; the cloud's addresses are InternalIP 10.0.0.1 (InvalidNodeIP)",
            "set the kubelet's --node-ip to an address of the instance, or give the instance that address; it is retried automatically",
        ],
    );
    // Node ip, initialised.
    check(
        &after(named_ip(ready()), found(whole("one"))),
        [
            "blocked",
            "the node keeps its addresses: provided node ip for node \"one\" is not valid: annotation alpha.kubernetes.io/provided-node-ip: failed to get node address from cloud provider that matches ip: 10.9.9.9; the cloud's addresses are InternalIP 10.0.0.1 (InvalidNodeIP)",
            "set the kubelet's --node-ip to an address of the instance, or give the instance that address; it is retried automatically",
        ],
    );
    // No address.
    check(
        &after(tainted("one"), found(instance("one"))),
        [
            "blocked",
            "it stays tainted until it has an address (--node-addresses-required): neither the cloud nor the kubelet knows an IP address of the node (NoNodeAddress)",
            "check the ports of the instance and the provider's settings that choose addresses, or set the kubelet's --node-ip; if the cloud does not know addresses: --node-addresses-required=false",
        ],
    );
    // Identity.
    check(
        &after(tainted("one"), found(Instance { name: "x".to_owned(), ..whole("one") })),
        [
            "blocked",
            "it stays tainted until its provider ID is confirmed (--node-identity): neither the name nor the system UUID nor an address of the node agrees with sim://one (x, 10.0.0.1): correct the kubelet's --provider-id, or set --node-identity=report (ProviderIDUnconfirmed)",
            "delete the old node if the machine was renamed; otherwise set the kubelet's --node-ip, or correct the kubelet's --provider-id, delete this Node (kubectl delete node one) and restart the kubelet, which registers it again: the provider ID of a Node cannot be changed; --node-identity=report initialises such nodes",
        ],
    );
    // Unconfirmed.
    check(
        &after(Node { provider_id: None, ..node("one") }, found(whole("one"))),
        [
            "blocked",
            "only its name says that sim://one is its instance: skipped",
            "if sim://one is its instance, set spec.providerID to it (kubectl edit node one); if it is not, nothing has to be done",
        ],
    );
}

#[test]
fn what_the_brake_and_settings_hold() {
    // Held by breaker.
    check(
        &braked(9, 6),
        [
            "held",
            "the zone of this Ready node changes from z1 to z2; held: the breaker is open, because too many Ready nodes would change; if the cloud is right, approve with the annotation or label quartet.dev/change-approved=yes",
            "if the cloud is right: kubectl annotate node one --overwrite quartet.dev/change-approved=yes, or for many nodes quartet.dev/approved-selector and quartet.dev/approved-until on the Lease; if it is wrong, fix it, and the next lookup of all nodes releases the brake",
        ],
    );
    // Gathers.
    check(
        &braked(1, 0),
        [
            "work is under way",
            "the zone of this Ready node changes from z1 to z2; changes of other nodes that come with it are gathered first",
            "nothing has to be done",
        ],
    );
    // Hold.
    check(
        &with_params(hold, ready(), found(at_address("10.0.0.2"))),
        [
            "held",
            "the cloud returns 10.0.0.2 as the first InternalIP; this node is Ready and keeps 10.0.0.1 (--node-internal-ip-change=hold) (NodeInternalIPHeld)",
            "--node-internal-ip-change=apply follows the cloud; with hold the node follows when it is not Ready any more",
        ],
    );
}

#[test]
fn what_is_written_and_does_not_last() {
    // Writing.
    check(
        &after(tainted("one"), found(whole("one"))),
        [
            "work is under way",
            "the write of its addresses is under way: the API server has not answered yet",
            "nothing has to be done",
        ],
    );
    // Refused.
    check(
        &written(tainted("one"), Err(ApiError::Forbidden("policy X".to_owned()))),
        [
            "blocked",
            "the API server refuses to write addresses of the node: forbidden: policy X",
            "give the account of this program the right, or exempt it from the admission policy or webhook that the message names",
        ],
    );
    // Lost.
    check(
        &written(tainted("one"), Err(ApiError::Timeout)),
        [
            "work is under way",
            "the write of the addresses of the node has failed: no response in time",
            "wait: it is tried again; if it lasts, look at the API server",
        ],
    );
    // Conflict.
    check(
        &written(tainted("one"), Err(ApiError::Conflict)),
        [
            "work is under way",
            "its instance is known, and its first writes are due (sim://one: the node has no addresses; update the labels from the instance; remove the uninitialized taint)",
            "nothing has to be done",
        ],
    );
    // Not stored.
    check(
        &written(tainted("one"), Ok(tainted("one"))),
        [
            "blocked",
            "the write addresses was answered as done, but the answer does not show it: an admission webhook or policy may undo it; retrying every 1m0s",
            "exempt the account of node-ccm from the admission policy or webhook that reverts addresses of nodes: for kind in validatingadmissionpolicies mutatingadmissionpolicies mutatingwebhookconfigurations; do kubectl get $kind; done",
        ],
    );
    // Contested.
    check(
        &contested(),
        [
            "blocked",
            "Another writer sets topology.kubernetes.io/zone to \"other\", and node-ccm sets it to \"z1\", 3 times in a row; node-ccm writes it again in 5 s",
            "decide who sets topology.kubernetes.io/zone: stop the other writer (kubectl get node one -o yaml --show-managed-fields), or leave the labels to it: kubectl annotate node one --overwrite quartet.dev/node-label-policy=once",
        ],
    );
}
