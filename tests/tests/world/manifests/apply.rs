//! The answers of a real API server to the objects.

use anyhow::{Context as _, Result, ensure};

use super::rig::Rig;

/// Applies server-side, as scripts and GitOps controllers do.
const SERVER_SIDE: &str = "--server-side";

/// Applies from the folder the first time, and from the rendered file the second time, if it
/// exists.
pub fn is_applied_twice(rig: &Rig, folder: &str) -> Result<()> {
    let (text, _) = rig.render(folder)?;
    rig.kubectl.delete(&text)?;
    rig.kubectl.apply_well(&text, &[SERVER_SIDE, "--dry-run=server"])?;
    rig.kubectl.apply_well(&text, &[SERVER_SIDE])?;
    let first = rig.kubectl.get(&text)?.versions();

    let rendered = folder.strip_prefix("overlays/").map(|overlay| overlay.replace('/', "-"));
    let again = match rendered {
        None => text.clone(),
        Some(name) => std::fs::read_to_string(rig.tree.path(&format!("rendered/{name}.yaml")))
            .with_context(|| format!("manifests/rendered/{name}.yaml"))?,
    };
    rig.kubectl.apply_well(&again, &[SERVER_SIDE])?;
    let second = rig.kubectl.get(&text)?.versions();
    ensure!(first == second, "the second time changed something:\n{first:#?}\n{second:#?}");
    rig.kubectl.delete(&again)
}

pub fn without_server_side_apply_too(rig: &Rig, _: &str) -> Result<()> {
    let (text, _) = rig.render("overlays/openstack")?;
    rig.kubectl.delete(&text)?;
    let told = rig.kubectl.apply_well(&text, &[])?;
    ensure!(told.lines().all(|line| line.ends_with(" created")), "{told}");
    let first = rig.kubectl.get(&text)?.versions();
    let told = rig.kubectl.apply_well(&text, &[])?;
    // kubectl sends the whole selector of a budget each time, and calls that a change.
    let mut others = told.lines().filter(|line| !line.starts_with("poddisruptionbudget"));
    ensure!(others.all(|line| line.ends_with(" unchanged")), "{told}");
    let second = rig.kubectl.get(&text)?.versions();
    ensure!(first == second, "the second time changed something:\n{first:#?}\n{second:#?}");
    rig.kubectl.delete(&text)
}

pub fn one_goes_and_the_other_stays(rig: &Rig, _: &str) -> Result<()> {
    let (node, _) = rig.render("overlays/openstack/node-ccm")?;
    let (lifecycle, _) = rig.render("overlays/openstack/lifecycle-ccm")?;
    let both = format!("{node}\n---\n{lifecycle}");
    rig.kubectl.delete(&both)?;
    rig.kubectl.apply_well(&node, &[SERVER_SIDE])?;
    let alone = rig.kubectl.get(&node)?.versions();
    rig.kubectl.apply_well(&both, &[SERVER_SIDE])?;
    rig.kubectl.delete(&lifecycle)?;
    let left = rig.kubectl.get(&node)?.versions();
    ensure!(alone == left, "node-ccm was touched:\n{alone:#?}\n{left:#?}");
    let gone = rig.kubectl.run(["get", "-o", "name", "-f", "-"], Some(&lifecycle))?;
    ensure!(gone.stdout.is_empty(), "still there: {}", gone.stdout);
    rig.kubectl.delete(&both)
}

/// The validation that the other tests rely on refuses what it must.
pub fn strict_means_strict(rig: &Rig, _: &str) -> Result<()> {
    let (text, _) = rig.render("overlays/external")?;
    let (rules, _) = rig.render_choice(&["prometheus-operator"])?;
    let spoilt = [
        (&text, "replicas: 2", "replicsa: 2"),
        (&text, "fsGroup: 65532", "fsGroup: many"),
        (&text, "restartPolicy: Always", "restartPolice: Always"),
        (&text, "unhealthyPodEvictionPolicy: AlwaysAllow", "unhealthyPodEvictionPolicy: Never"),
        (&text, "app.kubernetes.io/part-of: quartet", "app.kubernetes.io/part of: quartet"),
        (&rules, "jobLabel:", "jobLable:"),
    ];
    for (text, right, wrong) in spoilt {
        ensure!(text.contains(right), "{right:?} is not in the objects");
        let told =
            rig.kubectl.apply(&text.replace(right, wrong), &[SERVER_SIDE, "--dry-run=server"])?;
        ensure!(!told.good, "the API server took {wrong:?}");
    }
    Ok(())
}
