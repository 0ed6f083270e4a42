//! Kubernetes objects as plain values: what plans and policies may know of Kubernetes.
//! There is no client here; `ccm-kube` reads these objects from the API server and writes
//! them.

mod node;
pub mod node_keys;
mod reference;

pub use node::{Address, Condition, Node, OWN_ANNOTATIONS, Shared, Taint};
pub use reference::ObjectRef;
