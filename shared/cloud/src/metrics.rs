//! How a provider shows metrics of its own.

use prometheus_client::registry::Registry;

/// The registry of the process, as far as a provider needs it.
///
/// What every cloud has in common is measured at the [`crate::CallGate`]; here goes
/// what only one provider knows, under the names that its users' dashboards have.
pub trait MetricsSink: Send + Sync {
    /// Calls `add` once with the registry, which may be called away from other work:
    /// `add` registers and does nothing else.
    fn add(&self, add: &mut dyn FnMut(&mut Registry));
}

/// Nobody looks, for tests and tools.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoMetrics;

impl MetricsSink for NoMetrics {
    fn add(&self, _: &mut dyn FnMut(&mut Registry)) {}
}
