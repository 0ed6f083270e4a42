//! Create, update, patch and delete.
//!
//! Each write reads, computes without a lock, and stores if no other client wrote in
//! between; otherwise it starts again, unless the client gave a resource version.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    Core,
    decode::{WriteOptions, decode, report_unknown, strip_type},
    eventview,
    object::Object,
    patch::Patch,
    registry,
    resources::{self, Resource},
    shape,
    status::{Cause, StatusError},
    validate,
};

const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

/// Namespaces that admission protects from deletion.
const LASTING: [&str; 3] = ["default", "kube-public", "kube-system"];

/// One object, or a part of it.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) resource: &'static Resource,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) subresource: String,
}

impl Target {
    pub(super) fn key(&self) -> String {
        self.resource.key(&self.namespace, &self.name)
    }

    pub(super) fn not_found(&self) -> StatusError {
        StatusError::not_found(self.resource.group, self.resource.plural, &self.name)
    }

    fn conflict(&self, detail: &str) -> StatusError {
        StatusError::conflict(self.resource.group, self.resource.plural, &self.name, detail)
    }

    /// Returns the error of an object with another UID. The UID in the body is a precondition.
    fn other_uid(&self, wanted: &str, found: &str) -> StatusError {
        self.conflict(&format!(
            "StorageError: invalid object, Code: 4, Key: /registry/{}/{}, ResourceVersion: 0, AdditionalErrorMsg: \
             Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}",
            self.resource.plural,
            self.key()
        ))
    }

    fn invalid(&self, causes: &[Cause]) -> StatusError {
        // Events belong to the core group in both views.
        let group = if self.resource.is_events_view() { "" } else { self.resource.group };
        StatusError::invalid(group, self.resource.kind, &self.name, causes)
    }
}

/// The preconditions of a delete.
#[derive(Clone, Debug, Default)]
pub(super) struct Preconditions {
    pub(super) uid: Option<String>,
    pub(super) resource_version: Option<String>,
}

/// The result of a delete.
pub(super) enum Deleted {
    /// The object is gone; this was its last state.
    Gone(Arc<Object>),
    /// The object waits for its finalizers.
    Waiting(Arc<Object>),
}

