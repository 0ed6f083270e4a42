//! The settings of template-ccm. Each declaration generates the flag, the key in the file, the
//! environment variable, the check and the reference page.

use std::time::Duration;

use ccm_base::duration;
use ccm_runtime::settings::cloud_call_timeout;
use ccm_settings::at_least;
use serde::Serialize;

ccm_settings::settings! {
    /// The settings, checked.
    #[derive(Clone, Debug, PartialEq, Serialize)]
    pub struct TemplateSettings {
        /// Interval between cloud lookups of the instance name of each node. At least 1s.
        #[serde(serialize_with = "duration::serialize")]
        pub instance_name_period: Duration = live(Duration, "instance-name-period", "10m0s"),
            at_least("1s");
        /// Time limit of one lookup, including retries and waiting for the rate limit. From 1s to 10m0s.
        #[serde(serialize_with = "duration::serialize")]
        pub cloud_call_timeout: Duration = live(Duration, "cloud-call-timeout", "30s"), cloud_call_timeout;
    }
}

#[cfg(test)]
mod tests;
