//! The programs of the pods, and the admission of the pods by the API server.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result, ensure};
use ccm_sim::{poll, served::ServedCloud};
use ccm_tests::manifests::{
    Objects,
    objects::{at, controller, identity, pod_of},
    program::Command,
};
use serde_json::{Value, json};

use super::rig::Rig;

/// A namespace that takes only pods of the strictest profile.
const RESTRICTED: &str = "quartet-restricted";

/// How long a program may take to be ready.
const SOON: Duration = Duration::from_secs(20);

pub fn is_started_by_its_program(rig: &Rig, folder: &str) -> Result<()> {
    let (_, objects) = rig.render(folder)?;
    for deployment in objects.of("Deployment") {
        let here = rig.empty("pod")?;
        let mut command = Command::of(deployment, &objects, &here)?;
        if !command.has_provider() {
            let told = rig.runtime.block_on(command.check(rig.kubeconfig()))?;
            ensure!(!told.status.success(), "a controller without a cloud is a mistake");
            let config = here.join("cloud.yaml");
            fs::write(&config, "endpoint: unix:///run/quartet/cloud.sock\n")?;
            let cloud = format!("--cloud-config={}", config.display());
            command.arguments.extend(["--cloud-provider=external".to_owned(), cloud]);
        }
        let told = rig.runtime.block_on(command.check(rig.kubeconfig()))?;
        ensure!(told.status.success(), "{}: {}", identity(deployment), told.stderr);
        ensure!(told.stderr.is_empty(), "{} warns: {}", identity(deployment), told.stderr);
        refuses_what_is_wrong(rig, &command)?;
    }
    Ok(())
}

/// The check would have said so if a flag or a setting were unknown.
fn refuses_what_is_wrong(rig: &Rig, command: &Command) -> Result<()> {
    let mut spoilt = command.clone();
    spoilt.arguments.push("--cloud-cofnig=x".to_owned());
    let told = rig.runtime.block_on(spoilt.check(rig.kubeconfig()))?;
    ensure!(told.status.code() == Some(2), "an unknown flag passed");
    let right = fs::read_to_string(&command.settings)?;
    fs::write(&command.settings, format!("{right}\nno_such_setting: 1\n"))?;
    let told = rig.runtime.block_on(command.check(rig.kubeconfig()))?;
    ensure!(told.status.code() == Some(2), "an unknown setting passed");
    Ok(())
}

/// Every pod, except for the host's network, passes PodSecurity's strictest profile.
pub fn is_restricted(rig: &Rig, folder: &str) -> Result<()> {
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": RESTRICTED, "labels": {
            "pod-security.kubernetes.io/enforce": "restricted",
            "pod-security.kubernetes.io/warn": "restricted",
        }},
    });
    rig.kubectl.apply_well(&namespace.to_string(), &[])?;
    let (_, objects) = rig.render(folder)?;
    for deployment in objects.of("Deployment") {
        let mut pod = pod_of(deployment, RESTRICTED);
        let on_host = pod.pointer("/spec/hostNetwork").is_some();
        let told = rig.kubectl.apply(&pod.to_string(), &["--dry-run=server"])?;
        ensure!(told.good != on_host, "{}: {}", identity(deployment), told.stderr);
        if on_host {
            ensure!(told.stderr.contains("host namespaces (hostNetwork=true)"), "{}", told.stderr);
            ensure!(told.stderr.contains("127.0.0.1"), "{}", told.stderr);
            off_the_host(&mut pod);
        }
        rig.kubectl.apply_well(&pod.to_string(), &["--dry-run=server"])?;
        let mut loose = pod.clone();
        if let Some(spec) = loose.pointer_mut("/spec").and_then(Value::as_object_mut) {
            spec.remove("securityContext");
        }
        let told = rig.kubectl.apply(&loose.to_string(), &["--dry-run=server"])?;
        ensure!(!told.good, "the namespace takes anything");
    }
    Ok(())
}

fn off_the_host(pod: &mut Value) {
    if let Some(spec) = pod.pointer_mut("/spec").and_then(Value::as_object_mut) {
        spec.remove("hostNetwork");
    }
    for probe in ["livenessProbe", "readinessProbe"] {
        let probe = pod.pointer_mut(&format!("/spec/containers/0/{probe}/httpGet"));
        if let Some(probe) = probe.and_then(Value::as_object_mut) {
            probe.remove("host");
        }
    }
}

/// Two of each controller run on one host, started as the manifests say. All of them, also the
/// standbys, answer the probes and drain within the pod's grace period.
pub fn probes_answer_on_leader_and_standby(rig: &Rig, _: &str) -> Result<()> {
    let here = rig.empty("probes")?;
    rig.runtime.block_on(async {
        let served = ServedCloud::start(&here).await?;
        for overlay in ["overlays/external", "overlays/external/route-ccm"] {
            let (_, objects) = rig.render(overlay)?;
            for deployment in objects.of("Deployment") {
                both_are_ready(rig, deployment, &objects, served.config())
                    .await
                    .with_context(|| identity(deployment))?;
            }
        }
        anyhow::Ok(())
    })
}

async fn both_are_ready(
    rig: &Rig,
    deployment: &Value,
    objects: &Objects,
    cloud: &std::path::Path,
) -> Result<()> {
    let here = rig.empty("replicas")?;
    let mut command = Command::of(deployment, objects, &here)?;
    // The pods share the machine's ports, and the socket.
    command
        .arguments
        .retain(|word| !word.starts_with("--secure-port=") && !word.starts_with("--cloud-config="));
    let launch = command
        .launch()
        .arg(format!("--cloud-config={}", cloud.display()))
        .arg(format!("--kubeconfig={}", rig.kubeconfig().display()));
    let replicas = [launch.start(&here)?, launch.start(&here)?];
    let container = controller(deployment)?;
    for replica in &replicas {
        for probe in ["livenessProbe", "readinessProbe"] {
            let path = at(container, &format!("/{probe}/httpGet/path"));
            poll::until(&format!("{path} of {}", command.program), SOON, || async {
                let (status, _) = replica.get(path).await?;
                Ok((status == 200).then_some(()))
            })
            .await?;
        }
    }
    let (_, page) = replicas[0].get("/configz").await?;
    let grace = deployment.pointer("/spec/template/spec/terminationGracePeriodSeconds");
    grace_is_enough(&serde_json::from_str(&page)?, &command.program, grace)
}

/// The end takes up to 13 seconds besides the drain and the writes to the cloud that are
/// under way: work that is cut off, the Lease, events, pages. Then a sidecar ends.
fn grace_is_enough(configz: &Value, program: &str, grace: Option<&Value>) -> Result<()> {
    let seconds = |key: &str| -> Result<u64> {
        let text = at(configz, &format!("/{program}/settings/{key}/value"));
        text.strip_suffix('s')
            .and_then(|number| number.parse().ok())
            .with_context(|| format!("{key} of {program} is {text:?}"))
    };
    let least = seconds("drain_timeout")? + seconds("cloud_call_timeout")? + 25;
    let grace = grace.and_then(Value::as_u64).unwrap_or_default();
    ensure!(grace >= least, "a grace period of {grace} s, but the settings need {least} s");
    Ok(())
}
