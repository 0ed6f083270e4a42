//! What this program says about a node on the page `/explain`.

use std::sync::Arc;

use ccm_controller::{instances, machine::Door};
use ccm_kube::store::Store;
use ccm_objects::Node;
use ccm_runtime::{
    leadership::CLOUD_IDENTITY,
    program::{Context, Program},
    same_cloud::Standing,
    settings::ElectionSettings,
};

use crate::machine::{Machine, explain::Around};

/// Adds the nodes to the page.
pub(crate) fn add<P: Program>(context: &Context<P>, door: &Door<Machine>, store: &Store<Node>) {
    let (door, store, cloud) = (door.clone(), store.clone(), Arc::clone(&context.cloud));
    let (same_cloud, common) = (context.same_cloud.clone(), context.common.clone());
    context.explanations.add(P::IDENTITY.binary, "Node", move |name| {
        let node = store.get(name);
        let why_left_out =
            |node: &Node, is_selected| instances::why_left_out(&*cloud, node, is_selected);
        let unreachable = unreachable(&same_cloud.standing(), &common.borrow().election);
        let around = Around { why_left_out: &why_left_out, unreachable };
        door.read(|machine, now| machine.explain(node.as_deref(), &around, now))
    });
}

/// Why no call reaches the cloud, and what a person can do about that.
fn unreachable(standing: &Standing, election: &ElectionSettings) -> Option<(String, String)> {
    let ElectionSettings { enabled, lease, namespace, .. } = election;
    let approve = match enabled {
        true => format!("kubectl annotate lease -n {namespace} {lease} {CLOUD_IDENTITY}-"),
        false => "restart this program".to_owned(),
    };
    match standing {
        Standing::Changed { before, present } => Some((
            format!(
                "the cloud is another one, so it is not asked: it was {before:?}, it is {present:?}"
            ),
            format!(
                "correct credentials, project and region in --cloud-config; only if the cluster has moved to this cloud: {approve}"
            ),
        )),
        Standing::Untold => Some((
            "the cloud does not say which one it is, so it is not asked until it does".to_owned(),
            format!("wait for the provider; only if it will never say it: {approve}"),
        )),
        Standing::Same(_) | Standing::Unknown | Standing::Recorded { .. } => None,
    }
}
