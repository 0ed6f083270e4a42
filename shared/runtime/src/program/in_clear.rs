//! Reports requests to the cloud that cross the network without encryption.

use ccm_cloud::Cloud;
use ccm_metrics::{Gauge, metrics};

use crate::health::Verdict;

metrics! {
    pub(super) struct ClearMetrics {
        /// 1 if the cloud, or the provider on another machine, is asked without encryption, so that credentials and
        /// answers can be read and changed on the way, 0 if not or not known
        [ALPHA] ccm_cloud_in_clear => in_clear: Gauge;
    }
}

impl ClearMetrics {
    /// Passes if nothing is known to be sent in clear.
    pub(super) fn verdict(&self, cloud: &dyn Cloud) -> Verdict {
        let in_clear = cloud.in_clear();
        self.in_clear.set(in_clear.is_some().into());
        match in_clear {
            None => Verdict::Passed("nothing is known to be sent to the cloud in clear".to_owned()),
            Some(what) => Verdict::Failed(format!(
                "{what} is asked without encryption: credentials and answers can be read and changed on the way"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use async_trait::async_trait;
    use ccm_cloud::{Call, CloudError, Instances};

    use super::*;
    use crate::metrics::Metrics;

    struct Told(Option<&'static str>);

    #[async_trait]
    impl Cloud for Told {
        fn name(&self) -> &'static str {
            "told"
        }

        fn schemes(&self) -> Vec<String> {
            Vec::new()
        }

        fn instances(&self) -> Result<Option<Arc<dyn Instances>>, CloudError> {
            Ok(None)
        }

        fn in_clear(&self) -> Option<String> {
            self.0.map(str::to_owned)
        }

        async fn health(&self, _: Call) -> Result<(), CloudError> {
            Ok(())
        }
    }

    #[test]
    fn what_is_sent_in_clear_is_a_line_and_a_metric() {
        let metrics = Metrics::new();
        let own = ClearMetrics::new(&metrics);
        let shows = |value: u8| {
            metrics.encode().unwrap().contains(&format!("ccm_cloud_in_clear {value}\n"))
        };
        let failed = own.verdict(&Told(Some("Keystone at http://k/")));
        assert_eq!(
            failed.detail(),
            "Keystone at http://k/ is asked without encryption: credentials and answers can be read and changed on the way"
        );
        assert!(!failed.is_passed() && shows(1));
        assert!(own.verdict(&Told(None)).is_passed() && shows(0));
    }
}
