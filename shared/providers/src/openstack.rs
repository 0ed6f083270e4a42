//! OpenStack: Nova's servers as a cluster's machines.
//!
//! ```text
//! cloud.conf -> config -> session (token, catalog) -> client -> nova, neutron -> describe -> instances
//!                  discovery (endpoints) -^              |
//!                                                        +-> wire: gate, transport, fault, metrics
//! ```
//!
//! Every request, those for tokens and versions included, goes over one
//! [`client::Wire`]. `cloud` holds what is in use, and `reload` replaces it when a file
//! changes.

mod addresses;
mod client;
mod cloud;
mod config;
mod describe;
mod discovery;
mod factory;
mod fault;
mod ids;
mod instances;
mod metrics;
mod neutron;
mod nova;
mod page;
mod reload;
#[cfg(test)]
mod scripted;
mod session;
mod single_flight;
mod text;
mod transport;

#[cfg(test)]
mod tests;

pub use self::{config::reference, factory::OpenStackFactory};

/// The provider's name for `--cloud-provider`, and the scheme of its provider IDs.
pub const NAME: &str = "openstack";
