//! OpenStack: Nova's servers as a cluster's machines, Octavia's load balancers for its Services,
//! and the extra routes of a Neutron router for its pods.
//!
//! ```text
//! cloud.conf -> config -> api (session, requests) -+-> compute (Nova) ----+-> instances
//!                                                  +-> network (Neutron) -+-> routes
//!                                                  +-> lbaas (Octavia) ---+-> balancers
//! ```
//!
//! Every request, those for tokens and versions included, goes through [`api`], which knows
//! nothing of what it is about. `compute`, `network` and `lbaas` are the requests of one service
//! each, typed; `instances`, `routes` and `balancers` the capabilities of the contract, which decide.
//! `cloud` holds what is in use, and `reload` replaces credentials when a file changes.

mod api;
mod balancers;
mod cloud;
mod compute;
mod config;
mod factory;
mod ids;
mod instances;
mod lbaas;
mod metrics;
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
