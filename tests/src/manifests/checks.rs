//! Rules for rendered objects. Each check reports all violations.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use serde_json::Value;

use super::objects::{
    Objects, arguments, at, containers, controller, identity, list, name_of, own_secret, selects,
};

/// Objects that a pod references but the manifests do not create.
const MADE_ELSEWHERE: [&str; 3] =
    ["ConfigMap kube-root-ca.crt", "ConfigMap kubernetes-services-endpoint", "Secret cloud-config"];

/// Taints of a cluster during bootstrap.
const TAINTS: [&str; 4] = [
    "node-role.kubernetes.io/control-plane",
    "node.cloudprovider.kubernetes.io/uninitialized",
    "node.kubernetes.io/network-unavailable",
    "node.kubernetes.io/not-ready",
];

/// Fails with all violations.
pub fn check(objects: &Objects) -> Result<()> {
    let checks = [
        rights_read_no_secrets,
        bindings_lead_somewhere,
        flows_belong_to_the_accounts,
        accounts_are_confined,
        images_are_nobodys,
        services_and_budgets_select_their_pods,
        ports_agree,
        probes_look_at_the_pages,
        containers_are_locked_up,
        the_token_is_for_the_controller_alone,
        pods_come_up_on_a_new_cluster,
        replicas_relieve_each_other,
        volumes_lead_somewhere,
    ];
    let mut problems: Vec<String> = checks.iter().flat_map(|check| check(objects)).collect();
    if objects.of("Deployment").next().is_none() {
        problems.push("there is no Deployment".to_owned());
    }
    ensure!(problems.is_empty(), "{}", problems.join("\n"));
    Ok(())
}

fn rights_read_no_secrets(objects: &Objects) -> Vec<String> {
    let mut problems: Vec<_> = objects.of("Secret").map(identity).collect();
    for role in objects.of("Role").chain(objects.of("ClusterRole")) {
        for rule in list(role, "/rules") {
            let names = |field: &str| list(rule, field).iter().filter_map(Value::as_str);
            let fields = ["/apiGroups", "/resources", "/verbs", "/resourceNames"];
            for word in fields.iter().flat_map(|field| names(field)) {
                if word.contains('*') || word.starts_with("secrets") {
                    problems.push(format!("{}: a rule with {word:?}", identity(role)));
                }
            }
        }
    }
    problems
}

/// Returns true for the objects of `manifests/guard`.
pub fn is_of_guard(object: &Value) -> bool {
    at(object, "/metadata/labels/app.kubernetes.io~1name") == "quartet-guard"
}

fn bindings_lead_somewhere(objects: &Objects) -> Vec<String> {
    let mut problems = Vec::new();
    for binding in objects.of("RoleBinding").chain(objects.of("ClusterRoleBinding")) {
        let (kind, name) = (at(binding, "/roleRef/kind"), at(binding, "/roleRef/name"));
        let role = objects.named(kind, name);
        let space = |object: &Value| object.pointer("/metadata/namespace").cloned();
        if role.is_none_or(|role| kind == "Role" && space(role) != space(binding)) {
            problems.push(format!("{}: {kind} {name} does not exist", identity(binding)));
        }
        // The policy is about all programs, also about programs that are not installed.
        if is_of_guard(binding) {
            continue;
        }
        for subject in list(binding, "/subjects") {
            let account = objects.named("ServiceAccount", at(subject, "/name"));
            let namespace = account.map(|account| at(account, "/metadata/namespace"));
            if namespace != Some(at(subject, "/namespace")) {
                problems.push(format!("{}: no such account: {subject}", identity(binding)));
            }
        }
    }
    for deployment in objects.of("Deployment") {
        let account = at(deployment, "/spec/template/spec/serviceAccountName");
        if objects.named("ServiceAccount", account).is_none() {
            problems.push(format!("{}: account {account:?} does not exist", identity(deployment)));
        }
    }
    problems
}

