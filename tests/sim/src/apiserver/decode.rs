//! Decodes client input into the stored form.

use serde_json::{Map, Value};

use super::{eventview, resources::Resource, shape, status::StatusError};

/// The treatment of fields that the type does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) enum FieldValidation {
    Ignore,
    #[default]
    Warn,
    Strict,
}

/// The options of a write, and its warnings.
#[derive(Clone, Debug, Default)]
pub(super) struct WriteOptions {
    pub(super) dry_run: bool,
    pub(super) validation: FieldValidation,
    pub(super) warnings: Vec<String>,
}

/// Decodes client input into the stored form.
pub(super) fn decode(
    resource: &Resource,
    mut body: Value,
    options: &mut WriteOptions,
) -> Result<Value, StatusError> {
    check_type(resource, &body)?;
    strip_type(&mut body);
    if resource.is_events_view() {
        body = eventview::stored(body);
    }
    let mut unknown = Vec::new();
    shape::normalise(&mut body, &resource.shape, &mut unknown)
        .map_err(|error| StatusError::bad_request(unhandled(resource, &error)))?;
    report_unknown(&unknown, options)
        .map_err(|error| StatusError::bad_request(unhandled(resource, &error)))?;
    Ok(body)
}

fn unhandled(resource: &Resource, error: &dyn std::fmt::Display) -> String {
    format!(
        "{kind} in version {:?} cannot be handled as a {kind}: {error}",
        resource.version,
        kind = resource.kind
    )
}

/// Rejects, reports or ignores fields that the type does not have.
pub(super) fn report_unknown(unknown: &[String], options: &mut WriteOptions) -> Result<(), String> {
    match options.validation {
        _ if unknown.is_empty() => Ok(()),
        FieldValidation::Ignore => Ok(()),
        FieldValidation::Warn => {
            let warnings = unknown.iter().map(|field| format!("unknown field \"{field}\""));
            options.warnings.extend(warnings);
            Ok(())
        }
        FieldValidation::Strict => {
            let fields: Vec<_> =
                unknown.iter().map(|field| format!("unknown field \"{field}\"")).collect();
            Err(format!("strict decoding error: {}", fields.join(", ")))
        }
    }
}

/// Checks the type in the body. The body may omit its type, but not claim another one.
fn check_type(resource: &Resource, body: &Value) -> Result<(), StatusError> {
    let Value::Object(map) = body else {
        return Err(StatusError::bad_request(unhandled(
            resource,
            &"json: cannot unmarshal value that is not an object into Go value",
        )));
    };
    let given = |name: &str| map.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let wanted = resource.api_version();
    let (kind, version) =
        (given("kind").unwrap_or(resource.kind), given("apiVersion").unwrap_or(&wanted));
    if kind == resource.kind && version == wanted {
        return Ok(());
    }
    let detail = if version == wanted {
        format!("converting ({version}.{kind}) to ({}): unknown conversion", resource.kind)
    } else {
        format!("no kind {kind:?} is registered for version {version:?}")
    };
    Err(StatusError::bad_request(format!(
        "{kind} in version {version:?} cannot be handled as a {}: {detail}",
        resource.kind
    )))
}

/// Removes the type fields; objects are stored without them.
pub(super) fn strip_type(value: &mut Value) {
    if let Some(map) = value.as_object_mut() {
        map.remove("kind");
        map.remove("apiVersion");
    }
    if value["metadata"].is_null() {
        value["metadata"] = Value::Object(Map::new());
    }
}
