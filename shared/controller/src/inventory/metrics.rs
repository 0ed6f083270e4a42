//! `ccm_inventory_*`.

use ccm_metrics::computed;

use super::Inventory;

computed! {
    pub(super) static INVENTORY: Inventory = {
        /// Instances of the cloud that are known from the last list and from lookups since
        [ALPHA] Gauge ccm_inventory_instances = |at| at.snapshot().len() as f64;
        /// Entries of the last list that could not be parsed
        [ALPHA] Gauge ccm_inventory_malformed = |at| at.snapshot().malformed() as f64;
        /// Time since the start of the last successful list of the fleet; absent before the first
        [ALPHA] Gauge ccm_inventory_age_seconds = |at| at.age().map(|age| age.as_secs_f64());
    }
}
