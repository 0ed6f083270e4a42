//! `ccm_cloud_identity_changed`.

use ccm_metrics::{Gauge, metrics};

metrics! {
    pub(crate) struct SameCloudMetrics {
        /// 1 if the cloud is not the one that this program has worked with, or no longer reports
        /// its identity, so that nothing is changed until a person approves it, 0 otherwise
        [ALPHA] ccm_cloud_identity_changed => changed: Gauge;
    }
}

impl SameCloudMetrics {
    pub(super) fn set(&self, is_changed: bool) {
        self.changed.set(is_changed.into());
    }
}
