//! Settings that several controllers have. Each describes them in its own table, because
//! defaults and meaning differ; what is allowed does not.

use std::time::Duration;

use super::{Problems, RawSettings};

/// The most writers at once; each holds one request to the API server.
const MOST_WRITERS: i64 = 1000;

impl RawSettings {
    /// `--cloud-call-timeout`, the longest time for one call to the cloud.
    pub fn cloud_call_timeout(&self, problems: &mut Problems) -> Option<Duration> {
        let bounds = Duration::from_secs(1)..=Duration::from_mins(10);
        let inside = |timeout: &Duration| bounds.contains(timeout);
        self.checked("cloud-call-timeout", "must be from 1s to 10m0s", problems, inside)
    }

    /// How many objects are written at the same time: from `least` to 1000.
    pub fn writers(&self, name: &str, least: u16, problems: &mut Problems) -> Option<usize> {
        let number = self.within(name, i64::from(least)..=MOST_WRITERS, problems)?;
        usize::try_from(number).ok()
    }
}
