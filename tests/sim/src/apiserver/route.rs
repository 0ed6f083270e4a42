//! Routes a parsed request.

use std::sync::Arc;

use http::header;
use serde_json::{Value, json};

use super::{
    Core,
    decode::{FieldValidation, WriteOptions},
    discovery,
    faults::{Asked, Effects},
    negotiate::{self, Form, decode_body},
    object::Object,
    openapi,
    patch::{Patch, PatchKind},
    request::{RequestInfo, Verb},
    resources::Resource,
    respond::Answer,
    status::StatusError,
    write::{Deleted, Preconditions, Target},
};

/// Returns the response to a write. It carries warnings even if the write was refused.
fn written(
    outcome: Result<(u16, Arc<Object>), StatusError>,
    resource: &'static Resource,
    options: WriteOptions,
) -> Result<Answer, StatusError> {
    let warnings = options.warnings;
    match outcome {
        Ok((code, object)) => Ok(Answer::Object { code, resource, object, warnings }),
        Err(error) if warnings.is_empty() => Err(error),
        Err(error) => Ok(Answer::Refused { error, warnings }),
    }
}

impl Core {
    /// Answers a request with its complete body.
    pub(super) fn route(
        self: &Arc<Self>,
        info: &RequestInfo,
        body: &[u8],
        effects: &Effects,
    ) -> Result<Answer, StatusError> {
        if info.is_review() && info.verb == Verb::Create {
            return Ok(self.review(info, body));
        }
        let Some(resource) = info.resource else { return other_path(info) };
        let form = negotiate::form(info)?;
        let target = Target {
            resource,
            namespace: info.namespace.clone(),
            name: info.name.clone(),
            subresource: info.subresource.clone(),
        };
        match info.verb {
            Verb::Get => {
                let object = self.read(&target, info, effects.stale)?;
                Ok(Answer::Object { code: 200, resource, object, warnings: Vec::new() })
            }
            Verb::List => {
                let mut listing = self.list(resource, info, effects.stale)?;
                if let Some(most) = effects.short {
                    listing.objects.truncate(most);
                    (listing.next, listing.remaining) = (None, None);
                }
                Ok(Answer::List(listing))
            }
            Verb::Watch => Ok(Answer::Watch(self.watch(resource, info, form, effects)?)),
            Verb::Create if info.name.is_empty() => {
                let mut options = write_options(info)?;
                let value = decode_body(info, body, resource.kind)?;
                let created = self.create(resource, &info.namespace, value, &mut options);
                written(created.map(|object| (201, object)), resource, options)
            }
            Verb::Update if !info.name.is_empty() => {
                let mut options = write_options(info)?;
                let value = decode_body(info, body, resource.kind)?;
                let updated = self.update(&target, value, &mut options);
                let code = |created| if created { 201 } else { 200 };
                written(updated.map(|(it, created)| (code(created), it)), resource, options)
            }
            Verb::Patch if !info.name.is_empty() => {
                let mut options = write_options(info)?;
                let patch = Patch::decode(patch_kind(info)?, body)?;
                let patched = self.patch(&target, &patch, &mut options);
                written(patched.map(|object| (200, object)), resource, options)
            }
            Verb::Delete if info.subresource.is_empty() => {
                self.answer_delete(&target, info, body, form)
            }
            Verb::DeleteCollection => {
                let (_, dry_run) = delete_options(info, body)?;
                Ok(Answer::List(self.delete_collection(resource, info, dry_run)?))
            }
            _ => Err(StatusError::method_not_allowed()),
        }
    }

    /// Grants every right, except those that a fault answers with 403.
    fn review(&self, info: &RequestInfo, body: &[u8]) -> Answer {
        // A body in an unsupported encoding does not name a right.
        let mut review = decode_body(info, body, "SelfSubjectAccessReview").unwrap_or_else(|_| {
            json!({ "kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "metadata": {},
                "spec": {} })
        });
        let text =
            |part: &str| review["spec"]["resourceAttributes"][part].as_str().unwrap_or_default();
        let denied = self.faults.forbids(&Asked {
            verb: text("verb"),
            resource: text("resource"),
            subresource: text("subresource"),
            name: text("name"),
            user_agent: &info.user_agent,
        });
        review["metadata"] = json!({});
        review["status"] = json!({ "allowed": !denied });
        Answer::Value { code: 201, value: review, media: "application/json" }
    }

