//! What a kubelet may do to its own Node.

use std::time::Duration;

use anyhow::{Result, ensure};
use ccm_sim::poll;

use serde_json::Value;

use super::rig::Rig;

/// Some seconds pass until the API server enforces a new policy.
const ENFORCED: Duration = Duration::from_secs(30);

const NODE: &str = "apiVersion: v1\nkind: Node\nmetadata: {name: node-1}\n";

fn as_kubelet(rig: &Rig, arguments: &[&str], input: Option<&str>) -> Result<(bool, String)> {
    let identity = ["--as=system:node:node-1", "--as-group=system:nodes"];
    let told = rig.kubectl.run(arguments.iter().chain(&identity).copied(), input)?;
    Ok((told.good, told.stderr))
}

fn as_admin(rig: &Rig, arguments: &[&str]) -> Result<()> {
    let told = rig.kubectl.run(arguments.iter().copied(), None)?;
    ensure!(told.good, "{arguments:?}: {}", told.stderr);
    Ok(())
}

/// A kubelet works with its Node as before, but for what the controllers read as the word of a
/// person.
pub fn a_kubelet_approves_no_deletion(rig: &Rig, _: &str) -> Result<()> {
    let (text, _) = rig.render("overlays/openstack/lifecycle-ccm")?;
    rig.kubectl.apply_well(&text, &["--server-side"])?;
    let (good, error) = as_kubelet(rig, &["create", "-f", "-"], Some(NODE))?;
    ensure!(good, "a kubelet registers its node: {error}");
    as_admin(rig, &["annotate", "node", "node-1", "quartet.dev/deletion-protected=true"])?;

    let approve = ["annotate", "--overwrite", "node", "node-1", "quartet.dev/deletion-approved=x"];
    let enforced = poll::until("the policy to be enforced", ENFORCED, || async {
        if !as_kubelet(rig, &approve, None)?.0 {
            return Ok(Some(()));
        }
        as_admin(rig, &["annotate", "node", "node-1", "quartet.dev/deletion-approved-"])?;
        Ok(None)
    });
    rig.runtime.block_on(enforced)?;
    // kubectl's own patch of a status reads it first, which a kubelet may not.
    let report = rig.kubectl.run(["get", "node", "node-1", "-o", "json"], None)?.stdout;
    let mut approval: Value = serde_json::from_str(&report)?;
    approval["metadata"]["annotations"]["quartet.dev/deletion-approved"] = "x".into();
    let approval = approval.to_string();
    let put: [&str; 5] = ["replace", "--raw", "/api/v1/nodes/node-1/status", "-f", "-"];
    let born = NODE.replace("{name: node-1}", "{name: node-1, labels: {quartet.dev/x: z}}");
    let refused: [(&[&str], Option<&str>); 5] = [
        (&approve, None),
        (&["annotate", "node", "node-1", "quartet.dev/deletion-protected-"], None),
        (
            &["annotate", "--overwrite", "node", "node-1", "quartet.dev/deletion-protected=false"],
            None,
        ),
        (&["label", "node", "node-1", "quartet.dev/approved=true"], None),
        (&put, Some(&approval)),
    ];
    for (arguments, input) in refused {
        let (good, error) = as_kubelet(rig, arguments, input)?;
        ensure!(!good && error.contains("a kubelet may not set"), "{arguments:?}: {error}");
    }

    let report = rig.kubectl.run(["get", "node", "node-1", "-o", "json"], None)?.stdout;
    let attached = "volumes.kubernetes.io/controller-managed-attach-detach=true";
    let allowed: [(&[&str], Option<&str>); 3] = [
        (&put, Some(&report)),
        (&["annotate", "node", "node-1", attached], None),
        (&["label", "node", "node-1", "example.com/rack=r1"], None),
    ];
    for (arguments, input) in allowed {
        let (good, error) = as_kubelet(rig, arguments, input)?;
        ensure!(good, "{arguments:?}: {error}");
    }
    as_admin(rig, &approve)?;
    as_admin(rig, &["delete", "node", "node-1"])?;
    let (good, error) = as_kubelet(rig, &["create", "-f", "-"], Some(&born))?;
    ensure!(!good && error.contains("a kubelet may not set"), "at registration: {error}");
    rig.kubectl.delete(&text)
}
