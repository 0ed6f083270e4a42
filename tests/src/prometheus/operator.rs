//! The targets that the Prometheus operator makes from `manifests/components/prometheus-operator`
//! and a program's Service.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::server::Job;
use crate::{
    cluster::repository,
    manifests::objects::{Objects, at, controller, list, name_of},
};

/// The fields that the ServiceMonitor may have: relabelings or `honorLabels` would change the
/// labels.
const ENDPOINT: [&str; 4] = ["interval", "path", "port", "scheme"];

/// Returns the replicas of this program, with the labels that the operator gives them.
pub(super) fn job(program: &str, addresses: Vec<String>) -> Result<Job> {
    let read = |path: String| {
        let path = repository().join("manifests").join(path);
        let text = fs::read_to_string(&path).with_context(|| format!("{}", path.display()))?;
        Objects::parse(&text)
    };
    let monitor = read("components/prometheus-operator/servicemonitor.yaml".to_owned())?;
    let monitor = monitor.of("ServiceMonitor").next().context("there is a ServiceMonitor")?;
    let installed = read(format!("rendered/external-{program}.yaml"))?;
    let service = installed.named("Service", program).context("there is a Service")?;
    let deployment = installed.named("Deployment", program).context("there is a Deployment")?;
    let labels = service["metadata"]["labels"].as_object().context("it has labels")?;
    let wanted = monitor["spec"]["selector"]["matchLabels"].as_object();
    let is_selected = wanted.context("it selects by labels")?.iter();
    ensure!(is_selected.clone().all(|(key, value)| labels.get(key) == Some(value)), "{labels:?}");
    // The operator looks only in the namespace of the monitor.
    ensure!(monitor.pointer("/spec/namespaceSelector").is_none(), "other namespaces");
    ensure!(monitor["metadata"]["namespace"] == service["metadata"]["namespace"], "elsewhere");
    let [endpoint] = list(monitor, "/spec/endpoints") else {
        anyhow::bail!("the ServiceMonitor has more than one endpoint");
    };
    let odd = endpoint.as_object().context("an endpoint")?.keys();
    let odd: Vec<_> = odd.filter(|key| !ENDPOINT.contains(&key.as_str())).collect();
    ensure!(odd.is_empty(), "the ServiceMonitor has {odd:?}: write down its effect on labels");
    let port = at(endpoint, "/port");
    let ports = list(service, "/spec/ports");
    ensure!(ports.iter().any(|one| at(one, "/name") == port), "{ports:?} has no {port}");
    let name = &labels[at(monitor, "/spec/jobLabel")];
    let label = |pod: usize| {
        json!({
            "namespace": at(service, "/metadata/namespace"),
            "service": name_of(service),
            "endpoint": port,
            "container": controller(deployment).map_or(&Value::Null, |found| &found["name"]),
            "pod": format!("{program}-{pod}"),
        })
    };
    let targets = addresses.into_iter().enumerate();
    Ok(Job {
        name: name.as_str().context("a text")?.to_owned(),
        targets: targets.map(|(pod, address)| (address, label(pod))).collect(),
    })
}
