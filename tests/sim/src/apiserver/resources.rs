//! The table of stored resources: one line per resource, as in discovery.

use super::shape::{Shape, core};

/// A resource with its rules.
#[derive(Debug)]
pub(super) struct Resource {
    /// Its table in the store. Two views of one resource share it.
    pub(super) slot: usize,
    pub(super) group: &'static str,
    pub(super) version: &'static str,
    pub(super) plural: &'static str,
    pub(super) kind: &'static str,
    pub(super) short_names: &'static [&'static str],
    pub(super) namespaced: bool,
    pub(super) subresources: &'static [&'static str],
    pub(super) shape: Shape,
    /// Field selectors beyond `metadata.name` and `metadata.namespace`.
    pub(super) fields: &'static [&'static str],
    /// True if an immediate DELETE returns the object instead of a `Status`.
    pub(super) returns_deleted: bool,
    /// True if PUT may omit the resourceVersion.
    pub(super) unconditional_update: bool,
    /// True if PUT creates a missing object.
    pub(super) create_on_update: bool,
}

/// The number of tables in the store.
pub(super) const SLOTS: usize = 13;

pub(super) const NODES: usize = 0;
pub(super) const EVENTS: usize = 1;
pub(super) const LEASES: usize = 2;
pub(super) const SERVICES: usize = 3;
pub(super) const NAMESPACES: usize = 4;
pub(super) const CONFIG_MAPS: usize = 5;
pub(super) const SECRETS: usize = 6;
pub(super) const SERVICE_ACCOUNTS: usize = 7;

const fn core(
    slot: usize,
    plural: &'static str,
    kind: &'static str,
    short: &'static [&'static str],
    shape: Shape,
) -> Resource {
    Resource {
        slot,
        group: "",
        version: "v1",
        plural,
        kind,
        short_names: short,
        namespaced: true,
        subresources: &[],
        shape,
        fields: &[],
        returns_deleted: false,
        unconditional_update: true,
        create_on_update: false,
    }
}

const EVENT_FIELDS: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
];

/// All resources, by group and name.
pub(super) static RESOURCES: &[Resource] = &[
    core(CONFIG_MAPS, "configmaps", "ConfigMap", &["cm"], core::CONFIG_MAP),
    core(8, "endpoints", "Endpoints", &["ep"], core::OPEN),
    Resource {
        fields: EVENT_FIELDS,
        create_on_update: true,
        ..core(EVENTS, "events", "Event", &["ev"], core::EVENT)
    },
    core(9, "limitranges", "LimitRange", &["limits"], core::OPEN),
    Resource {
        namespaced: false,
        subresources: &["finalize", "status"],
        fields: &["status.phase"],
        returns_deleted: true,
        ..core(NAMESPACES, "namespaces", "Namespace", &["ns"], core::NAMESPACE)
    },
    Resource {
        namespaced: false,
        subresources: &["status"],
        fields: &["spec.unschedulable"],
        ..core(NODES, "nodes", "Node", &["no"], core::NODE)
    },
    Resource {
        subresources: &["status"],
        fields: &["spec.nodeName", "status.phase"],
        returns_deleted: true,
        ..core(10, "pods", "Pod", &["po"], core::OPEN)
    },
    Resource {
        subresources: &["status"],
        ..core(11, "resourcequotas", "ResourceQuota", &["quota"], core::OPEN)
    },
    Resource { fields: &["type"], ..core(SECRETS, "secrets", "Secret", &[], core::SECRET) },
    Resource {
        returns_deleted: true,
        ..core(
            SERVICE_ACCOUNTS,
            "serviceaccounts",
            "ServiceAccount",
            &["sa"],
            core::SERVICE_ACCOUNT,
        )
    },
    Resource {
        subresources: &["status"],
        fields: &["spec.clusterIP", "spec.type"],
        returns_deleted: true,
        ..core(SERVICES, "services", "Service", &["svc"], core::SERVICE)
    },
    Resource {
        group: "coordination.k8s.io",
        unconditional_update: false,
        create_on_update: true,
        ..core(LEASES, "leases", "Lease", &[], core::LEASE)
    },
    Resource {
        group: "discovery.k8s.io",
        ..core(12, "endpointslices", "EndpointSlice", &[], core::OPEN)
    },
    Resource {
        group: "events.k8s.io",
        fields: EVENT_FIELDS,
        create_on_update: true,
        ..core(EVENTS, "events", "Event", &["ev"], core::EVENT)
    },
];

impl Resource {
    /// Returns `v1`, or `coordination.k8s.io/v1`.
    pub(super) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Returns the lower-case kind: clients print it and accept it like the plural.
    pub(super) fn singular(&self) -> String {
        self.kind.to_ascii_lowercase()
    }

    /// Returns true if this is the `events.k8s.io` view of events, which are stored as core/v1.
    pub(super) fn is_events_view(&self) -> bool {
        self.group == "events.k8s.io"
    }

    pub(super) fn has_status(&self) -> bool {
        self.subresources.contains(&"status")
    }

    /// Returns `NAMESPACE/NAME`, or `NAME`: the key within the table.
    pub(super) fn key(&self, namespace: &str, name: &str) -> String {
        if self.namespaced { format!("{namespace}/{name}") } else { name.to_owned() }
    }
}

/// Finds a resource by group, version and plural name.
pub(super) fn find(group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
    RESOURCES.iter().find(|resource| {
        resource.group == group && resource.version == version && resource.plural == plural
    })
}

/// Finds a resource by its plural name alone; of two views, the stored one.
pub(super) fn by_plural(plural: &str) -> Option<&'static Resource> {
    RESOURCES.iter().find(|resource| resource.plural == plural && !resource.is_events_view())
}

/// Finds a resource by `apiVersion` and `kind`.
pub(super) fn by_kind(api_version: &str, kind: &str) -> Option<&'static Resource> {
    RESOURCES.iter().find(|resource| resource.kind == kind && resource.api_version() == api_version)
}

/// Returns groups and versions with resources, each once, in order.
pub(super) fn group_versions() -> Vec<(&'static str, &'static str)> {
    let mut versions: Vec<_> =
        RESOURCES.iter().map(|resource| (resource.group, resource.version)).collect();
    versions.dedup();
    versions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_holds_one_kind_of_object() {
        for slot in 0..SLOTS {
            let mut kinds: Vec<_> =
                RESOURCES.iter().filter(|it| it.slot == slot).map(|it| it.kind).collect();
            kinds.dedup();
            assert_eq!(kinds.len(), 1, "slot {slot}: {kinds:?}");
        }
        assert!(RESOURCES.iter().all(|resource| resource.slot < SLOTS));
    }

    #[test]
    fn lookups() {
        assert_eq!(find("coordination.k8s.io", "v1", "leases").map(|it| it.kind), Some("Lease"));
        assert!(find("", "v1", "leases").is_none());
        assert_eq!(by_kind("events.k8s.io/v1", "Event").map(|it| it.group), Some("events.k8s.io"));
        assert_eq!(by_plural("events").map(|it| it.group), Some(""));
    }
}
