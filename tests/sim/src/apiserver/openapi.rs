//! OpenAPI documents, as far as `kubectl` needs them: they declare `fieldValidation` for
//! writes, so that `kubectl` leaves validation to the server.

use serde_json::{Map, Value, json};

use super::{
    resources::{self, RESOURCES, Resource},
    respond::Answer,
};

/// Returns `/openapi/v2`: an empty document, as protobuf or as JSON.
pub(super) fn v2(accept: &str) -> Answer {
    if accept.contains("protobuf") {
        return Answer::EmptyProtobuf;
    }
    Answer::json(
        json!({ "swagger": "2.0", "info": { "title": "Kubernetes", "version": "v1.36.3" }, "paths": {} }),
    )
}

fn root_of(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// Returns `/openapi/v3` and one document for each group and version.
pub(super) fn v3(path: &str) -> Option<Value> {
    let rest = path.strip_prefix("/openapi/v3")?.trim_matches('/');
    let mut versions = resources::group_versions().into_iter();
    if rest.is_empty() {
        let paths: Map<String, Value> = versions
            .map(|(group, version)| {
                let root = root_of(group, version);
                let url = json!({ "serverRelativeURL": format!("/openapi/v3/{root}?hash=1") });
                (root, url)
            })
            .collect();
        return Some(json!({ "paths": paths }));
    }
    let (group, version) = versions.find(|(group, version)| root_of(group, version) == rest)?;
    let mut paths = Map::new();
    for resource in RESOURCES.iter().filter(|it| it.group == group && it.version == version) {
        let scope = if resource.namespaced { "namespaces/{namespace}/" } else { "" };
        let collection = format!("/{}/{scope}{}", root_of(group, version), resource.plural);
        paths.insert(
            format!("{collection}/{{name}}"),
            operations(resource, &["get", "put", "patch", "delete"]),
        );
        paths.insert(collection, operations(resource, &["get", "post"]));
    }
    Some(
        json!({ "openapi": "3.0.0", "info": { "title": "Kubernetes", "version": "v1.36.3" }, "paths": paths,
        "components": { "schemas": {} } }),
    )
}

fn operations(resource: &Resource, methods: &[&str]) -> Value {
    let kind =
        json!({ "group": resource.group, "version": resource.version, "kind": resource.kind });
    let parameter =
        |name: &str| json!({ "name": name, "in": "query", "schema": { "type": "string" } });
    let parameters =
        json!([parameter("dryRun"), parameter("fieldManager"), parameter("fieldValidation")]);
    methods
        .iter()
        .map(|method| {
            let operation = json!({ "parameters": parameters, "x-kubernetes-group-version-kind": kind,
                "responses": { "200": { "description": "OK" } } });
            ((*method).to_owned(), operation)
        })
        .collect::<Map<_, _>>()
        .into()
}
