//! The cloud providers that are compiled into Quartet's programs.
//!
//! | name | cloud |
//! |---|---|
//! | `external` | a process that serves [the protocol](ccm_external::proto) on a socket: a sidecar in any language |
//! | `openstack` | OpenStack, by Keystone, Nova, Neutron and Octavia |
//!
//! `docs/how-to/write-a-provider.md` shows how to add one.

use ccm_cloud::ProviderRegistry;

/// Returns all providers, by their names for `--cloud-provider`.
pub fn registry() -> ProviderRegistry {
    ProviderRegistry::default()
        .with(ccm_external::ExternalFactory)
        .with(ccm_openstack::OpenStackFactory)
}

/// Compiles and runs the example of the page for authors of providers.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/how-to/write-a-provider.md")]
struct WritingAProvider;