/// Requests for Leases come first, by the API server's own rules; all others are matched before
/// the rule for all accounts of kube-system.
fn flows_belong_to_the_accounts(objects: &Objects) -> Vec<String> {
    let mut problems = Vec::new();
    for deployment in objects.of("Deployment") {
        let Some(schema) = objects.named("FlowSchema", name_of(deployment)) else {
            problems.push(format!("{} has no FlowSchema", identity(deployment)));
            continue;
        };
        let precedence = schema.pointer("/spec/matchingPrecedence").and_then(Value::as_u64);
        if !precedence.is_some_and(|it| (201..900).contains(&it)) {
            problems.push(format!("{}: its precedence is {precedence:?}", identity(schema)));
        }
        let account = at(deployment, "/spec/template/spec/serviceAccountName");
        let namespace = at(deployment, "/metadata/namespace");
        let account = serde_json::json!({"name": account, "namespace": namespace});
        if schema.pointer("/spec/rules/0/subjects/0/serviceAccount") != Some(&account) {
            problems.push(format!("{} is not for the account {account}", identity(schema)));
        }
    }
    problems
}

/// Checks that each account has an admission policy of its name, in force.
fn accounts_are_confined(objects: &Objects) -> Vec<String> {
    let mut problems = Vec::new();
    for account in objects.of("ServiceAccount").map(name_of) {
        let policy = objects.named("ValidatingAdmissionPolicy", account);
        let binding = objects.named("ValidatingAdmissionPolicyBinding", account);
        let (Some(policy), Some(binding)) = (policy, binding) else {
            problems.push(format!("the account {account} has no admission policy"));
            continue;
        };
        let whose = at(policy, "/spec/matchConditions/0/expression");
        if !whose.contains(&format!("-)?{account}$'")) {
            problems.push(format!("{} is for {whose}", identity(policy)));
        }
        let actions = list(binding, "/spec/validationActions");
        if at(binding, "/spec/policyName") != account || actions != ["Deny"] {
            problems.push(format!(
                "{} binds another policy, or does not deny anything",
                identity(binding)
            ));
        }
    }
    problems
}

/// Checks that image names are below `.invalid`, where nobody can publish an image: if the names
/// were not replaced, nothing starts.
fn images_are_nobodys(objects: &Objects) -> Vec<String> {
    let images = objects.of("Deployment").flat_map(containers).map(|found| at(found, "/image"));
    let is_nobodys =
        |image: &&str| image.starts_with("registry.invalid/quartet/") && image.ends_with(":unset");
    images
        .filter(|image| !is_nobodys(image))
        .map(|image| {
            format!("image {image:?} must be like registry.invalid/quartet/node-ccm:unset")
        })
        .collect()
}

fn services_and_budgets_select_their_pods(objects: &Objects) -> Vec<String> {
    let mut problems = Vec::new();
    for deployment in objects.of("Deployment") {
        let labels = deployment.pointer("/spec/template/metadata/labels");
        let own = deployment.pointer("/spec/selector/matchLabels");
        let mut selectors = vec![(identity(deployment), own)];
        for spread in list(deployment, "/spec/template/spec/topologySpreadConstraints") {
            let selector = spread.pointer("/labelSelector/matchLabels");
            selectors.push((format!("a spread of {}", identity(deployment)), selector));
        }
        let name = name_of(deployment);
        for (kind, pointer) in
            [("Service", "/spec/selector"), ("PodDisruptionBudget", "/spec/selector/matchLabels")]
        {
            let selector = objects.named(kind, name).and_then(|object| object.pointer(pointer));
            selectors.push((format!("{kind} {name}"), selector));
        }
        for (who, selector) in selectors {
            if !selects(selector, labels) {
                problems.push(format!("{who} does not select the pods of {name}"));
            }
            let others = objects.of("Deployment").filter(|other| name_of(other) != name);
            for other in others {
                if selects(selector, other.pointer("/spec/template/metadata/labels")) {
                    problems.push(format!("{who} selects the pods of {}", name_of(other)));
                }
            }
        }
    }
    problems
}

