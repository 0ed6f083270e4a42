//! OpenStack: Nova's servers as a cluster's machines, Octavia's load balancers, and the extra
//! routes of a Neutron router.
//!
//! ```text
//! cloud.conf -> config -> cloud -> instances, balancers, routes -> ccm-openstack-client
//! ```
//!
//! The client makes the requests.
//!
//! | module | what it holds |
//! |---|---|
//! | `instances`, `balancers`, `routes` | the capabilities |
//! | `cloud`, `factory`, `reload` | the provider; how it is built from `--cloud-config`; settings and credentials that change while the program runs |
//! | `config`, `resolve`, `names_of_settings` | `cloud.conf`; networks and subnets that it names, looked up at the start and again; names that do not exist |
//! | `ids`, `labels` | the spellings of a provider ID; text from the cloud as the value of a label |

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