    fn answer_delete(
        &self,
        target: &Target,
        info: &RequestInfo,
        body: &[u8],
        _form: Form,
    ) -> Result<Answer, StatusError> {
        let (preconditions, dry_run) = delete_options(info, body)?;
        let resource = target.resource;
        let object = match self.delete(target, &preconditions, dry_run)? {
            Deleted::Waiting(object) => object,
            Deleted::Gone(object) if resource.returns_deleted => object,
            Deleted::Gone(object) => {
                let mut details =
                    json!({ "name": target.name, "kind": resource.plural, "uid": object.uid });
                if !resource.group.is_empty() {
                    details["group"] = json!(resource.group);
                }
                return Ok(Answer::json(json!({
                    "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
                })));
            }
        };
        Ok(Answer::Object { code: 200, resource, object, warnings: Vec::new() })
    }
}

fn write_options(info: &RequestInfo) -> Result<WriteOptions, StatusError> {
    let validation = match info.query.get("fieldValidation") {
        "" | "Warn" => FieldValidation::Warn,
        "Ignore" => FieldValidation::Ignore,
        "Strict" => FieldValidation::Strict,
        other => {
            return Err(StatusError::bad_request(format!(
                "fieldValidation {other:?} is not supported"
            )));
        }
    };
    Ok(WriteOptions {
        dry_run: dry_run(info.query.get("dryRun"))?,
        validation,
        warnings: Vec::new(),
    })
}

fn dry_run(value: &str) -> Result<bool, StatusError> {
    match value {
        "" => Ok(false),
        "All" => Ok(true),
        other => Err(StatusError::bad_request(format!(
            "dryRun {other:?} is not supported; the only value is All"
        ))),
    }
}

fn patch_kind(info: &RequestInfo) -> Result<PatchKind, StatusError> {
    match info.header(header::CONTENT_TYPE).split(';').next().unwrap_or_default().trim() {
        "application/merge-patch+json" => Ok(PatchKind::Merge),
        "application/strategic-merge-patch+json" => Ok(PatchKind::Strategic),
        "application/json-patch+json" => Ok(PatchKind::Json),
        media if media.starts_with("application/apply-patch") => {
            Err(StatusError::unsupported_media_type(
                "server-side apply is not part of this simulated API server; use a JSON, merge or strategic merge patch",
            ))
        }
        _ => Err(StatusError::unsupported_media_type("415: Unsupported Media Type")
            .with_details(json!({}))),
    }
}

fn delete_options(info: &RequestInfo, body: &[u8]) -> Result<(Preconditions, bool), StatusError> {
    let options =
        if body.is_empty() { Value::Null } else { decode_body(info, body, "DeleteOptions")? };
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let wanted = &options["preconditions"];
    let preconditions = Preconditions {
        uid: text(&wanted["uid"]),
        resource_version: text(&wanted["resourceVersion"]),
    };
    let asked = options["dryRun"]
        .get(0)
        .and_then(Value::as_str)
        .unwrap_or_else(|| info.query.get("dryRun"));
    Ok((preconditions, dry_run(asked)?))
}

/// Returns all paths other than stored resources.
fn other_path(info: &RequestInfo) -> Result<Answer, StatusError> {
    let path = info.path.trim_end_matches('/');
    if info.verb != Verb::Get {
        return Err(StatusError::no_such_path());
    }
    match path {
        "/healthz" | "/livez" | "/readyz" | "/livez/ping" | "/readyz/ping" => {
            let name = path.trim_start_matches('/').split('/').next().unwrap_or_default();
            let verbose = info.query.has("verbose");
            let text = if verbose {
                format!("[+]ping ok\n{name} check passed\n")
            } else {
                "ok".to_owned()
            };
            Ok(Answer::Text { code: 200, text })
        }
        "/openapi/v2" => Ok(openapi::v2(info.header(header::ACCEPT))),
        _ => discovery::answer(path, negotiate::form(info)?)
            .or_else(|| openapi::v3(path).map(Answer::json))
            .map_or_else(|| missing(path), Ok),
    }
}

fn missing(path: &str) -> Result<Answer, StatusError> {
    let resourceful = path.starts_with("/api/") || path.matches('/').count() > 3;
    if resourceful {
        return Err(StatusError::no_such_path());
    }
    Ok(Answer::Text { code: 404, text: "404 page not found\n".to_owned() })
}
