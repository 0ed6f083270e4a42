//! How the Leases of kubelets are read.

use ccm_objects::NodeLease;
use kube::core::NamespaceResourceScope;

use crate::{
    store::{Rule, stored},
    wire::{Fields, Kind},
};

stored!(NodeLease, key);

impl Kind for NodeLease {
    type Scope = NamespaceResourceScope;
    const KIND: &'static str = "Lease";
    const PLURAL: &'static str = "leases";
    const GROUP: &'static str = "coordination.k8s.io";
    type Kept = ();

    fn from_fields(name: &str, metadata: &Fields<'_>, object: &Fields<'_>, _: &Rule<()>) -> Self {
        let namespace = metadata.text("namespace").unwrap_or_default();
        Self {
            key: format!("{namespace}/{name}").into(),
            uid: metadata.text("uid").unwrap_or_default().into(),
            resource_version: metadata.text("resourceVersion").unwrap_or_default().into(),
            renewed: object.object("spec").text("renewTime").unwrap_or_default().into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::Resource as _;
    use serde_json::json;

    use super::*;
    use crate::{store::Stored as _, wire::Received};

    #[test]
    fn the_lease_of_a_kubelet_is_read_under_its_own_path() {
        let text = json!({
            "metadata": {
                "name": "node-1", "namespace": "kube-node-lease", "uid": "u", "resourceVersion": "7"
            },
            "spec": {"renewTime": "2026-01-02T15:04:05.000000Z", "leaseDurationSeconds": 40}
        });
        let wire: Received<NodeLease> = serde_json::from_str(&text.to_string()).unwrap();
        let lease = NodeLease::read(wire, &Rule::default()).unwrap();
        assert_eq!(&*lease.key, "kube-node-lease/node-1");
        assert_eq!((&*lease.uid, &*lease.resource_version), ("u", "7"));
        assert_eq!(&*lease.renewed, "2026-01-02T15:04:05.000000Z");
        assert_eq!(NodeLease { resource_version: "8".into(), ..lease.clone() }, lease);
        let path = Received::<NodeLease>::url_path(&(), Some("kube-node-lease"));
        assert_eq!(path, "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases");
    }
}
