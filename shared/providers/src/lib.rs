//! The cloud providers that are compiled into Quartet's programs.
//!
//! | name | cloud |
//! |---|---|
//! | `external` | whatever serves [the protocol](external::proto) on a socket: a side-car in any language |
//! | `openstack` | OpenStack, by Keystone, Nova and Neutron |
//!
//! `docs/how-to/write-a-provider.md` shows how to add one.

pub mod external;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
pub mod openstack;
#[cfg(any(test, feature = "fuzz"))]
mod said;

use ccm_cloud::ProviderRegistry;

/// All providers, by their names for `--cloud-provider`.
pub fn registry() -> ProviderRegistry {
    ProviderRegistry::new().with(external::ExternalFactory).with(openstack::OpenStackFactory)
}

/// Compiles and runs the example of the page for authors of providers.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/how-to/write-a-provider.md")]
struct WritingAProvider;
