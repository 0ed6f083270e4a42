//! What an event is about.

/// What an event is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ObjectRef {
    /// For instance `v1`.
    pub api_version: &'static str,
    /// For instance `Node`.
    pub kind: &'static str,
    /// `None` for objects of the whole cluster; their events go to `default`.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// The version that was looked at.
    pub resource_version: String,
}

impl ObjectRef {
    /// Its name, with the namespace and a slash before it if it has one.
    pub fn key(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{namespace}/{}", self.name),
            None => self.name.clone(),
        }
    }
}
