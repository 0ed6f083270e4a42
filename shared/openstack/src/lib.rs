//! OpenStack: Nova's servers as a cluster's machines, Octavia's load balancers, and the extra
//! routes of a Neutron router.
//!
//! ```text
//! cloud.conf -> config -> api (session, requests) -> compute, network -> instances
//!                                                 -> lbaas, network   -> balancers
//!                                                 -> network          -> routes
//! ```
//!
//! Every request, those for tokens and versions included, goes through [`api`], which knows
//! nothing of servers, ports and load balancers. `compute`, `network` and `lbaas` are requests and
//! answers of Nova, Neutron and Octavia; `instances`, `balancers` and `routes` are the capabilities.
//! `cloud` holds what is in use, and `reload` replaces credentials when a file changes.

mod api;
mod balancers;
mod cloud;
mod compute;
mod config;
mod factory;
#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod fuzz;
mod ids;
mod instances;
mod lbaas;
mod metrics;
mod names_of_settings;
mod network;
mod reload;
mod routes;
#[cfg(test)]
mod scripted;
mod text;

#[cfg(test)]
mod tests;

pub use self::{config::reference, factory::OpenStackFactory};

/// The provider's name for `--cloud-provider`, and the scheme of its provider IDs.
pub const NAME: &str = "openstack";
