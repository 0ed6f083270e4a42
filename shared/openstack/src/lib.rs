//! OpenStack: Nova's servers as a cluster's machines, Octavia's load balancers, and the extra
//! routes of a Neutron router.
//!
//! ```text
//! cloud.conf -> config -> cloud -> instances, balancers, routes -> ccm-openstack-client
//! ```
//!
//! `instances`, `balancers` and `routes` are the capabilities. `cloud` holds the settings in use,
//! and `reload` replaces credentials when a file changes. The client makes the requests.

mod balancers;
mod cloud;
mod config;
mod factory;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod ids;
mod instances;
mod labels;
mod names_of_settings;
mod reload;
mod resolve;
mod routes;
#[cfg(any(test, feature = "scripted"))]
pub mod scripted;

#[cfg(test)]
mod tests;

pub use self::{config::reference, factory::OpenStackFactory};

/// The provider's name for `--cloud-provider`, and the scheme of its provider IDs.
pub const NAME: &str = "openstack";
