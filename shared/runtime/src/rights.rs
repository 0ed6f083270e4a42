//! The API server permissions of a program.
//!
//! Permissions are data, declared next to the code that uses them. At startup [`Review`] asks
//! the API server which of them are granted. The roles in `manifests/` grant exactly this list;
//! a test of the suite (`tests/src/rights`) compares both.

mod review;

use std::{borrow::Cow, fmt};

use serde::Serialize;

pub(crate) use review::{Review, RightsMetrics};

use crate::{rivals, settings::ElectionSettings};

/// The API group of [`Right::mark`].
const GUARD: &str = "quartet.dev";
/// The API group of admission policies.
pub(crate) const ADMISSION: &str = "admissionregistration.k8s.io";
/// The resource of the policy of the program's account.
pub(crate) const POLICIES: &str = "validatingadmissionpolicies";
/// The same of its binding.
pub(crate) const POLICY_BINDINGS: &str = "validatingadmissionpolicybindings";

/// One verb on one resource, as in RBAC.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Right {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or `mark`.
    pub verb: &'static str,
    /// The API group; empty for the core.
    pub group: Cow<'static, str>,
    /// The resource, in the plural.
    pub resource: Cow<'static, str>,
    /// For instance `status`; empty for the object itself.
    pub subresource: &'static str,
    /// Empty for cluster-scoped resources, and for all namespaces.
    pub namespace: Cow<'static, str>,
    /// The name of a single object; empty for all.
    pub name: Cow<'static, str>,
}

impl Right {
    /// Creates the permission for a verb on all objects of a cluster-scoped resource of the core
    /// group.
    pub const fn new(verb: &'static str, resource: &'static str) -> Self {
        Self::on_part(verb, resource, "")
    }

    /// Returns a verb on a subresource of all of them.
    pub const fn on_part(
        verb: &'static str,
        resource: &'static str,
        subresource: &'static str,
    ) -> Self {
        Self {
            verb,
            group: Cow::Borrowed(""),
            resource: Cow::Borrowed(resource),
            subresource,
            namespace: Cow::Borrowed(""),
            name: Cow::Borrowed(""),
        }
    }

    /// Returns the permission to set, change or remove annotations and labels `quartet.dev/...` of
    /// these objects. No API serves it: the policy in `manifests/guard` asks for it.
    pub fn mark(resource: &'static str) -> Self {
        Self { group: Cow::Borrowed(GUARD), ..Self::new("mark", resource) }
    }

    /// Returns the same permission in one namespace only.
    #[must_use]
    pub fn within(self, namespace: impl Into<Cow<'static, str>>) -> Self {
        Self { namespace: namespace.into(), ..self }
    }
}

/// In words: `patch nodes/status`, `create events in namespace default`.
impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        for (sign, part) in [("/", self.subresource), (".", &*self.group), (" ", &*self.name)] {
            if !part.is_empty() {
                write!(f, "{sign}{part}")?;
            }
        }
        if !self.namespace.is_empty() {
            write!(f, " in namespace {}", self.namespace)?;
        }
        Ok(())
    }
}

/// Returns all permissions of a program with these own permissions. A program that may create
/// events in all namespaces needs no permission for single ones, and a program that may list all
/// Leases needs no permission to list its own.
pub fn needed(own: Vec<Right>, election: &ElectionSettings) -> Vec<Right> {
    let in_all_namespaces = own.contains(&Right::new("create", "events"));
    let mut all = own;
    all.extend(of_events());
    all.push(of_rivals());
    if election.enabled {
        all.extend(of_election(election));
    }
    all.retain(|right| {
        let is_single_list = !right.name.is_empty()
            && Right { name: Cow::Borrowed(""), ..right.clone() } == of_rivals();
        let is_single_event =
            in_all_namespaces && right.resource == "events" && !right.namespace.is_empty();
        !(is_single_list || is_single_event)
    });
    all
}

/// Returns the permissions that a program can do without. With them it sees if the policy of its
/// account is installed. They are not reviewed, since [`own_policy`](crate::own_policy) says when
/// they are missing.
pub(crate) fn optional(program: &'static str) -> [Right; 2] {
    [POLICIES, POLICY_BINDINGS].map(|resource| Right {
        group: Cow::Borrowed(ADMISSION),
        name: Cow::Borrowed(program),
        ..Right::new("get", resource)
    })
}

/// Returns the permissions that an observer needs.
pub fn reads(mut own: Vec<Right>) -> Vec<Right> {
    own.push(of_rivals());
    own.retain(|right| matches!(right.verb, "get" | "list" | "watch"));
    own
}

/// Returns the permissions for events about cluster-scoped objects, which are stored in `default`;
/// a repeated event is patched (`ccm_kube::events`).
fn of_events() -> [Right; 2] {
    ["create", "patch"].map(|verb| Right::new(verb, "events").within("default"))
}

/// Returns the list of Leases that shows other cloud controllers.
fn of_rivals() -> Right {
    let group = Cow::Borrowed("coordination.k8s.io");
    Right { group, ..Right::new("list", "leases").within(rivals::NAMESPACE) }
}

/// Returns the permissions for the Lease, which the election library and the standby's watch need,
/// and for its events, which do not repeat ([`leadership`](crate::leadership)).
fn of_election(election: &ElectionSettings) -> Vec<Right> {
    let lease = |verb| Right {
        group: Cow::Borrowed("coordination.k8s.io"),
        name: election.lease.clone().into(),
        ..Right::new(verb, "leases").within(election.namespace.clone())
    };
    let mut all: Vec<Right> = ["get", "list", "watch", "update"].map(lease).into();
    // The record for the next leader, and the identity of the cloud.
    all.push(Right { group: Cow::Borrowed(GUARD), ..lease("mark") });
    // RBAC cannot restrict `create` by object name.
    all.push(Right { name: Cow::Borrowed(""), ..lease("create") });
    // The permissions for `default` are in the list already.
    if election.namespace != "default" {
        all.push(Right::new("create", "events").within(election.namespace.clone()));
    }
    all
}

#[cfg(test)]
mod tests;
