//! The policy of `manifests/guard` on a real API server.

use std::time::Duration;

use anyhow::Result;
use ccm_sim::poll;
use serde_json::{Value, json};

use super::account::run;
use crate::{
    cluster::{real::RealCluster, repository},
    manifests::{Objects, objects::at},
    services::NAMESPACE,
};

/// Some seconds pass until the API server enforces a new policy.
const ENFORCED: Duration = Duration::from_secs(30);

/// The owner of the namespace [`NAMESPACE`], who may write Services but not mark them.
pub const OWNER: &str = "namespace-owner";

/// The roles of Kubernetes that make up `admin`, the role of a namespace's owner. The controller
/// that sums them up does not run beside the API servers of tests.
pub const ADMIN: [&str; 3] =
    ["system:aggregate-to-admin", "system:aggregate-to-edit", "system:aggregate-to-view"];

/// Applies the policy and its bindings, and waits until they are in force. Programs do not get
/// rights by that, because these are in their own roles.
pub async fn install(real: &RealCluster) -> Result<()> {
    let folder = repository().join("manifests/guard");
    let text = run(real.kubectl().arg("kustomize").arg(folder), "").await?;
    let mut objects = Objects::parse(&text)?.0;
    objects.retain(|object| at(object, "/kind").starts_with("ValidatingAdmissionPolicy"));
    objects.extend(admin(OWNER, NAMESPACE));
    let objects = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    let mut command = real.kubectl();
    run(command.args(["apply", "--validate=strict", "-f", "-"]), &objects.to_string()).await?;
    in_force(real).await
}

/// Returns the bindings that make a user the owner of a namespace.
pub fn admin(user: &str, namespace: &str) -> Vec<Value> {
    let binding = |role: &str| {
        let name = format!("{user}-{}", role.replace(':', "-"));
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": name, "namespace": namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]})
    };
    ADMIN.map(binding).into()
}

async fn in_force(real: &RealCluster) -> Result<()> {
    let probe = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "probe", "namespace": NAMESPACE, "annotations": {"quartet.dev/probe": "x"}},
        "spec": {"ports": [{"port": 80}]}});
    let probe = probe.to_string();
    poll::until("the guard to be enforced", ENFORCED, || async {
        let mut command = real.kubectl();
        command.args(["create", "--dry-run=server", "-f", "-"]).arg(format!("--as={OWNER}"));
        let refused = run(&mut command, &probe).await.err().map(|error| format!("{error:#}"));
        Ok(refused.filter(|text| text.contains("cannot mark resource")).map(drop))
    })
    .await
}
