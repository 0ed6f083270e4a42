//! Checks that the cloud is still the one that this program has worked with.
//!
//! The leader records the cloud's identity ([`Cloud::identity`]) on the Lease. While the cloud is
//! another one, no call reaches it: another project does not show the resources of this cluster, so
//! the program would create them again, give them up or delete them. A person approves the new
//! cloud.
//!
//! ```text
//! Lease: recorded --+
//!                   +--> decide --> [`Guarded`]: each call, before and after
//! cloud: present ---+          +--> [`watch`]: record, metric, health, event, log
//! ```

mod decide;
mod guarded;
#[cfg(test)]
mod tests;
mod watch;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use ccm_base::{At, clock::Timeline};
use ccm_cloud::{Call, Cloud, CloudError, ErrorKind};
use ccm_kube::events::EventRecorder;
use tokio::time::{Instant, sleep};

pub(crate) use self::watch::SameCloudMetrics;
pub use self::{
    decide::Standing,
    watch::{Watch, Where},
};
use self::{decide::decide, guarded::Guarded};
use crate::leadership::{CLOUD_IDENTITY, Leadership, LeaseAnnotations};

/// The annotation of the Lease with the time until which the cloud may become another one: for
/// planned work.
pub const APPROVED_UNTIL: &str = "quartet.dev/cloud-identity-approved-until";
/// How long a call waits until the cloud says which one it is, after a new connection.
const PATIENCE: Duration = Duration::from_secs(2);
/// The time between two checks during this wait.
const LOOK: Duration = Duration::from_millis(10);

/// Checks that the cloud is the one that the Lease names. Clones share the check.
#[derive(Clone)]
pub struct SameCloud(Arc<Shared>);

struct Shared {
    cloud: Arc<dyn Cloud>,
    lease: LeaseAnnotations,
    /// Describes how to approve another cloud.
    remedy: String,
    timeline: Timeline,
    /// The calls that were not made, or whose answers were not used.
    refused: AtomicU64,
}

impl SameCloud {
    /// Creates the check that this cloud is the one that the Lease names.
    pub fn new(cloud: Arc<dyn Cloud>, leadership: &Leadership, place: &Where) -> Self {
        Self(Arc::new(Shared {
            cloud,
            lease: leadership.annotations().clone(),
            remedy: place.remedy(),
            timeline: Timeline::begin(),
            refused: AtomicU64::default(),
        }))
    }

    /// Returns the guarded cloud: while the cloud is not the recorded one, each call fails with
    /// [`ErrorKind::Unavailable`], and so does a call that was under way.
    pub fn guarded(&self) -> Arc<dyn Cloud> {
        Arc::new(Guarded::new(self.clone()))
    }

    /// Returns true if the cloud is provably the one that this program has worked with: the cloud
    /// says so itself, and an earlier leader recorded it in the Lease. Returns false while that is
    /// not known, also without election, and for a provider that cannot tell. The cloud's "not
    /// found" means that something is lost only if this is true.
    pub fn is_proven(&self) -> bool {
        let recorded = self.0.lease.get(CLOUD_IDENTITY);
        recorded.is_some() && recorded == self.0.cloud.identity()
    }

    /// Returns the current state. Takes over what may be recorded.
    pub fn standing(&self) -> Standing {
        let standing = self.seen();
        if let Standing::Recorded { present, .. } = &standing {
            self.0.lease.record_cloud(present);
        }
        standing
    }

    /// Returns the time until which another cloud is approved, or why a person's text has no
    /// effect.
    fn approval(&self) -> Result<Option<At>, String> {
        let Some(text) = self.0.lease.get(APPROVED_UNTIL) else { return Ok(None) };
        let wrong = |_| {
            format!(
                "annotation {APPROVED_UNTIL}: {text:?} is not a time such as 2006-01-02T15:04:05Z"
            )
        };
        // This notices that the wall clock was set, so that the text follows it.
        let now = self.0.timeline.now();
        let until: At = text.trim().parse().map_err(wrong)?;
        Ok(Some(until).filter(|until| now < *until))
    }

    fn is_approved(&self) -> bool {
        matches!(self.approval(), Ok(Some(_)))
    }

    /// Returns why calls are not made; `None` while they are.
    fn objection(&self, standing: &Standing) -> Option<String> {
        standing.objection(&self.0.remedy).map(|(why, fix)| format!("{why}; {fix}"))
    }

    /// Returns the reason why `Guarded` refuses calls now, and the fix. It does not record the
    /// cloud.
    pub fn refusal(&self) -> Option<(String, String)> {
        self.seen().objection(&self.0.remedy)
    }

    fn seen(&self) -> Standing {
        let Shared { cloud, lease, .. } = &*self.0;
        decide(lease.cloud_identity(), cloud.identity(), self.is_approved())
    }

    /// Fails while the cloud is another one, or does not report its identity.
    async fn check(&self, call: Call) -> Result<(), CloudError> {
        let patience = call.end.min(Instant::now() + PATIENCE);
        loop {
            let standing = self.standing();
            let Some(why) = self.objection(&standing) else { return Ok(()) };
            if standing != Standing::Untold || Instant::now() >= patience {
                self.0.refused.fetch_add(1, Ordering::Relaxed);
                return Err(CloudError::new(ErrorKind::Unavailable, why));
            }
            sleep(LOOK).await;
        }
    }

    /// Starts to watch the cloud while this process leads.
    pub fn watch(&self, events: &EventRecorder, place: &Where) -> Watch {
        Watch::new(self.clone(), events, place)
    }
}
