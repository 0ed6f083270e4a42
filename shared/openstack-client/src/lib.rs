//! The client of OpenStack's services: Keystone, Nova, Neutron and Octavia.
//!
//! ```text
//! config -> api (session, requests) -> compute, network, lbaas
//! ```
//!
//! Every request goes through [`api`], including requests for tokens and versions. [`api`] knows
//! nothing of servers, ports and load balancers. [`compute`], [`network`] and [`lbaas`] are
//! requests and answers of Nova, Neutron and Octavia. [`config`] says how a cloud is reached and
//! with which credentials. [`ids`] has the IDs of servers, [`text`] converts text for messages and
//! URLs, and [`metrics`] has the names of the Go provider.

pub mod api;
pub mod compute;
pub mod config;
pub mod ids;
pub mod lbaas;
pub mod metrics;
pub mod network;
#[cfg(any(test, feature = "scripted"))]
#[expect(missing_docs, reason = "for tests")]
pub mod scripted;
pub mod text;
