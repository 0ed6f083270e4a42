//! Programs in a namespace other than kube-system.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use ccm_tests::manifests::{
    Choice, Objects, checks,
    objects::{at, identity, name_of},
};
use serde_json::json;

use super::rig::Rig;

/// A namespace of the operator's choice.
const OWN: &str = "cloud-controllers";

/// Objects that are always in a certain namespace, wherever the programs are: the end of the name,
/// and the namespace.
const BOUND: [(&str, &str); 3] =
    [("-ccm", "kube-system"), ("-ccm-events", "default"), ("-ccm-node-leases", "kube-node-lease")];

/// Moves programs with the transformers, with their own name of a namespace and with another one.
pub fn programs_move_and_leases_stay(rig: &Rig, _: &str) -> Result<()> {
    for namespace in [OWN, "quartet-system"] {
        let space =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        rig.kubectl.apply_well(&space.to_string(), &[])?;
        for provider in ["openstack", "external-provider"] {
            let text = moved(rig, provider, namespace)?;
            let objects = Objects::parse(&text)?;
            checks::check(&objects)?;
            are_where_they_belong(&objects, namespace).with_context(|| provider.to_owned())?;
            rig.kubectl.apply_well(&text, &["--server-side", "--dry-run=server"])?;
        }
    }
    Ok(())
}

/// Returns all controllers in another namespace: moved by the transformers of the tree, or by a
/// folder's transformers that name the namespace, as docs/how-to/install.md says.
fn moved(rig: &Rig, provider: &'static str, namespace: &str) -> Result<String> {
    let folder = rig.empty("moved")?;
    write_all(rig, provider, &folder)?;
    let mut transformers = format!("{}/namespace", rig.tree.seen_from(&folder)?);
    if namespace == OWN {
        let own = rig.empty("moved/namespace")?;
        let tree = rig.tree.seen_from(&own)?;
        let text = format!("namespace: {OWN}\nresources:\n- {tree}/namespace\n");
        fs::write(own.join("kustomization.yaml"), text)?;
        "namespace".clone_into(&mut transformers);
    }
    append(&folder, &format!("transformers:\n- {transformers}\n"))?;
    rig.kubectl.render(&folder)
}

/// kustomize's own way moves the Roles as well. It does not fail, so the operator can have other
/// objects beside these.
pub fn one_for_all_is_no_conflict(rig: &Rig, _: &str) -> Result<()> {
    let folder = rig.empty("one-for-all")?;
    write_all(rig, "openstack", &folder)?;
    append(&folder, &format!("namespace: {OWN}\n"))?;
    let objects = Objects::parse(&rig.kubectl.render(&folder)?)?;
    checks::check(&objects)
}

fn write_all(rig: &Rig, provider: &'static str, folder: &std::path::Path) -> Result<()> {
    let controllers = rig.tree.controllers.clone();
    let components = vec![provider, "own-credentials", "prometheus-operator"];
    rig.tree.write(&Choice { controllers, components }, folder)
}

fn append(folder: &std::path::Path, lines: &str) -> Result<()> {
    let path = folder.join("kustomization.yaml");
    let text = fs::read_to_string(&path)?;
    Ok(fs::write(path, text + lines)?)
}

/// The Roles of the Leases name them and are in their namespace. Nothing else is left behind.
fn are_where_they_belong(objects: &Objects, namespace: &str) -> Result<()> {
    for object in &objects.0 {
        let (kind, name) = (at(object, "/kind"), name_of(object));
        let is_of_a_role = ["Role", "RoleBinding"].contains(&kind);
        let everywhere = ["Cluster", "ValidatingAdmission", "FlowSchema"];
        let wanted = match BOUND.iter().find(|(end, _)| name.ends_with(end)) {
            _ if everywhere.iter().any(|start| kind.starts_with(start)) => "",
            Some((_, bound)) if is_of_a_role => bound,
            None if is_of_a_role => anyhow::bail!("{} is of no known kind", identity(object)),
            _ => namespace,
        };
        let found = at(object, "/metadata/namespace");
        ensure!(found == wanted, "{} is in {found:?}, not {wanted:?}", identity(object));
        if kind == "Role" && wanted == "kube-system" {
            let lease = at(object, "/rules/0/resourceNames/0");
            ensure!(lease == name, "{} names the Lease {lease:?}", identity(object));
        }
    }
    Ok(())
}
