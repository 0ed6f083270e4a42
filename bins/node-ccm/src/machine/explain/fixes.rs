//! The texts that say what a person can do for a node.

use ccm_cloud::{CloudError, ErrorKind};
use ccm_controller::brake::{
    Hold,
    approval::{SELECTOR, UNTIL},
};
use ccm_kube::ApiError;
use ccm_objects::Node;
use ccm_runtime::explain::{NOTHING, ObjectState, fix_for_error, refused_write};

use crate::plan::{Field, LABEL_POLICY, PROVIDER_ID, TAINTS, approval_command};

pub(super) const WAIT: &str = NOTHING;
pub(super) const STANDBY: &str = "ask the replica that holds the Lease of node-ccm (docs/how-to/explain.md); if that is this one, the line stores of /readyz?verbose says what it waits for";
pub(super) const NO_NODE: &str = "check the name (kubectl get nodes); if its machine runs, look at its kubelet, which registers it";
pub(super) const NOT_LISTED: &str = "wait; if it lasts, the line nodes of /readyz?verbose says why the API server does not list them";
pub(super) const CLOUD_SILENT: &str = "wait; if it lasts, the lines cloud and fleet of /readyz?verbose say why the cloud does not answer";
pub(super) const NO_ADDRESS: &str = "check the ports of the instance and the provider's settings that choose addresses, or set the kubelet's --node-ip; if the cloud does not know addresses: --node-addresses-required=false";
pub(super) const NODE_IP: &str = "set the kubelet's --node-ip to an address of the instance, or give the instance that address; it is retried automatically";

/// Returns how a node gets another provider ID. `spec.providerID` is immutable.
fn another_id(node: &Node) -> String {
    format!(
        "correct the kubelet's --provider-id, delete this Node (kubectl delete node {}) and restart the kubelet, which registers it again: the provider ID of a Node cannot be changed",
        node.name
    )
}

/// Returns the remedy for a node that another controller is responsible for.
pub(super) fn left_out(node: &Node, is_selected: bool) -> String {
    let change = match is_selected {
        true => format!("correct --cloud-provider of node-ccm; or {}", another_id(node)),
        false => "correct the labels of the node, or --node-selector of node-ccm".to_owned(),
    };
    format!("{NOTHING} if another controller is responsible for it; otherwise {change}")
}

/// Returns the remedy for an error of the cloud about the node.
pub(super) fn cloud(node: &Node, error: &CloudError) -> String {
    let by_id = match (error.kind, &node.provider_id) {
        (ErrorKind::Conflict, None) => "; or say which instance it is: spec.providerID of the node",
        _ => "",
    };
    format!("{}{by_id}", fix_for_error(error))
}

/// Returns the remedy for a new node whose instance the cloud does not find.
pub(super) fn not_found(node: &Node) -> String {
    let (key, wrong) = match &node.provider_id {
        Some(id) => {
            (format!("its provider ID {id}"), format!("; if that is wrong: {}", another_id(node)))
        }
        None => {
            ("its name and its system UUID (status.nodeInfo.systemUUID)".to_owned(), String::new())
        }
    };
    let name = &node.name;
    format!(
        "compare {key} with the instances of the cloud, and project and region in the cloud config with the project and region of the instance{wrong}; if the machine is gone: kubectl delete node {name}"
    )
}

/// Returns the remedy for a node that is held by `--node-identity`.
pub(super) fn identity(node: &Node) -> String {
    let rest = if node.is_uninitialised() {
        "; --node-identity=report initialises such nodes"
    } else {
        ""
    };
    format!(
        "delete the old node if the machine was renamed; otherwise set the kubelet's --node-ip, or {}{rest}",
        another_id(node)
    )
}

/// Returns the remedy for a node without provider ID whose instance is known by name alone.
pub(super) fn unconfirmed(node: &Node, id: &str) -> String {
    format!(
        "if {id} is its instance, set spec.providerID to it (kubectl edit node {}); if it is not, {NOTHING}",
        node.name
    )
}

/// Returns the remedy for a node whose instance is gone.
pub(super) fn gone(node: &Node) -> String {
    match node.is_ready() {
        true => format!(
            "find out which machine runs as {0}: another one may have its name; if that is intended: kubectl delete node {0}, then restart the kubelet on the machine, which registers a new node",
            node.name
        ),
        false => format!(
            "{NOTHING} here: lifecycle-ccm decides whether the node is deleted (its page /explain?kind=Node&name={})",
            node.name
        ),
    }
}

/// Returns the remedy for a change that the brake holds.
pub(super) fn held(node: &Node, hold: Hold) -> String {
    let approve = format!(
        "{}, or for many nodes {SELECTOR} and {UNTIL} on the Lease",
        approval_command(node)
    );
    match hold {
        Hold::Breaker => format!(
            "if the cloud is right: {approve}; if it is wrong, fix it, and the next lookup of all nodes releases the brake"
        ),
        Hold::Budget { until: Some(_) } => {
            format!(
                "wait: it changes on its own when budget is free again; to change it now, if the cloud is right: {approve}"
            )
        }
        Hold::Budget { until: None } => {
            format!("raise --node-change-budget; or, if the cloud is right: {approve}")
        }
    }
}

/// Returns the remedy for a first InternalIP that stays; the cloud may return another one.
pub(super) fn internal_ip(has_other: bool) -> String {
    match has_other {
        true => "--node-internal-ip-change=apply follows the cloud; with hold the node follows when it is not Ready any more".to_owned(),
        false => "check the ports of the instance and the provider's settings that choose addresses: the last InternalIP of a Ready node is never removed".to_owned(),
    }
}

/// Returns the remedy for a write that the API server does not accept.
pub(super) fn refused(node: &Node, error: &ApiError) -> (ObjectState, String) {
    let (state, fix) = refused_write(error);
    let fix = match error {
        ApiError::Conflict => format!(
            "wait; if it lasts, find out who writes the node so often: kubectl get node {} -o yaml --show-managed-fields",
            node.name
        ),
        _ => fix.to_owned(),
    };
    (state, fix)
}

/// Returns the remedy for a write that does not last.
pub(super) fn repeated(node: &Node, field: &str, is_refused: bool) -> String {
    let name = &node.name;
    if is_refused {
        return format!(
            "exempt the account of node-ccm from the admission policy or webhook that reverts {field} of nodes: for kind in validatingadmissionpolicies mutatingadmissionpolicies mutatingwebhookconfigurations; do kubectl get $kind; done"
        );
    }
    let own = match Field::named(field) {
        _ if field == TAINTS => "a kubelet sets the taint only when it registers its node",
        _ if field == PROVIDER_ID => "nothing else may set it",
        Field::Addresses => "a kubelet needs --cloud-provider=external",
        _ => {
            return format!(
                "decide who sets {field}: stop the other writer (kubectl get node {name} -o yaml --show-managed-fields), or leave the labels to it: kubectl annotate node {name} --overwrite {LABEL_POLICY}=once"
            );
        }
    };
    format!(
        "stop the other writer of {field}: {own} (kubectl get node {name} -o yaml --show-managed-fields)"
    )
}
