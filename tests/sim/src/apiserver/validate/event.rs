//! Events.

use serde_json::Value;

use super::super::{resources::Resource, status::Cause};

pub(super) fn check(resource: &Resource, event: &Value, causes: &mut Vec<Cause>) {
    let namespace = event["metadata"]["namespace"].as_str().unwrap_or_default();
    let about = &event["involvedObject"]["namespace"];
    let about_text = about.as_str().unwrap_or_default();
    // Events about cluster-scoped objects are in the namespace `default`.
    let fits = about_text == namespace || (about_text.is_empty() && namespace == "default");
    if !fits {
        causes.push(Cause::invalid(
            "involvedObject.namespace",
            &Value::from(about_text),
            "does not match event.namespace",
        ));
    }
    if !resource.is_events_view() {
        return;
    }
    if event["eventTime"].is_null() {
        causes.push(Cause::required("eventTime", ""));
    }
    let kind = event["type"].as_str().unwrap_or_default();
    if !matches!(kind, "Normal" | "Warning") {
        causes.push(Cause::invalid(
            "type",
            &Value::from(kind),
            &format!("has invalid value: {kind}"),
        ));
    }
}
