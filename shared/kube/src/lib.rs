//! Everything in Quartet that speaks Kubernetes: the client stack, lean types,
//! informers and their stores, patches and events.
//!
//! Controllers see no kube type but [`kube::Client`], so that a new major version of
//! kube is a change of this crate and of `ccm_runtime::leadership`, which stands on
//! kube-leader-election.

pub mod client;
pub mod error;
pub mod events;
pub mod informer;
pub mod metrics;
pub mod node;
pub mod selector;
pub mod store;
pub mod write;

pub use error::{ApiError, ApiReason};
