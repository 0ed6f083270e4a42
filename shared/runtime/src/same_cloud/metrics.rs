//! `ccm_cloud_identity_changed`.

use ccm_metrics::{Gauge, metrics};

metrics! {
    pub(crate) struct SameCloudMetrics {
        /// Whether the cloud is another one than this program has worked with, or does not say any more which one it
        /// is, so that nothing is changed until a person approves it: 1 for yes, 0 for no
        [ALPHA] ccm_cloud_identity_changed => changed: Gauge;
    }
}

impl SameCloudMetrics {
    pub(super) fn set(&self, is_changed: bool) {
        self.changed.set(is_changed.into());
    }
}