impl Core {
    /// Creates an object; returns it as stored.
    pub(super) fn create(
        &self,
        resource: &'static Resource,
        namespace: &str,
        body: Value,
        options: &mut WriteOptions,
    ) -> Result<Arc<Object>, StatusError> {
        let mut value = decode(resource, body, options)?;
        self.settle_names(resource, namespace, &mut value)?;
        if value["metadata"]["resourceVersion"].is_string() {
            return Err(StatusError::new(
                500,
                "",
                "resourceVersion should not be set on objects to be created",
            ));
        }
        registry::prepare_create(resource, &mut value, &self.identity, &self.allocator);
        let target = Target {
            resource,
            namespace: namespace.to_owned(),
            name: value["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
            subresource: String::new(),
        };
        let causes = validate::created(resource, &value);
        if !causes.is_empty() {
            return Err(target.invalid(&causes));
        }
        let exists = || StatusError::already_exists(resource.group, resource.plural, &target.name);
        if self.store.get(resource, &target.key()).is_some() {
            return Err(exists());
        }
        if options.dry_run {
            return Ok(Arc::new(Object::new(resource, value, 0)));
        }
        self.store.put(resource, None, value).map_err(|_| exists())
    }

    /// Sets namespace and name of a new object. The namespace must exist.
    fn settle_names(
        &self,
        resource: &Resource,
        namespace: &str,
        value: &mut Value,
    ) -> Result<(), StatusError> {
        check_namespace(resource, namespace, value)?;
        let meta = &mut value["metadata"];
        let empty = meta["name"].as_str().is_none_or(str::is_empty);
        if let (true, Some(prefix)) = (empty, meta["generateName"].as_str()) {
            let name: String = prefix.chars().take(58).collect();
            meta["name"] = Value::from(format!("{name}{}", self.identity.suffix()));
        }
        if !resource.namespaced {
            return Ok(());
        }
        let Some(namespaces) = resources::by_plural("namespaces") else { return Ok(()) };
        let Some(home) = self.store.get(namespaces, namespace) else {
            return Err(StatusError::not_found("", "namespaces", namespace));
        };
        if home.value()["metadata"]["deletionTimestamp"].is_null() {
            return Ok(());
        }
        let name = value["metadata"]["name"].as_str().unwrap_or_default();
        let detail = format!(
            "unable to create new content in namespace {namespace} because it is being terminated"
        );
        Err(StatusError::forbidden(resource.group, resource.plural, name, &detail))
    }

    /// Replaces an object. Returns it as stored, and true if it was created.
    pub(super) fn update(
        &self,
        target: &Target,
        body: Value,
        options: &mut WriteOptions,
    ) -> Result<(Arc<Object>, bool), StatusError> {
        let value = decode(target.resource, body, options)?;
        check_names(target, &value)?;
        loop {
            let Some(current) = self.store.get(target.resource, &target.key()) else {
                return self.update_missing(target, value, options);
            };
            let meta = &value["metadata"];
            if let Some(uid) = meta["uid"].as_str()
                && uid != current.uid
            {
                return Err(target.other_uid(uid, &current.uid));
            }
            if meta["resourceVersion"].is_null() && !target.resource.unconditional_update {
                let cause = Cause::invalid(
                    "metadata.resourceVersion",
                    &json!(0),
                    "must be specified for an update",
                );
                let Resource { group, plural, .. } = target.resource;
                return Err(StatusError::invalid(group, plural, &target.name, &[cause]));
            }
            if let Some(object) = self.replace(target, &current, value.clone(), options)? {
                return Ok((object, false));
            }
        }
    }

    fn update_missing(
        &self,
        target: &Target,
        value: Value,
        options: &mut WriteOptions,
    ) -> Result<(Arc<Object>, bool), StatusError> {
        if !target.resource.create_on_update || !target.subresource.is_empty() {
            return Err(target.not_found());
        }
        if let Some(uid) = value["metadata"]["uid"].as_str() {
            return Err(target.other_uid(uid, ""));
        }
        // The real server creates the object despite a version in the body.
        let mut value = value;
        if let Some(meta) = value["metadata"].as_object_mut() {
            meta.remove("resourceVersion");
        }
        let object = self.create(target.resource, &target.namespace, value, options)?;
        Ok((object, true))
    }

    /// Applies a patch, and returns the object as stored.
    pub(super) fn patch(
        &self,
        target: &Target,
        patch: &Patch,
        options: &mut WriteOptions,
    ) -> Result<Arc<Object>, StatusError> {
        let resource = target.resource;
        loop {
            let current =
                self.store.get(resource, &target.key()).ok_or_else(|| target.not_found())?;
            let mut value = current.value();
            if resource.is_events_view() {
                value = eventview::shown(value);
            }
            let mut patched = patch.apply(value, &resource.shape)?;
            if resource.is_events_view() {
                patched = eventview::stored(patched);
            }
            strip_type(&mut patched);
            let mut unknown = Vec::new();
            let shown = patch.shown(&patched);
            shape::normalise(&mut patched, &resource.shape, &mut unknown)
                .map_err(|error| unfit_patch(&shown, &error.to_string()))?;
            report_unknown(&unknown, options).map_err(|error| unfit_patch(&shown, &error))?;
            check_names(target, &patched)?;
            if let Some(object) = self.replace(target, &current, patched, options)? {
                return Ok(object);
            }
        }
    }

    /// Stores `new` in place of `current`. `None` if another client was faster.
    fn replace(
        &self,
        target: &Target,
        current: &Arc<Object>,
        mut new: Value,
        options: &WriteOptions,
    ) -> Result<Option<Arc<Object>>, StatusError> {
        let resource = target.resource;
        let version = new["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        if !version.is_empty() && version != "0" && version != current.revision.to_string() {
            return Err(target.conflict(MODIFIED));
        }
        let old = current.value();
        registry::prepare_update(resource, &target.subresource, &old, &mut new, &self.allocator);
        let causes = validate::updated(resource, &old, &new);
        if !causes.is_empty() {
            return Err(target.invalid(&causes));
        }
        let released = !new["metadata"]["deletionTimestamp"].is_null()
            && new["metadata"]["finalizers"].is_null();
        if options.dry_run || (new == old && !released) {
            let unchanged = Object::new(resource, new, current.revision);
            return Ok(Some(Arc::new(unchanged)));
        }
        if released {
            let last = Arc::new(Object::new(resource, new, current.revision));
            return Ok(self
                .store
                .remove(resource, &current.key, current.revision)
                .ok()
                .map(|_| last));
        }
        Ok(self.store.put(resource, Some(current.revision), new).ok())
    }

    /// Deletes an object, or marks it if it has finalizers.
    pub(super) fn delete(
        &self,
        target: &Target,
        preconditions: &Preconditions,
        dry_run: bool,
    ) -> Result<Deleted, StatusError> {
        let resource = target.resource;
        if resource.slot == resources::NAMESPACES && LASTING.contains(&target.name.as_str()) {
            let detail = "this namespace may not be deleted";
            return Err(StatusError::forbidden("", resource.plural, &target.name, detail));
        }
        loop {
            let current =
                self.store.get(resource, &target.key()).ok_or_else(|| target.not_found())?;
            check_preconditions(target, &current, preconditions)?;
            let mut value = current.value();
            let held = value["metadata"]["finalizers"].is_array();
            if dry_run {
                return Ok(if held { Deleted::Waiting(current) } else { Deleted::Gone(current) });
            }
            let marked = !value["metadata"]["deletionTimestamp"].is_null();
            if held && marked {
                return Ok(Deleted::Waiting(current));
            }
            if held || resource.slot == resources::NAMESPACES {
                value["metadata"]["deletionTimestamp"] = Value::from(self.identity.now_text());
                if resource.slot == resources::NAMESPACES {
                    value["status"]["phase"] = json!("Terminating");
                } else {
                    value["metadata"]["deletionGracePeriodSeconds"] = json!(0);
                }
                let Ok(object) = self.store.put(resource, Some(current.revision), value) else {
                    continue;
                };
                if resource.slot == resources::NAMESPACES && !held {
                    self.empty_namespace(resource, &object);
                }
                return Ok(Deleted::Waiting(object));
            }
            if let Ok(gone) = self.store.remove(resource, &current.key, current.revision) {
                return Ok(Deleted::Gone(gone));
            }
        }
    }

    /// Acts as the namespace controller: empties a namespace in deletion, whatever finalizers
    /// its objects have, and then removes it.
    fn empty_namespace(&self, resource: &Resource, namespace: &Object) {
        for inside in resources::RESOURCES.iter().filter(|it| it.namespaced && !it.is_events_view())
        {
            let prefix = format!("{}/", namespace.name);
            let range = super::store::Range { prefix: &prefix, after: None, limit: 0 };
            let Ok(page) = self.store.page(inside, None, &range, |_| true) else { continue };
            for object in page.objects {
                // Objects that were written in between are deleted with the namespace.
                drop(self.store.remove(inside, &object.key, object.revision));
            }
        }
        drop(self.store.remove(resource, &namespace.key, namespace.revision));
    }
}

/// Returns the error for a patch whose result does not fit the type.
fn unfit_patch(shown: &str, error: &str) -> StatusError {
    let cause = Cause::invalid("patch", &Value::from(shown), error);
    let mut refusal = StatusError::invalid("", "", "", &[cause]);
    if let Some(details) = refusal.details.as_object_mut() {
        details.retain(|name, _| name == "causes");
    }
    refusal
}

fn check_namespace(
    resource: &Resource,
    namespace: &str,
    value: &mut Value,
) -> Result<(), StatusError> {
    let given = value["metadata"]["namespace"].as_str().unwrap_or_default();
    if !given.is_empty() && (given != namespace || !resource.namespaced) {
        let message =
            "the namespace of the provided object does not match the namespace sent on the request";
        return Err(StatusError::bad_request(message));
    }
    if resource.namespaced {
        value["metadata"]["namespace"] = Value::from(namespace);
    }
    Ok(())
}

fn check_names(target: &Target, value: &Value) -> Result<(), StatusError> {
    let name = value["metadata"]["name"].as_str().unwrap_or_default();
    if name.is_empty() {
        let message = format!(
            "the name of the object ({} based on URL) was undeterminable: name must be provided",
            target.name
        );
        return Err(StatusError::bad_request(message));
    }
    if name != target.name {
        let message = format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            target.name
        );
        return Err(StatusError::bad_request(message));
    }
    let namespace = value["metadata"]["namespace"].as_str().unwrap_or_default();
    if !namespace.is_empty() && namespace != target.namespace {
        let message =
            "the namespace of the provided object does not match the namespace sent on the request";
        return Err(StatusError::bad_request(message));
    }
    Ok(())
}

fn check_preconditions(
    target: &Target,
    current: &Object,
    wanted: &Preconditions,
) -> Result<(), StatusError> {
    let refuse = |detail: String| {
        let Resource { group, kind, .. } = target.resource;
        Err(StatusError::conflict(group, kind, &target.name, &detail))
    };
    if let Some(uid) = wanted.uid.as_ref().filter(|uid| **uid != current.uid) {
        return refuse(format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({}). \
             The object might have been deleted and then recreated",
            current.uid
        ));
    }
    let version = current.revision.to_string();
    if let Some(wanted) = wanted.resource_version.as_ref().filter(|wanted| **wanted != version) {
        return refuse(format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({version}). \
             The object might have been modified"
        ));
    }
    Ok(())
}
