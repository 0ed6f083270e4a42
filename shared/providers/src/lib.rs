//! The clouds that Quartet's programs are built with.

pub mod external;

use ccm_cloud::ProviderRegistry;

/// All providers of this build, by name.
pub fn registry() -> ProviderRegistry {
    ProviderRegistry::new()
}
