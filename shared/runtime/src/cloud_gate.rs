//! The gate for all requests to a cloud: limits, metrics, and the state of each cloud service
//! for `/readyz`.

mod metrics;
mod writes;

use std::{collections::BTreeMap, fmt, sync::Arc};

use ccm_cloud::{Call, CallClass, CallGate, CallReport, CloudError, ErrorKind, Permit};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::time::Instant;

use self::{
    metrics::{GateMetrics, RefusalLabel},
    writes::Writes,
};
use crate::{
    limits::{CloudLimits, Refused},
    metrics::Metrics,
};

/// Checks whether a write to the cloud may start, and returns the term of leadership. The
/// error is the reason in one line.
pub type WriteGuard = Box<dyn Fn() -> Result<Option<u64>, String> + Send + Sync>;

/// The gate. Clones share it.
///
/// A request waits for its turn in the bucket of its service and class, and fails with
/// [`ErrorKind::Throttled`] as soon as it is certain that its turn comes too late. A 429 from a
/// service slows down that service's bucket, and its `Retry-After` closes it; other services
/// are not affected.
#[derive(Clone)]
pub struct CloudGate {
    shared: Arc<Shared>,
}

struct Shared {
    limits: CloudLimits,
    metrics: GateMetrics,
    guard: Option<WriteGuard>,
    services: Mutex<BTreeMap<&'static str, ServiceState>>,
    writes: Writes,
}

/// The last results of a cloud service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceState {
    /// Time of the last success; "not found" and "unsupported" count as success.
    pub last_success: Option<Instant>,
    /// Time and kind of the last failure.
    pub last_failure: Option<(Instant, ErrorKind)>,
}

impl fmt::Debug for CloudGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CloudGate").finish_non_exhaustive()
    }
}

impl CloudGate {
    /// A gate with these limits. Registers its metrics, so create it once per registry. With a
    /// guard, writes pass only while the guard permits them.
    pub fn new(limits: CloudLimits, metrics: &Metrics, guard: Option<WriteGuard>) -> Self {
        let metrics = GateMetrics::new(metrics);
        let (services, writes) = (Mutex::default(), Writes::default());
        Self { shared: Arc::new(Shared { limits, metrics, guard, services, writes }) }
    }

    /// Creates one series per metric and label value. The metrics reference is generated from
    /// them.
    pub fn specimens(&self) {
        self.shared.metrics.specimens();
        for write in [false, true] {
            self.shared.limits.bucket("example", write);
        }
    }

    /// The services called so far, by name, with their last results.
    pub fn services(&self) -> Vec<(&'static str, ServiceState)> {
        self.shared.services.lock().iter().map(|(name, state)| (*name, *state)).collect()
    }

    /// Lets no new write start, and waits for each write in flight until its deadline: a sent
    /// write cannot be cancelled.
    pub async fn end_writes(&self) {
        self.shared.writes.end().await;
    }

    /// The limits, for changing their rates.
    pub fn limits(&self) -> &CloudLimits {
        &self.shared.limits
    }
}

impl Shared {
    /// The term that covers a request of this class.
    fn guarded(&self, class: CallClass) -> Result<Option<u64>, CloudError> {
        let Some(guard) = self.guard.as_ref().filter(|_| class.write) else { return Ok(None) };
        guard().map_err(|why| self.not_covered(class, &why))
    }

    fn not_covered(&self, class: CallClass, why: &str) -> CloudError {
        self.metrics.refused(class, RefusalLabel::Leadership);
        CloudError::new(
            ErrorKind::Unavailable,
            format!("{} {} not sent: {why}", class.service, class.operation),
        )
    }

    async fn admit(&self, class: CallClass, call: Call) -> Result<Permit, CloudError> {
        self.guarded(class)?;
        let bucket = self.limits.bucket(class.service, class.write);
        match bucket.admit_by(call.priority, call.end).await {
            Ok(waited) => {
                self.metrics.waited(class, waited);
                if !class.write {
                    return Ok(Permit::default());
                }
                // The term may have ended during the wait.
                let term = self.guarded(class)?;
                let held = self.writes.begin(call.end);
                let held = held.ok_or_else(|| self.not_covered(class, "the process is ending"))?;
                Ok(Permit::for_write(term, held))
            }
            Err(refused) => Err(self.refusal(class, call, refused, bucket.in_force())),
        }
    }

    fn refusal(
        &self,
        class: CallClass,
        call: Call,
        refused: Refused,
        in_force: Option<f64>,
    ) -> CloudError {
        let what = format!("{} {} not sent", class.service, class.operation);
        let (kind, timeout) =
            (if class.write { "writes" } else { "reads" }, call.left().as_secs_f64());
        let (label, message, retry_after) = match refused {
            Refused::Closed { left } => (
                RefusalLabel::Closed,
                format!(
                    "{what}: the cloud asked for a pause of {kind}, which lasts longer than the {timeout} s that the call has"
                ),
                Some(left),
            ),
            Refused::NoTurn => {
                let rate = in_force
                    .map_or_else(|| "no limit".to_owned(), |rate| format!("{rate} requests/s"));
                let why = format!(
                    "{what}: the limit of {kind}, {rate} now, gives it no turn within its {timeout} s"
                );
                (RefusalLabel::RateLimit, why, None)
            }
        };
        self.metrics.refused(class, label);
        CloudError { retry_after, ..CloudError::new(ErrorKind::Throttled, message) }
    }

    fn report(&self, class: CallClass, report: CallReport) {
        self.metrics.answered(class, &report);
        let bucket = self.limits.bucket(class.service, class.write);
        match report.error {
            Some(ErrorKind::Throttled) => bucket.refused(),
            Some(ErrorKind::Unavailable | ErrorKind::Timeout) => {}
            _ => bucket.succeeded(),
        }
        if let Some(time) = report.retry_after
            && bucket.close_for(time)
        {
            let (service, operation) = (class.service, class.operation);
            tracing::warn!(
                service,
                operation,
                seconds = time.as_secs_f64(),
                "the cloud asks for a pause"
            );
        }
        let now = Instant::now();
        let mut services = self.services.lock();
        let state = services.entry(class.service).or_default();
        match report.error {
            // Both errors are responses: the service is up.
            None | Some(ErrorKind::NotFound | ErrorKind::Unsupported) => {
                state.last_success = Some(now);
            }
            Some(kind) => state.last_failure = Some((now, kind)),
        }
    }
}

impl CallGate for CloudGate {
    fn admit(&self, class: CallClass, call: Call) -> BoxFuture<'_, Result<Permit, CloudError>> {
        Box::pin(self.shared.admit(class, call))
    }

    fn report(&self, class: CallClass, report: CallReport) {
        self.shared.report(class, report);
    }
}

#[cfg(test)]
mod tests;
