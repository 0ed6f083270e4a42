//! Contents of the objects, for every combination.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use anyhow::{Context as _, Result, ensure};
use ccm_tests::manifests::{
    Choice, Objects, checks,
    objects::{self, at},
};
use serde_json::Value;

use super::rig::Rig;

/// All files that `make manifests` writes.
pub fn rendered_files_are_current(rig: &Rig, _: &str) -> Result<()> {
    let fresh = rig.empty("fresh")?;
    let out = Command::new(rig.tree.path("render.sh")).arg(&fresh).output()?;
    ensure!(out.status.success(), "render.sh: {}", String::from_utf8_lossy(&out.stderr));
    let operator = "components/prometheus-operator/rules.yaml";
    ensure!(
        fs::read_to_string(fresh.join(operator))? == fs::read_to_string(rig.tree.path(operator))?,
        "manifests/{operator} is stale: run `make manifests`"
    );
    let (new, old) = (files(&fresh.join("rendered"))?, files(&rig.tree.path("rendered"))?);
    let stale: Vec<_> =
        new.keys().chain(old.keys()).filter(|name| new.get(*name) != old.get(*name)).collect();
    ensure!(stale.is_empty(), "manifests/rendered is stale: run `make manifests`: {stale:?}");
    ensure!(new.len() == rig.tree.overlays.len(), "one file for each overlay");
    Ok(())
}

fn files(folder: &Path) -> Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().context("a file has a name")?.to_string_lossy().into_owned();
        found.insert(name, fs::read_to_string(path)?);
    }
    Ok(found)
}

pub fn every_choice_is_right_and_accepted(rig: &Rig, _: &str) -> Result<()> {
    let choices = rig.tree.choices();
    for choice in &choices {
        look_at(rig, choice).with_context(|| choice.to_string())?;
    }
    for folder in rig.tree.folders() {
        checks::check(&rig.render(&folder)?.1).with_context(|| folder.clone())?;
    }
    eprintln!("{} choices, {} folders", choices.len(), rig.tree.folders().len());
    Ok(())
}

fn look_at(rig: &Rig, choice: &Choice) -> Result<()> {
    let folder = rig.empty("choice")?;
    rig.tree.write(choice, &folder)?;
    let text = rig.kubectl.render(&folder)?;
    let rendered = Objects::parse(&text)?;
    checks::check(&rendered)?;
    let names: Vec<_> = rendered.of("Deployment").map(objects::name_of).collect();
    let wanted: Vec<_> = choice.controllers.iter().map(String::as_str).collect();
    ensure!(sorted(names.clone()) == sorted(wanted), "Deployments {names:?}");
    only_with_its_component(&rendered, choice.controllers.iter().any(|name| name == ROUTES))?;
    for deployment in rendered.of("Deployment") {
        let has = |pointer: &str| deployment.pointer(pointer).is_some();
        let spec = "/spec/template/spec";
        let replicas = deployment.pointer("/spec/replicas").and_then(Value::as_u64);
        let secret = objects::cloud_secret(deployment);
        let found = [
            ("host-network", has(&format!("{spec}/hostNetwork"))),
            ("control-plane-only", has(&format!("{spec}/nodeSelector"))),
            ("external-provider", has(&format!("{spec}/initContainers"))),
            ("one-replica", replicas == Some(1)),
            ("own-credentials", secret == objects::own_secret(deployment)),
            ("prometheus-operator", rendered.of("ServiceMonitor").count() == 1),
        ];
        for (component, there) in found {
            ensure!(choice.has(component) == there, "{component} exists: {there}");
        }
        if objects::name_of(deployment) == "node-ccm" {
            let arguments = objects::arguments(objects::controller(deployment)?);
            let is_moved = arguments.contains(&"--secure-port=10298");
            ensure!(choice.has("beside-go-controller") == is_moved, "{arguments:?}");
        }
    }
    rig.kubectl.apply_well(&text, &["--server-side", "--dry-run=server"])?;
    Ok(())
}

/// The controller that is installed only through a component.
const ROUTES: &str = "route-ccm";

/// route-ccm is rendered with the flags for its networks, or no object, rule, subject, image or
/// flag names it. Alert rules and the guard are about all programs.
fn only_with_its_component(rendered: &Objects, is_wanted: bool) -> Result<()> {
    if let Some(deployment) = rendered.named("Deployment", ROUTES) {
        ensure!(is_wanted, "a Deployment of {ROUTES}");
        let arguments = objects::arguments(objects::controller(deployment)?);
        for flag in ["--configure-cloud-routes=", "--allocate-node-cidrs=", "--cluster-cidr="] {
            let count = arguments.iter().filter(|word| word.starts_with(flag)).count();
            ensure!(count == 1, "{ROUTES} has {flag} {count} times");
        }
        return Ok(());
    }
    ensure!(!is_wanted, "no Deployment of {ROUTES}");
    let is_of_all =
        |object: &Value| at(object, "/kind") == "PrometheusRule" || checks::is_of_guard(object);
    for object in rendered.0.iter().filter(|object| !is_of_all(object)) {
        let text = object.to_string();
        for word in [ROUTES, "cloud-routes", "cluster-cidr", "node-cidrs"] {
            ensure!(!text.contains(word), "{} has {word:?}", objects::identity(object));
        }
    }
    Ok(())
}

