//! `ccm_inventory_*`.

use ccm_metrics::computed;

use super::Inventory;

computed! {
    pub(super) static INVENTORY: Inventory = {
        /// Instances of the cloud that are known from lookups
        [ALPHA] Gauge ccm_inventory_instances = |at| at.len() as f64;
        /// Time since the start of the last lookup of all nodes that was answered; absent before the first
        [ALPHA] Gauge ccm_inventory_age_seconds = |at| at.age().map(|age| age.as_secs_f64());
    }
}
