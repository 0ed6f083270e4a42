//! Reports that requests to the cloud cross the network without encryption.

use ccm_cloud::Cloud;
use ccm_metrics::computed;

use crate::{health::Verdict, metrics::Metrics};

computed! {
    static IN_CLEAR: bool = {
        /// 1 if the cloud, or the provider on another machine, is asked without encryption, so that credentials and
        /// answers can be read and changed on the way, 0 if not or not known
        [ALPHA] Gauge ccm_cloud_in_clear = |is_in_clear| f64::from(u8::from(*is_in_clear));
    }
}

/// Adds the metric, which asks at each scrape.
pub(super) fn collect(metrics: &Metrics, ask: impl Fn() -> bool + Send + Sync + 'static) {
    metrics.collect(IN_CLEAR.collector(move || vec![(Vec::new(), ask())]));
}

/// Passes if no request is known to be sent in clear.
pub(super) fn verdict(cloud: &dyn Cloud) -> Verdict {
    match cloud.in_clear() {
        None => Verdict::Passed("nothing is known to be sent to the cloud in clear".to_owned()),
        Some(what) => Verdict::Failed(format!(
            "{what} is asked without encryption: credentials and answers can be read and changed on the way"
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use async_trait::async_trait;
    use ccm_cloud::{Call, CloudError, Instances};

    use super::*;

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
        let shows = |cloud: Told, value: u8| {
            let metrics = Metrics::new();
            collect(&metrics, move || cloud.in_clear().is_some());
            metrics.encode().unwrap().contains(&format!("ccm_cloud_in_clear {value}.0\n"))
        };
        let failed = verdict(&Told(Some("Keystone at http://k/")));
        assert_eq!(
            failed.detail(),
            "Keystone at http://k/ is asked without encryption: credentials and answers can be read and changed on the way"
        );
        assert!(!failed.is_passed() && shows(Told(Some("Keystone")), 1));
        assert!(verdict(&Told(None)).is_passed() && shows(Told(None), 0));
    }
}