/// The overlays have route-ccm only through its component: without the line that names the
/// component, nothing of it is left.
pub fn routes_come_with_their_component_alone(rig: &Rig, _: &str) -> Result<()> {
    let mut with = Vec::new();
    for overlay in &rig.tree.overlays {
        let folder = rig.tree.path(&format!("overlays/{overlay}"));
        let text = fs::read_to_string(folder.join("kustomization.yaml"))?;
        let is_component = |line: &&str| line.ends_with("/components/routes");
        let has_it = text.lines().any(|line| is_component(&line));
        let rendered = rig.render(&format!("overlays/{overlay}"))?.1;
        only_with_its_component(&rendered, has_it).with_context(|| overlay.clone())?;
        if !has_it {
            continue;
        }
        with.push(overlay.as_str());
        // It is tested beside another controller, because kustomize does not accept an empty
        // result.
        let copy = rig.empty("without-routes")?;
        let root = rig.tree.seen_from(&copy)?;
        let left: Vec<_> = text.lines().filter(|line| !is_component(line)).collect();
        let left = left.join("\n").replace("../../../", &format!("{root}/"));
        fs::write(
            copy.join("kustomization.yaml"),
            format!("{left}\nresources:\n- {root}/node-ccm\n"),
        )?;
        let rest = Objects::parse(&rig.kubectl.render(&copy)?)?;
        ensure!(rest.of("Deployment").count() == 1, "{overlay} has more than its component");
        only_with_its_component(&rest, false).with_context(|| format!("rest of {overlay}"))?;
    }
    ensure!(
        with == ["external/route-ccm", "openstack/route-ccm"],
        "overlays with the component: {with:?}"
    );
    Ok(())
}

/// The overlay of a cloud has every controller except the one whose settings must name the
/// networks.
pub fn the_overlay_of_a_cloud_has_all(rig: &Rig, _: &str) -> Result<()> {
    for cloud in ["openstack", "external"] {
        let (_, objects) = rig.render(&format!("overlays/{cloud}"))?;
        let names = sorted(objects.of("Deployment").map(objects::name_of).collect());
        ensure!(names == ["lifecycle-ccm", "node-ccm", "service-ccm"], "{cloud}: {names:?}");
    }
    Ok(())
}

fn sorted(mut names: Vec<&str>) -> Vec<&str> {
    names.sort_unstable();
    names
}

/// A folder of four files, made from node-ccm's with another name and port, renders all objects.
pub fn a_third_controller_is_a_folder(rig: &Rig, _: &str) -> Result<()> {
    let folder = rig.empty("other-ccm")?;
    let root = rig.tree.seen_from(&folder)?;
    let particular = files(&rig.tree.path("node-ccm"))?;
    let names: Vec<_> = particular.keys().map(String::as_str).collect();
    let expected = ["clusterrole.yaml", "config.yaml", "kustomization.yaml", "policy.yaml"];
    ensure!(names == expected, "{names:?}");
    for (name, text) in &particular {
        let text = text.replace("../", &format!("{root}/"));
        let text = text.replace("node-", "other-").replace("10258", "10298");
        fs::write(folder.join(name), text)?;
    }
    let text = rig.kubectl.render(&folder)?;
    let third = Objects::parse(&text)?;
    checks::check(&third)?;
    let (_, node) = rig.render("node-ccm")?;
    let kinds = |objects: &Objects| objects.0.iter().map(objects::identity).collect::<Vec<_>>();
    let expected: Vec<_> =
        kinds(&node).iter().map(|name| name.replace("node-", "other-")).collect();
    ensure!(kinds(&third) == expected, "{:?}", kinds(&third));
    let lease = third.of("Role").flat_map(|role| objects::list(role, "/rules"));
    let lease: Vec<_> = lease.flat_map(|rule| objects::list(rule, "/resourceNames")).collect();
    ensure!(lease == ["other-ccm", "other-ccm"], "the Lease is {lease:?}");
    rig.kubectl.apply_well(&text, &["--server-side", "--dry-run=server"])?;
    Ok(())
}

/// The kustomization of docs/how-to/install.md, with the operator's own images and settings and
/// with the Prometheus operator.
pub fn an_operators_own_settings_win(rig: &Rig, _: &str) -> Result<()> {
    let folder = rig.empty("own")?;
    let page = ccm_tests::cluster::repository().join("docs/how-to/install.md");
    let page = fs::read_to_string(page)?;
    let (_, after) =
        page.split_once("```yaml\n# kustomization.yaml\n").context("the page shows one")?;
    let (example, _) = after.split_once("```").context("which ends")?;
    let root = rig.tree.seen_from(&folder)?;
    fs::write(
        folder.join("kustomization.yaml"),
        example.replace("quartet/manifests/", &format!("{root}/")),
    )?;
    fs::write(folder.join("node-ccm.yaml"), "cloud_read_qps: 5\n")?;
    let text = rig.kubectl.render(&folder)?;
    let own = Objects::parse(&text)?;
    let settings = own.named("ConfigMap", "node-ccm").context("no settings")?;
    let config = settings.pointer("/data/config.yaml").and_then(Value::as_str);
    ensure!(config == Some("cloud_read_qps: 5\n"), "{settings}");
    for deployment in own.of("Deployment") {
        let image = objects::at(objects::controller(deployment)?, "/image");
        ensure!(image.starts_with("registry.example.com/"), "{image}");
    }
    ensure!(own.of("ServiceMonitor").count() == 1, "no ServiceMonitor");
    rig.kubectl.apply_well(&text, &["--server-side", "--dry-run=server"])?;
    Ok(())
}
