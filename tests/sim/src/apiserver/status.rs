//! Refusals: `Status` objects with the messages, reasons and codes of
//! `k8s.io/apimachinery/pkg/api/errors`.

use serde_json::{Value, json};

/// A refusal. [`StatusError::body`] is the `Status` object that is sent.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct StatusError {
    /// HTTP status code.
    pub code: u16,
    /// Machine readable, for instance `Conflict`. Empty if the real server does not send one.
    pub reason: &'static str,
    /// For people.
    pub message: String,
    /// The `details` object, or null.
    pub details: Value,
    /// Seconds for the header `Retry-After`.
    pub retry_after: Option<u64>,
    /// A continue token that still works, for lists whose snapshot has expired.
    pub next: Option<String>,
}

/// One reason why an object is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// For instance `FieldValueInvalid`.
    pub reason: &'static str,
    /// Path of the field, for instance `metadata.labels`.
    pub field: String,
    /// The problem, beginning with its kind: `Invalid value: "x": ...`.
    pub message: String,
}

impl Cause {
    /// Returns an invalid value.
    pub(super) fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        let message = format!("Invalid value: {}: {detail}", shown(value));
        Self { reason: "FieldValueInvalid", field: field.into(), message }
    }

    /// Returns a missing required field.
    pub(super) fn required(field: impl Into<String>, detail: &str) -> Self {
        let message = if detail.is_empty() {
            "Required value".to_owned()
        } else {
            format!("Required value: {detail}")
        };
        Self { reason: "FieldValueRequired", field: field.into(), message }
    }

    /// Returns a change that is not allowed.
    pub(super) fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self {
            reason: "FieldValueForbidden",
            field: field.into(),
            message: format!("Forbidden: {detail}"),
        }
    }

    /// Returns a value outside an enumeration.
    pub(super) fn unsupported(field: impl Into<String>, value: &Value, legal: &[&str]) -> Self {
        let legal = legal.iter().map(|value| format!("{value:?}")).collect::<Vec<_>>().join(", ");
        let message = format!("Unsupported value: {}: supported values: {legal}", shown(value));
        Self { reason: "FieldValueNotSupported", field: field.into(), message }
    }

    /// Returns the second of two equal entries, as shown in messages.
    pub(super) fn duplicate(field: impl Into<String>, shown: &str) -> Self {
        let message = format!("Duplicate value: {shown}");
        Self { reason: "FieldValueDuplicate", field: field.into(), message }
    }
}

/// Returns a value as shown in messages: strings quoted, the rest as JSON.
fn shown(value: &Value) -> String {
    value.to_string()
}

impl StatusError {
    pub(super) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: Value::Null,
            retry_after: None,
            next: None,
        }
    }

    fn about(mut self, name: &str, group: &str, kind: &str) -> Self {
        let mut details = json!({ "kind": kind });
        if !name.is_empty() {
            details["name"] = json!(name);
        }
        if !group.is_empty() {
            details["group"] = json!(group);
        }
        self.details = details;
        self
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub(super) fn not_found(group: &str, plural: &str, name: &str) -> Self {
        let message = format!("{} {name:?} not found", qualified(plural, group));
        Self::new(404, "NotFound", message).about(name, group, plural)
    }

    pub(super) fn no_such_path() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource")
            .with_details(json!({}))
    }

    pub(super) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message).with_details(json!({}))
    }

    pub(super) fn already_exists(group: &str, plural: &str, name: &str) -> Self {
        let message = format!("{} {name:?} already exists", qualified(plural, group));
        Self::new(409, "AlreadyExists", message).about(name, group, plural)
    }

    pub(super) fn conflict(group: &str, plural: &str, name: &str, detail: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} {name:?}: {detail}",
            qualified(plural, group)
        );
        Self::new(409, "Conflict", message).about(name, group, plural)
    }

    /// Returns a write that admission refuses.
    pub(super) fn forbidden(group: &str, plural: &str, name: &str, detail: &str) -> Self {
        let message = format!("{} {name:?} is forbidden: {detail}", qualified(plural, group));
        Self::new(403, "Forbidden", message).about(name, group, plural)
    }

    pub(super) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    pub(super) fn unsupported_media_type(message: impl Into<String>) -> Self {
        Self::new(415, "UnsupportedMediaType", message)
    }

    /// Returns an object that breaks validation rules; one cause each.
    pub(super) fn invalid(group: &str, kind: &str, name: &str, causes: &[Cause]) -> Self {
        let who = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let what = causes
            .iter()
            .map(|cause| format!("{}: {}", cause.field, cause.message))
            .collect::<Vec<_>>();
        let what = match what.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let mut error = Self::new(422, "Invalid", format!("{who} {name:?} is invalid: {what}"))
            .about(name, group, kind);
        error.details["causes"] = causes
            .iter()
            .map(|cause| json!({ "reason": cause.reason, "message": cause.message, "field": cause.field }))
            .collect();
        error
    }

    /// Returns a version that this server has not reached yet.
    pub(super) fn too_large_version(asked: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        let mut error = Self::new(504, "Timeout", message).with_details(json!({
            "causes": [{ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" }],
            "retryAfterSeconds": 1,
        }));
        error.retry_after = Some(1);
        error
    }

    pub(super) fn with_details(mut self, details: Value) -> Self {
        self.details = details;
        self
    }

    /// Returns an answer for faults: the reason and message that belong to `code`.
    pub(super) fn of_code(code: u16, retry_after: Option<u64>) -> Self {
        let (reason, message) = match code {
            401 => ("Unauthorized", "Unauthorized"),
            403 => ("Forbidden", "forbidden by a fault of the simulation"),
            404 => ("NotFound", "the server could not find the requested resource"),
            409 => (
                "Conflict",
                "the object has been modified; please apply your changes to the latest version and try again",
            ),
            410 => ("Expired", "too old resource version: 1 (2)"),
            429 => (
                "TooManyRequests",
                "the server has received too many requests and has asked us to try again later",
            ),
            503 => ("ServiceUnavailable", "the server is currently unable to handle the request"),
            504 => ("Timeout", "the server was unable to return a response in the time allotted"),
            _ => ("InternalError", "Internal error occurred: a fault of the simulation"),
        };
        let mut error = Self::new(code, reason, message);
        if let Some(seconds) = retry_after {
            error.details = json!({ "retryAfterSeconds": seconds });
            error.retry_after = Some(seconds);
        }
        error
    }

    /// Returns the `Status` object.
    pub fn body(&self) -> Value {
        let mut body = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "code": self.code,
        });
        if !self.reason.is_empty() {
            body["reason"] = json!(self.reason);
        }
        if !self.details.is_null() {
            body["details"] = self.details.clone();
        }
        if let Some(next) = &self.next {
            body["metadata"] = json!({ "continue": next });
        }
        body
    }
}

/// Returns `leases.coordination.k8s.io`, or `nodes`.
fn qualified(plural: &str, group: &str) -> String {
    if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") }
}
