//! `ccm_inventory_*`.

use std::fmt;

use prometheus_client::{collector::Collector, encoding::DescriptorEncoder};

use super::Inventory;
use ccm_runtime::metrics::encode_gauge;

/// Reads the inventory when it is asked.
#[derive(Debug)]
pub(super) struct InventoryCollector(pub(super) Inventory);

impl Collector for InventoryCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let snapshot = self.0.snapshot();
        let mut gauge =
            |name: &str, help: &str, value: f64| encode_gauge(&mut encoder, (name, help), value);
        gauge(
            "ccm_inventory_instances",
            "[ALPHA] Instances of the cloud that are known from the last list and from lookups since.",
            snapshot.len() as f64,
        )?;
        gauge(
            "ccm_inventory_malformed",
            "[ALPHA] Entries of the last list that could not be understood.",
            snapshot.malformed() as f64,
        )?;
        // Before the first list there is no age: the series is missing, not zero.
        let Some(age) = self.0.age() else { return Ok(()) };
        gauge(
            "ccm_inventory_age_seconds",
            "[ALPHA] Time since the last good list of the fleet was asked for; not there before the first.",
            age.as_secs_f64(),
        )
    }
}
