//! The admission policies follow their accounts, wherever kustomize puts them.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result, ensure};
use ccm_sim::poll;
use ccm_tests::manifests::{Kubectl, Objects};
use serde_json::json;

use super::rig::Rig;

/// Some seconds pass until the API server enforces a new policy.
const ENFORCED: Duration = Duration::from_secs(30);
/// The patch that `--replaced-nodes=delete` needs (docs/explanation/lifecycle-ccm.md).
const DELETES_READY: &str = "patches:
- target: {kind: ValidatingAdmissionPolicy, name: lifecycle-ccm}
  patch: |
    - {op: test, path: /spec/variables/0/name, value: deletesReady}
    - {op: replace, path: /spec/variables/0/expression, value: 'true'}
";

/// The account is confined in the namespace of the base, in another one, and with an operator's
/// prefix. An account of another name is not confined.
pub fn follow_their_accounts(rig: &Rig, _: &str) -> Result<()> {
    let space =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "quartet-system"}});
    rig.kubectl.apply_well(&space.to_string(), &[])?;
    for (lines, account) in [
        ("", "kube-system:node-ccm"),
        ("namePrefix: prod-\n", "kube-system:prod-node-ccm"),
        ("transformers:\n- TREE/namespace\n", "quartet-system:node-ccm"),
    ] {
        let text = rendered(rig, "overlays/openstack/node-ccm", lines)?;
        rig.kubectl.apply_well(&text, &["--server-side"])?;
        let confined = poll::until("the policy to be in force", ENFORCED, || async {
            Ok(refusal(&rig.kubectl, account)?
                .contains("may create no Lease but its own")
                .then_some(()))
        });
        let confined = rig.runtime.block_on(confined);
        confined.with_context(|| account.to_owned())?;
        let (_, name) = account.split_once(':').unwrap_or_default();
        for other in [format!("kube-system:{name}x"), "kube-system:lifecycle-ccm".to_owned()] {
            let told = refusal(&rig.kubectl, &other)?;
            ensure!(!told.contains("AdmissionPolicy"), "{other} is confined: {told}");
        }
        rig.kubectl.delete(&text)?;
    }
    Ok(())
}

/// Applies the patch of the documentation for a setting with which Ready nodes are deleted.
pub fn may_be_opened_for_ready_nodes(rig: &Rig, _: &str) -> Result<()> {
    for (lines, expression) in [("", "false"), (DELETES_READY, "true")] {
        let text = rendered(rig, "lifecycle-ccm", lines)?;
        let objects = Objects::parse(&text)?;
        let policy = objects.named("ValidatingAdmissionPolicy", "lifecycle-ccm");
        let found = policy.and_then(|policy| policy.pointer("/spec/variables/0/expression"));
        ensure!(found == Some(&json!(expression)), "{found:?}");
    }
    let page = fs::read_to_string(rig.tree.path("../docs/explanation/lifecycle-ccm.md"))?;
    ensure!(page.contains(DELETES_READY), "docs/explanation/lifecycle-ccm.md has another patch");
    Ok(())
}

/// Returns a folder of the tree below a kustomization with these lines.
fn rendered(rig: &Rig, folder: &str, lines: &str) -> Result<String> {
    let own = rig.empty("policies")?;
    let tree = rig.tree.seen_from(&own)?;
    let text = format!("resources:\n- {tree}/{folder}\n{}", lines.replace("TREE", &tree));
    fs::write(own.join("kustomization.yaml"), text)?;
    rig.kubectl.render(&own)
}

/// Returns the API server's answer when this account creates a Lease that is not its own, which
/// every role allows.
fn refusal(kubectl: &Kubectl, account: &str) -> Result<String> {
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "another", "namespace": "kube-system"},
    });
    let identity = format!("--as=system:serviceaccount:{account}");
    let create = ["create", "--dry-run=server", "-f", "-", &identity];
    Ok(kubectl.run(create, Some(&lease.to_string()))?.stderr)
}