/// The port appears in the arguments, the container and the Service; on the host network each
/// controller needs a different one.
fn ports_agree(objects: &Objects) -> Vec<String> {
    let mut problems = Vec::new();
    let mut taken = BTreeMap::new();
    for deployment in objects.of("Deployment") {
        let name = name_of(deployment);
        let Ok(container) = controller(deployment) else { continue };
        let ports = list(container, "/ports");
        let number =
            ports.first().and_then(|port| port.get("containerPort")).and_then(Value::as_u64);
        let named = ports.first().map(|port| at(port, "/name"));
        let flag = format!("--secure-port={}", number.unwrap_or_default());
        if ports.len() != 1 || named != Some("metrics") || !arguments(container).contains(&&*flag) {
            problems.push(format!("{name}: no {flag} for the one port `metrics`"));
        }
        let served = objects.named("Service", name).map(|service| list(service, "/spec/ports"));
        let right = served.is_some_and(|ports| {
            ports.len() == 1
                && ports.iter().all(|port| {
                    port.get("port").and_then(Value::as_u64) == number
                        && at(port, "/targetPort") == "metrics"
                })
        });
        if !right {
            problems.push(format!("Service {name} does not lead to port {number:?}"));
        }
        if let Some(other) = taken.insert(number, name) {
            problems.push(format!("{name} and {other} share port {number:?}"));
        }
    }
    problems
}

fn probes_look_at_the_pages(objects: &Objects) -> Vec<String> {
    let mut problems = Vec::new();
    for deployment in objects.of("Deployment") {
        let Ok(container) = controller(deployment) else {
            problems.push(format!("{} has no container `controller`", identity(deployment)));
            continue;
        };
        for (probe, path) in [("livenessProbe", "/livez"), ("readinessProbe", "/readyz")] {
            let at = |field: &str| at(container, &format!("/{probe}/httpGet/{field}"));
            if (at("path"), at("port"), at("scheme")) != (path, "metrics", "HTTP") {
                problems.push(format!("{}: {probe} does not ask {path}", identity(deployment)));
            }
        }
    }
    problems
}

/// The API server's own check (PodSecurity `restricted`) covers the other fields.
fn containers_are_locked_up(objects: &Objects) -> Vec<String> {
    let mut problems = Vec::new();
    for deployment in objects.of("Deployment") {
        for container in containers(deployment) {
            let who = format!("{} {}", identity(deployment), at(container, "/name"));
            let read_only = container.pointer("/securityContext/readOnlyRootFilesystem");
            if read_only != Some(&Value::Bool(true)) {
                problems.push(format!("{who}: its root can be written"));
            }
            for resource in ["cpu", "memory"] {
                if at(container, &format!("/resources/requests/{resource}")).is_empty() {
                    problems.push(format!("{who}: asks for no {resource}"));
                }
            }
            if container.get("envFrom").is_some() {
                problems.push(format!("{who}: a ConfigMap or Secret sets any variable"));
            }
            if container.pointer("/resources/limits/cpu").is_some() {
                problems.push(format!("{who}: a throttled leader cannot renew its Lease"));
            }
        }
    }
    problems
}

fn the_token_is_for_the_controller_alone(objects: &Objects) -> Vec<String> {
    let mut problems = Vec::new();
    for deployment in objects.of("Deployment") {
        let who = identity(deployment);
        let automount = deployment.pointer("/spec/template/spec/automountServiceAccountToken");
        if automount != Some(&Value::Bool(false)) {
            problems.push(format!("{who}: the token is mounted into every container"));
        }
        for container in containers(deployment) {
            let name = at(container, "/name");
            let mounts = list(container, "/volumeMounts").iter();
            let token = mounts.filter(|mount| at(mount, "/name") == "service-account").count();
            if token != usize::from(name == "controller") {
                problems.push(format!("{who} {name}: {token} mounts of the token"));
            }
            if list(container, "/volumeMounts").iter().any(|mount| mount.get("subPath").is_some()) {
                problems.push(format!("{who} {name}: a subPath is never brought up to date"));
            }
        }
    }
    problems
}

