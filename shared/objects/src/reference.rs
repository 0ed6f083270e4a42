//! References to objects.

/// A reference to the object that an event or a report is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ObjectRef {
    /// For instance `v1`.
    pub api_version: &'static str,
    /// For instance `Node`.
    pub kind: &'static str,
    /// `None` for cluster-scoped objects; their events go to `default`.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Its resource version at that time.
    pub resource_version: String,
}

impl ObjectRef {
    /// Returns a Lease, without its UID and version: events about an election name it this way.
    pub fn lease(namespace: &str, name: &str) -> Self {
        Self {
            api_version: "coordination.k8s.io/v1",
            kind: "Lease",
            namespace: Some(namespace.to_owned()),
            name: name.to_owned(),
            ..Self::default()
        }
    }

    /// Returns its name, prefixed with namespace and slash if it has a namespace.
    pub fn key(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{namespace}/{}", self.name),
            None => self.name.clone(),
        }
    }
}
