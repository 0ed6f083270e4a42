//! Kubernetes objects as plain values, for plans and policies. This crate has no client;
//! `ccm-kube` reads these objects from the API server and writes them.

mod labels;
mod node;
pub mod node_keys;
mod reference;
mod service;
pub mod service_keys;

pub use labels::Labels;
pub use node::{Address, Condition, Node, OWN_ANNOTATIONS, Taint};
pub use reference::ObjectRef;
pub use service::{
    IngressPort, Service, ServiceCondition, ServiceDetails, ServiceIngress, ServicePort,
};

/// Interned text that many objects share.
pub type Shared = std::sync::Arc<str>;