fn pods_come_up_on_a_new_cluster(objects: &Objects) -> Vec<String> {
    let mut problems = Vec::new();
    for deployment in objects.of("Deployment") {
        let who = identity(deployment);
        let spec = "/spec/template/spec";
        let tolerations = list(deployment, &format!("{spec}/tolerations"));
        for taint in TAINTS {
            let tolerated = tolerations.iter().any(|toleration| {
                at(toleration, "/key") == taint
                    && at(toleration, "/operator") == "Exists"
                    && toleration.get("effect").is_none()
                    && toleration.get("tolerationSeconds").is_none()
            });
            if !tolerated {
                problems.push(format!("{who} does not tolerate {taint}"));
            }
        }
        if tolerations.iter().any(|toleration| at(toleration, "/key").is_empty()) {
            problems.push(format!("{who} comes back to a node that is drained"));
        }
        if at(deployment, &format!("{spec}/priorityClassName")) != "system-cluster-critical" {
            problems.push(format!("{who} can be evicted by pods of any priority"));
        }
        if at(deployment, &format!("{spec}/dnsPolicy")) != "Default" {
            problems.push(format!("{who} waits for cluster DNS, which waits for it"));
        }
    }
    problems
}

fn replicas_relieve_each_other(objects: &Objects) -> Vec<String> {
    let mut problems = Vec::new();
    for deployment in objects.of("Deployment") {
        let number = |pointer: &str| deployment.pointer(pointer).and_then(Value::as_u64);
        let rollout = "/spec/strategy/rollingUpdate";
        let surge = number(&format!("{rollout}/maxSurge"));
        let unavailable = number(&format!("{rollout}/maxUnavailable"));
        if (surge, unavailable) != (Some(0), Some(1)) {
            let who = identity(deployment);
            problems.push(format!("{who}: a rollout waits for a port that is taken"));
        }
        if !matches!(number("/spec/replicas"), Some(1 | 2)) {
            problems.push(format!("{}: one leads, one stands by", identity(deployment)));
        }
    }
    problems
}

fn volumes_lead_somewhere(objects: &Objects) -> Vec<String> {
    let mut problems = Vec::new();
    for deployment in objects.of("Deployment") {
        let who = identity(deployment);
        let volumes = list(deployment, "/spec/template/spec/volumes");
        let projected = volumes.iter().flat_map(|volume| list(volume, "/projected/sources"));
        let environment = containers(deployment).flat_map(|found| list(found, "/env"));
        let named = volumes.iter().chain(projected).chain(environment).flat_map(|source| {
            [
                ("ConfigMap", at(source, "/configMap/name")),
                ("ConfigMap", at(source, "/valueFrom/configMapKeyRef/name")),
                ("Secret", at(source, "/secret/secretName")),
            ]
        });
        for (kind, name) in named.filter(|(_, name)| !name.is_empty()) {
            let elsewhere = MADE_ELSEWHERE.contains(&&*format!("{kind} {name}"));
            let is_own = kind == "Secret" && name == own_secret(deployment);
            if !elsewhere && !is_own && objects.named(kind, name).is_none() {
                problems.push(format!("{who} needs {kind} {name}, which no manifest creates"));
            }
        }
        for mount in containers(deployment).flat_map(|found| list(found, "/volumeMounts")) {
            let name = at(mount, "/name");
            if !volumes.iter().any(|volume| at(volume, "/name") == name) {
                problems.push(format!("{who} mounts {name}, which is not a volume"));
            }
        }
    }
    problems
}
