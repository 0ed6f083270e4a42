//! OpenStack: settings and names of its provider.
//!
//! The settings are one file, `cloud.conf`, as OpenStack's controllers have always had
//! it; [`options`] is the table of all of them.

#[cfg_attr(not(test), expect(dead_code, reason = "read by the client and the factory"))]
mod config;
#[cfg_attr(not(test), expect(dead_code, reason = "used by the lookup of instances"))]
mod ids;

pub use config::options;
