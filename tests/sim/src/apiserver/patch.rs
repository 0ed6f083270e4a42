//! The three kinds of patches.

use serde_json::Value;

use super::{shape::Shape, status::StatusError};

mod json;
mod merge;
mod strategic;

/// The rules of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchKind {
    /// RFC 7386, `application/merge-patch+json`.
    Merge,
    /// `application/strategic-merge-patch+json`: lists are merged by key where the type says so.
    Strategic,
    /// RFC 6902, `application/json-patch+json`.
    Json,
}

/// Why a patch cannot be applied.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(super) enum PatchError {
    #[error("error decoding patch: {0}")]
    Undecodable(String),
    #[error("the server rejected our request due to an error in our request")]
    Rejected,
    #[error("map: {element} does not contain declared merge key: {key}")]
    NoMergeKey { element: String, key: &'static str },
    #[error(
        "The order in patch list:\n[{patch}]\n doesn't match $setElementOrder list:\n[{order}]\n"
    )]
    Order { patch: String, order: String },
    #[error("unknown patch type: {directive} in map: {element}")]
    UnknownDirective { directive: String, element: String },
    #[error("merging lists cannot yet be specified in the patch")]
    MergedList,
    #[error("invalid patch format of retainKeys")]
    RetainKeys,
}

impl From<PatchError> for StatusError {
    fn from(error: PatchError) -> Self {
        let message = error.to_string();
        match error {
            PatchError::Undecodable(_) | PatchError::RetainKeys => Self::bad_request(message),
            PatchError::Rejected => {
                Self::new(422, "Invalid", message).with_details(serde_json::json!({}))
            }
            PatchError::NoMergeKey { .. }
            | PatchError::Order { .. }
            | PatchError::UnknownDirective { .. }
            | PatchError::MergedList => Self::new(500, "", message),
        }
    }
}

/// A decoded patch.
#[derive(Clone, Debug)]
pub(super) struct Patch {
    kind: PatchKind,
    body: Value,
}

impl Patch {
    pub(super) fn new(kind: PatchKind, body: Value) -> Result<Self, PatchError> {
        let fits = match kind {
            PatchKind::Json => body.is_array(),
            PatchKind::Merge | PatchKind::Strategic => body.is_object(),
        };
        if fits {
            return Ok(Self { kind, body });
        }
        let found = match &body {
            Value::Array(_) => "array",
            Value::Object(_) => "object",
            Value::String(_) => "string",
            Value::Number(_) => "number",
            Value::Bool(_) => "bool",
            Value::Null => "null",
        };
        let wanted = if kind == PatchKind::Json {
            "[]handlers.jsonPatchOp"
        } else {
            "map[string]interface {}"
        };
        Err(PatchError::Undecodable(format!(
            "json: cannot unmarshal {found} into Go value of type {wanted}"
        )))
    }

    pub(super) fn decode(kind: PatchKind, body: &[u8]) -> Result<Self, PatchError> {
        let body = serde_json::from_slice(body)
            .map_err(|error| PatchError::Undecodable(error.to_string()))?;
        Self::new(kind, body)
    }

    /// Returns the patched value, not normalised yet.
    pub(super) fn apply(&self, mut value: Value, shape: &Shape) -> Result<Value, PatchError> {
        match self.kind {
            PatchKind::Merge => merge::apply(&mut value, &self.body),
            PatchKind::Strategic => strategic::apply(&mut value, &self.body, shape)?,
            PatchKind::Json => json::apply(&mut value, &self.body)?,
        }
        Ok(value)
    }

    /// Returns the object that error messages quote: the patch, or the patched object.
    pub(super) fn shown(&self, patched: &Value) -> String {
        match self.kind {
            PatchKind::Strategic => strategic::go_map(&self.body),
            PatchKind::Merge | PatchKind::Json => patched.to_string(),
        }
    }
}
