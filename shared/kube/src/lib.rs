//! Quartet's Kubernetes client: the client stack, lean types, informers and their stores,
//! patches and events.
//!
//! Programs use no type of kube, so that a new major version of kube changes only this crate,
//! `ccm_runtime::leadership` (which builds on kube-leader-election), `ccm_runtime::rights`,
//! `own_policy` and `rivals`, and four modules of `ccm-controller` (`cluster`, `kind`, `reader`,
//! `watch`).
//!
//! | module | what it holds |
//! |---|---|
//! | [`client`] | `ClientConfig` to `Clients`: one client each for work, watches, events and the Lease; the layers of a request |
//! | [`error`] | `ApiError`: every way in which a request can fail, with its retry class |
//! | [`informer`], [`store`] | list and watch of one kind, and whether the watch works; the objects, and which of two versions counts |
//! | [`mod@wire`], `node`, `node_lease`, `service`, `intern`, `rule` | how objects are read: leniently, field by field, with shared strings |
//! | [`mod@write`] | patches and deletions, each with the version and UID that it was decided on |
//! | [`events`] | the event recorder: bounded, folded as client-go does, written by one task |
//! | [`selector`], [`metrics`] | label selectors; `rest_client_*` |

pub mod client;
pub mod error;
pub mod events;
pub mod informer;
mod intern;
pub mod metrics;
mod node;
mod node_lease;
mod rule;
pub mod selector;
mod service;
pub mod store;
pub mod wire;
pub mod write;

pub use error::{ApiError, ApiReason};
