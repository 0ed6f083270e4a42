//! Discovery: the served groups, versions and resources.

use serde_json::{Value, json};

use super::{
    negotiate::Form,
    resources::{self, RESOURCES, Resource},
    respond::Answer,
};

const VERBS: [&str; 8] =
    ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
const STATUS_VERBS: [&str; 3] = ["get", "patch", "update"];
/// The group of access reviews, which are served but not stored.
const AUTHORIZATION: &str = "authorization.k8s.io";

/// Answers `/version`, `/api` and `/apis` with everything below them.
pub(super) fn answer(path: &str, form: Form) -> Option<Answer> {
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    match (parts.as_slice(), form) {
        (["version"], _) => Some(Answer::json(version())),
        (["api"], Form::Discovery(version)) => Some(aggregated(version, str::is_empty)),
        (["apis"], Form::Discovery(version)) => {
            Some(aggregated(version, |group| !group.is_empty()))
        }
        (["api"], _) => Some(Answer::json(json!({ "kind": "APIVersions", "versions": ["v1"],
            "serverAddressByClientCIDRs": [] }))),
        (["apis"], _) => {
            let groups: Vec<_> =
                groups().iter().map(|(name, version)| group(name, version)).collect();
            Some(Answer::json(
                json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups }),
            ))
        }
        (["api", version], _) => resource_list("", version),
        (["apis", name], _) => {
            let (name, version) = groups().into_iter().find(|(known, _)| known == name)?;
            let mut group = group(name, version);
            group["kind"] = json!("APIGroup");
            group["apiVersion"] = json!("v1");
            Some(Answer::json(group))
        }
        (["apis", group, version], _) => resource_list(group, version),
        _ => None,
    }
}

fn version() -> Value {
    json!({ "major": "1", "minor": "36", "gitVersion": "v1.36.3", "gitCommit": "", "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "", "platform": "linux/amd64" })
}

/// Returns the named groups with their only version.
fn groups() -> Vec<(&'static str, &'static str)> {
    let mut groups = resources::group_versions();
    groups.retain(|(name, _)| !name.is_empty());
    groups.push((AUTHORIZATION, "v1"));
    groups
}

fn group(name: &str, version: &str) -> Value {
    let version = json!({ "groupVersion": format!("{name}/{version}"), "version": version });
    json!({ "name": name, "versions": [version], "preferredVersion": version })
}

fn in_group<'a>(group: &'a str, version: &'a str) -> impl Iterator<Item = &'static Resource> + 'a {
    RESOURCES.iter().filter(move |resource| resource.group == group && resource.version == version)
}

fn resource_list(group: &str, version: &str) -> Option<Answer> {
    let mut entries = Vec::new();
    for resource in in_group(group, version) {
        entries.push(json!({ "name": resource.plural, "singularName": resource.singular(),
            "namespaced": resource.namespaced, "kind": resource.kind, "verbs": VERBS,
            "shortNames": resource.short_names }));
        for subresource in resource.subresources {
            entries.push(
                json!({ "name": format!("{}/{subresource}", resource.plural), "singularName": "",
                "namespaced": resource.namespaced, "kind": resource.kind, "verbs": STATUS_VERBS }),
            );
        }
    }
    if group == AUTHORIZATION && version == "v1" {
        entries.push(
            json!({ "name": "selfsubjectaccessreviews", "singularName": "selfsubjectaccessreview",
            "namespaced": false, "kind": "SelfSubjectAccessReview", "verbs": ["create"] }),
        );
    }
    if entries.is_empty() {
        return None;
    }
    let group_version =
        if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    Some(Answer::json(
        json!({ "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version,
        "resources": entries }),
    ))
}

/// Returns the wanted groups in one document, as `kubectl` requests them.
fn aggregated(api: &'static str, wanted: impl Fn(&str) -> bool) -> Answer {
    let mut versions = resources::group_versions();
    versions.push((AUTHORIZATION, "v1"));
    let items: Vec<_> = versions
        .into_iter()
        .filter(|(group, _)| wanted(group))
        .map(|(group, version)| {
            let metadata = if group.is_empty() { json!({}) } else { json!({ "name": group }) };
            let resources = aggregated_resources(group, version);
            json!({ "metadata": metadata,
                "versions": [{ "version": version, "resources": resources, "freshness": "Current" }] })
        })
        .collect();
    let value = json!({ "kind": "APIGroupDiscoveryList", "apiVersion": format!("apidiscovery.k8s.io/{api}"),
        "metadata": {}, "items": items });
    let media = match api {
        "v2" => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        _ => "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
    };
    Answer::Value { code: 200, value, media }
}

fn aggregated_resources(group: &str, version: &str) -> Vec<Value> {
    let kind = |kind: &str| json!({ "group": group, "version": version, "kind": kind });
    if group == AUTHORIZATION {
        return vec![
            json!({ "resource": "selfsubjectaccessreviews", "responseKind": kind("SelfSubjectAccessReview"),
            "scope": "Cluster", "singularResource": "selfsubjectaccessreview", "verbs": ["create"] }),
        ];
    }
    in_group(group, version)
        .map(|resource| {
            let subresources: Vec<_> = resource
                .subresources
                .iter()
                .map(|name| json!({ "subresource": name, "responseKind": kind(resource.kind), "verbs": STATUS_VERBS }))
                .collect();
            json!({ "resource": resource.plural, "responseKind": kind(resource.kind),
                "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
                "singularResource": resource.singular(), "verbs": VERBS,
                "shortNames": resource.short_names, "subresources": subresources })
        })
        .collect()
}
