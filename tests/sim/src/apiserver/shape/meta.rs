//! The metadata of every object.

use super::{Field, Shape, always, opt, ptr};

const OWNER: Shape = Shape::Object(&[
    always("apiVersion", Shape::Text),
    always("kind", Shape::Text),
    always("name", Shape::Text),
    always("uid", Shape::Text),
    ptr("controller", Shape::Bool),
    ptr("blockOwnerDeletion", Shape::Bool),
]);

/// `ObjectMeta`.
pub(in super::super) const OBJECT_META: Shape = Shape::Object(&[
    opt("name", Shape::Text),
    opt("generateName", Shape::Text),
    opt("namespace", Shape::Text),
    opt("selfLink", Shape::Text),
    opt("uid", Shape::Text),
    opt("resourceVersion", Shape::Text),
    opt("generation", Shape::Int),
    opt("creationTimestamp", Shape::Time),
    opt("deletionTimestamp", Shape::Time),
    ptr("deletionGracePeriodSeconds", Shape::Int),
    opt("labels", Shape::MapOf(&Shape::Text)),
    opt("annotations", Shape::MapOf(&Shape::Text)),
    opt("ownerReferences", Shape::Keyed("uid", &OWNER)),
    opt("finalizers", Shape::Set(&Shape::Text)),
    opt("managedFields", Shape::List(&Shape::Any)),
]);

/// The field `metadata`.
pub(in super::super) const METADATA: Field = always("metadata", OBJECT_META);

/// `ObjectReference`.
pub(super) const REFERENCE: Shape = Shape::Object(&[
    opt("kind", Shape::Text),
    opt("namespace", Shape::Text),
    opt("name", Shape::Text),
    opt("uid", Shape::Text),
    opt("apiVersion", Shape::Text),
    opt("resourceVersion", Shape::Text),
    opt("fieldPath", Shape::Text),
]);

/// `Condition` of `meta/v1`, as Services have it.
pub(super) const CONDITION: Shape = Shape::Object(&[
    always("type", Shape::Text),
    always("status", Shape::Text),
    opt("observedGeneration", Shape::Int),
    always("lastTransitionTime", Shape::Time),
    always("reason", Shape::Text),
    always("message", Shape::Text),
]);
