//! What a program may ask of the API server.
//!
//! What is needed is data, written down next to the code that asks for it. At the start
//! [`Review`] asks the API server which of it is granted. The roles in `manifests/` grant
//! exactly this list; `tests/tests/rights.rs` holds one against the other.

mod review;

use std::{borrow::Cow, fmt};

use serde::Serialize;

pub(crate) use review::{Review, RightsMetrics};

use crate::settings::ElectionSettings;

/// One verb on one resource, as RBAC has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Right {
    /// `get`, `list`, `watch`, `create`, `patch` or `delete`.
    pub verb: &'static str,
    /// The API group; empty for the core.
    pub group: Cow<'static, str>,
    /// The resource, in the plural.
    pub resource: Cow<'static, str>,
    /// Such as `status`; empty for the object itself.
    pub subresource: &'static str,
    /// Empty for resources that are in no namespace, and for all namespaces.
    pub namespace: Cow<'static, str>,
    /// The one object that is concerned; empty for all.
    pub name: Cow<'static, str>,
}

impl Right {
    /// A verb on all objects of a resource of the core group that is in no namespace.
    pub const fn new(verb: &'static str, resource: &'static str) -> Self {
        Self::on_part(verb, resource, "")
    }

    /// The same on a subresource of all of them.
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

    /// The same in one namespace only.
    #[must_use]
    pub fn within(self, namespace: impl Into<Cow<'static, str>>) -> Self {
        Self { namespace: namespace.into(), ..self }
    }
}

/// As a person says it: `patch nodes/status`, `create events in namespace default`.
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

/// All that a program needs whose own rights are these.
pub fn needed(own: Vec<Right>, election: &ElectionSettings) -> Vec<Right> {
    let mut all = own;
    all.extend(of_events());
    if election.enabled {
        all.extend(of_election(election));
    }
    all
}

/// Those of a program's own rights that it needs where it only observes.
pub fn reads(mut own: Vec<Right>) -> Vec<Right> {
    own.retain(|right| matches!(right.verb, "get" | "list" | "watch"));
    own
}

/// Events about what is in no namespace, which are kept in `default`; one that repeats is
/// patched (`ccm_kube::events`).
fn of_events() -> [Right; 2] {
    ["create", "patch"].map(|verb| Right::new(verb, "events").within("default"))
}

/// The Lease by the election library and the standby's watch, and the events about it,
/// which do not repeat ([`leadership`](crate::leadership)).
fn of_election(election: &ElectionSettings) -> Vec<Right> {
    let lease = |verb| Right {
        group: Cow::Borrowed("coordination.k8s.io"),
        name: election.lease.clone().into(),
        ..Right::new(verb, "leases").within(election.namespace.clone())
    };
    let mut all: Vec<Right> = ["get", "list", "watch", "patch"].map(lease).into();
    // What is created has no name yet where rights are looked up.
    all.push(Right { name: Cow::Borrowed(""), ..lease("create") });
    // Those in `default` are in the list anyway.
    if election.namespace != "default" {
        all.push(Right::new("create", "events").within(election.namespace.clone()));
    }
    all
}

#[cfg(test)]
mod tests;
