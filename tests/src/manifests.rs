//! The Kubernetes objects of `manifests/`: found, rendered by the real kubectl, and checked
//! as rendered, by the programs that they start, and by a real API server.

pub mod checks;
pub mod kubectl;
pub mod objects;
pub mod program;
pub mod tree;

pub use kubectl::Kubectl;
pub use objects::Objects;
pub use tree::{Choice, Tree};
