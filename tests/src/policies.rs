//! Mutating admission policies of a real API server, which take back what programs write.

use anyhow::Result;
use ccm_sim::poll;
use http::Request;
use kube::Client;
use serde_json::{Value, json};

use crate::{nodes, scenarios::SOON};

/// The group of the policies.
const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

/// A policy that is in force.
pub struct Policy {
    client: Client,
    name: String,
}

impl Policy {
    /// Changes each update of a node by the JSON patches of this CEL expression. The node `probe`
    /// has what the policy takes back, and `is_taken_back` shows that it does.
    pub async fn of_nodes(client: &Client, name: &str, patches: &str) -> Result<Self> {
        let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes", "nodes/status"]});
        let policy = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy",
            "metadata": {"name": name},
            "spec": {
                "matchConstraints": {"resourceRules": [rule]},
                "failurePolicy": "Fail", "reinvocationPolicy": "Never",
                "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patches}}]}});
        let binding = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding",
            "metadata": {"name": name}, "spec": {"policyName": name}});
        for (path, body) in
            [("mutatingadmissionpolicies", policy), ("mutatingadmissionpolicybindings", binding)]
        {
            let request =
                Request::post(format!("{GROUP}/{path}")).body(serde_json::to_vec(&body)?)?;
            client.request::<Value>(request).await?;
        }
        Ok(Self { client: client.clone(), name: name.to_owned() })
    }

    /// Waits until this label cannot be set.
    pub async fn takes_back(&self, node: &str, label: &str) -> Result<()> {
        let set = json!({"metadata": {"labels": {label: "probe"}}});
        let unset = json!({"metadata": {"labels": {label: null}}});
        poll::until("the policy to be in force", SOON, || async {
            nodes::patch(&self.client, node, set.clone()).await?;
            let labels = nodes::get(&self.client, node).await?.metadata.labels.unwrap_or_default();
            nodes::patch(&self.client, node, unset.clone()).await?;
            Ok((!labels.contains_key(label)).then_some(()))
        })
        .await
    }

    /// Removes the policy.
    pub async fn remove(self) -> Result<()> {
        for path in ["mutatingadmissionpolicybindings", "mutatingadmissionpolicies"] {
            let request =
                Request::delete(format!("{GROUP}/{path}/{}", self.name)).body(Vec::new())?;
            self.client.request::<Value>(request).await?;
        }
        Ok(())
    }
}
