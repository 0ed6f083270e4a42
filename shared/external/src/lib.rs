//! The provider contract over gRPC, the client's side.
//!
//! [`ExternalCloud`] makes a process that speaks the protocol look like any other provider. The
//! other side, which serves any implementation of the contract, is the crate `ccm-external-server`.
//! The protocol preserves the promises of the contract: four answers per node, typed errors
//! with the cloud's words, deadlines.
//!
//! The protocol itself is `proto/quartet/cloud/v1/cloud.proto`.
//!
//! | module | what it holds |
//! |---|---|
//! | `client`, `config` | the provider and its factory; the file of `--cloud-config` |
//! | `connection`, `shared`, `description`, `keeper` | the connection; it together with the provider's description of itself, which is kept up to date in the background |
//! | `instances`, `load_balancers`, `routes` | the capabilities over the wire |
//! | `rpc`, `exchange`, `pages`, `halves`, `answers` | one call; a call whose items are answered one by one; the pages of a list; a refused request sent again in halves; answers that are forwarded as they arrive |
//! | `convert`, `status` | the contract's values and errors as messages, and back |
//! | `metered`, `weight` | the memory that an answer may take, reserved before it is read |

#[doc(hidden)]
pub mod answers;
mod client;
mod config;
mod connection;
#[doc(hidden)]
pub mod convert;
mod description;
mod exchange;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod halves;
mod instances;
mod keeper;
mod load_balancers;
mod metered;
mod pages;
mod routes;
mod rpc;
mod shared;
#[doc(hidden)]
pub mod status;
mod weight;

/// The protocol's messages and services, generated from the `.proto` file.
#[expect(
    clippy::pedantic,
    clippy::large_enum_variant,
    clippy::allow_attributes_without_reason,
    reason = "generated code"
)]
pub mod proto {
    tonic::include_proto!("quartet.cloud.v1");
}

pub use client::{ExternalCloud, ExternalFactory};
pub use config::{ExternalConfig, Target, TlsFiles, parse_target};
pub use rpc::TERM;

/// The provider's name for `--cloud-provider`.
pub const NAME: &str = "external";

/// The largest number of items in one call, and of entries on one page; of nodes in one lookup
/// if the provider does not say how many it takes.
pub const MAX_BATCH: usize = 500;

/// The largest number of nodes in one lookup. One call about a whole cluster is one list for a
/// cloud for which that is cheaper.
pub const MAX_LOOKUP: usize = 10_000;

/// The maximum size of an accepted answer, in bytes: a page of 500 instances has about 200 kB,
/// and other servers may send more at once.
const MAX_ANSWER: usize = ccm_net::AnswerMemory::LONGEST;
