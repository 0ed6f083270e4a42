//! Checks that the networks and subnets that `cloud.conf` names exist: once after the start, so
//! that a wrong name is known before a node or a Service needs it, and again from time to time,
//! because a missing object may be created later.

use std::{sync::Weak, time::Duration};

use ccm_cloud::Call;
use tokio::time::sleep;

use crate::cloud::OpenStackCloud;

/// The time limit of one look.
pub const LOOK: Duration = Duration::from_secs(30);
/// The time until the next look after an error, while something is missing, and otherwise.
const AFTER_ERROR: Duration = Duration::from_mins(1);
pub const WHILE_MISSING: Duration = Duration::from_mins(10);
pub const SELDOM: Duration = Duration::from_hours(1);

/// Looks when the cloud has answered, until it is given up.
pub async fn run(cloud: Weak<OpenStackCloud>) {
    while let Some(cloud) = cloud.upgrade() {
        cloud.until_answered().await;
        let pause = match cloud.resolve(Call::routine(LOOK)).await {
            Ok(true) => SELDOM,
            Ok(false) => WHILE_MISSING,
            Err(error) => {
                tracing::debug!(%error, "cannot look for what cloud.conf names");
                AFTER_ERROR
            }
        };
        drop(cloud);
        sleep(pause).await;
    }
}
