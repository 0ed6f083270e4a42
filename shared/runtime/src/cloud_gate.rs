//! The gate for all requests to a cloud: limits, metrics, and the state of each cloud service
//! for `/readyz`.

mod metrics;

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use ccm_cloud::{Call, CallClass, CallGate, CallReport, CloudError, ErrorKind, Permit};
use ccm_kube::client::RequestClass;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::task::TaskTracker;

use self::metrics::{GateMetrics, RefusalLabel};
use crate::{
    health::Verdict,
    limits::{Limits, MAX_CLOSED, Refused, TokenBucket},
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
    limits: Limits,
    metrics: GateMetrics,
    guard: Option<WriteGuard>,
    services: Mutex<BTreeMap<&'static str, ServiceState>>,
    /// The last request with failed items, by operation.
    failed_items: Mutex<BTreeMap<&'static str, FailedItems>>,
    /// The writes in flight. They may outlive their term; the process waits for them.
    writes: TaskTracker,
    /// The latest deadline of a write.
    writes_end: Mutex<Option<Instant>>,
    /// The latest deadline of a write that was abandoned before its answer: the cloud may still
    /// carry it out.
    abandoned_end: Mutex<Option<Instant>>,
}

/// How long failed items and refused operations are shown. Controllers repeat each one after at most
/// five minutes.
const SHOWN: Duration = Duration::from_mins(10);

/// The failed items of one request.
struct FailedItems {
    at: Instant,
    /// The number of all items of that request.
    of: usize,
    kinds: BTreeMap<&'static str, usize>,
}

impl fmt::Display for FailedItems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let failed: usize = self.kinds.values().sum();
        let kinds: Vec<_> =
            self.kinds.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
        let ago = self.at.elapsed().as_secs();
        write!(f, "{failed} of {} failed {ago} s ago: {}", self.of, kinds.join(", "))
    }
}

/// The last results of a cloud service.
#[derive(Default)]
struct ServiceState {
    /// "Not found" and "unsupported" count as success.
    last_success: Option<Instant>,
    last_failure: Option<(Instant, ErrorKind)>,
    /// The operations whose last result was a refusal, because the user may lack the rights for one
    /// of them only.
    refused: BTreeMap<&'static str, (Instant, ErrorKind)>,
}

impl ServiceState {
    fn is_failing(&self) -> bool {
        let last = self.last_failure.is_some_and(|(failure, _)| self.last_success < Some(failure));
        last || self.refusals().next().is_some()
    }

    fn refusals(&self) -> impl Iterator<Item = (&str, u64, ErrorKind)> {
        let shown =
            self.refused.iter().map(|(operation, (at, kind))| (*operation, at.elapsed(), *kind));
        let recent = shown.filter(|(_, ago, _)| *ago < SHOWN);
        recent.map(|(operation, ago, kind)| (operation, ago.as_secs(), kind))
    }

    fn record_answer(&mut self, operation: &'static str, error: Option<ErrorKind>) {
        let now = Instant::now();
        match error {
            // Both errors are responses: the service is up, and accepts the credentials.
            None | Some(ErrorKind::NotFound | ErrorKind::Unsupported) => {
                self.last_success = Some(now);
                self.refused.remove(operation);
            }
            Some(kind) => {
                self.last_failure = Some((now, kind));
                if matches!(kind, ErrorKind::Unauthorized | ErrorKind::Forbidden) {
                    self.refused.insert(operation, (now, kind));
                }
            }
        }
    }
}

impl fmt::Display for ServiceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.last_success {
            Some(then) => write!(f, "last success {} s ago", then.elapsed().as_secs())?,
            None => f.write_str("last success never")?,
        }
        if let Some((then, kind)) = self.last_failure {
            write!(f, ", last failure {} s ago: {kind}", then.elapsed().as_secs())?;
        }
        for (operation, ago, kind) in self.refusals() {
            write!(f, ", {operation} refused {ago} s ago: {kind}")?;
        }
        Ok(())
    }
}

impl CloudGate {
    /// Creates a gate with these limits. Registers its metrics, so create it once per registry.
    /// With a guard, writes pass only while the guard permits them.
    pub fn new(limits: Limits, metrics: &Metrics, guard: Option<WriteGuard>) -> Self {
        let shared = Shared {
            limits,
            metrics: GateMetrics::new(metrics),
            guard,
            services: Mutex::default(),
            failed_items: Mutex::default(),
            writes: TaskTracker::new(),
            writes_end: Mutex::default(),
            abandoned_end: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Creates one series per metric and label value. The metrics reference is generated from
    /// them.
    pub fn specimens(&self) {
        self.shared.metrics.specimens();
        for class in [RequestClass::Read, RequestClass::Write] {
            self.shared.limits.bucket("example", class);
        }
    }

    /// Returns the services called so far with their last results. Fails if the last call to a
    /// service has failed, or if the cloud has refused the credentials of the last call of one
    /// operation.
    pub fn verdict(&self) -> Verdict {
        let services = self.shared.services.lock();
        if services.is_empty() {
            return Verdict::Passed("not called yet".to_owned());
        }
        let lines: Vec<_> =
            services.iter().map(|(name, state)| format!("{name} {state}")).collect();
        let is_failing = services.values().any(ServiceState::is_failing);
        let verdict = if is_failing { Verdict::Failed } else { Verdict::Passed };
        verdict(lines.join("; "))
    }

    /// Fails if items of a recent request failed, even if the request itself succeeded.
    pub fn items_verdict(&self) -> Verdict {
        let mut failed = self.shared.failed_items.lock();
        failed.retain(|_, items| items.at.elapsed() < SHOWN);
        if failed.is_empty() {
            return Verdict::Passed("no call failed within 10 minutes".to_owned());
        }
        let lines: Vec<_> =
            failed.iter().map(|(operation, items)| format!("{operation}: {items}")).collect();
        Verdict::Failed(lines.join("; "))
    }

    /// Prevents new writes, and waits for each write in flight until its deadline, because a sent
    /// write cannot be cancelled.
    pub async fn end_writes(&self) {
        let Shared { writes, writes_end, abandoned_end, .. } = &*self.shared;
        writes.close();
        let end = *writes_end.lock();
        if let Some(end) = end.filter(|_| !writes.is_empty()) {
            tracing::info!(writes = writes.len(), "waiting for the writes to the cloud in flight");
            if timeout_at(end, writes.wait()).await.is_err() {
                tracing::warn!("no response to pending writes to the cloud within their timeout");
            }
        }
        let end = *abandoned_end.lock();
        if let Some(end) = end.filter(|end| Instant::now() < *end) {
            tracing::info!("waiting for cancelled cloud writes to time out");
            sleep_until(end).await;
        }
    }
}

impl Shared {
    fn bucket(&self, class: CallClass) -> TokenBucket {
        let of = if class.write { RequestClass::Write } else { RequestClass::Read };
        self.limits.bucket(class.service, of)
    }

    /// Returns the term that covers a request of this class.
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

    async fn admit(self: Arc<Self>, class: CallClass, call: Call) -> Result<Permit, CloudError> {
        self.guarded(class)?;
        let bucket = self.bucket(class);
        match bucket.admit_by(call.priority, call.end).await {
            Ok(waited) => {
                self.metrics.waited(class, waited);
                if !class.write {
                    return Ok(Permit::default());
                }
                // The term may have ended during the wait.
                let term = self.guarded(class)?;
                let held = self.writes.token();
                // This comes before the check, so that either `end_writes` sees this write and its
                // end, or the check sees that no write may start.
                {
                    let mut end = self.writes_end.lock();
                    *end = (*end).max(Some(call.end));
                }
                if self.writes.is_closed() {
                    return Err(self.not_covered(class, "the process is shutting down"));
                }
                let this = Arc::clone(&self);
                Ok(Permit::for_write(term, move || {
                    let mut end = this.abandoned_end.lock();
                    *end = (*end).max(Some(call.end));
                    drop(held);
                }))
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
            (if class.write { "writes" } else { "reads" }, call.left().as_secs_f64().round());
        let (label, message, retry_after) = match refused {
            Refused::Closed { left } => (
                RefusalLabel::Closed,
                format!(
                    "{what}: the Retry-After pause of {kind} lasts longer than the {timeout} s left for the call"
                ),
                Some(left),
            ),
            Refused::NoTurn => {
                let rate = in_force
                    .map_or_else(|| "no limit".to_owned(), |rate| format!("{rate} requests/s"));
                let why = format!(
                    "{what}: the rate limit of {kind}, now {rate}, does not admit it within its {timeout} s"
                );
                (RefusalLabel::RateLimit, why, None)
            }
        };
        self.metrics.refused(class, label);
        CloudError { retry_after, ..CloudError::new(ErrorKind::Throttled, message) }
    }
}

impl CallGate for CloudGate {
    fn admit(&self, class: CallClass, call: Call) -> BoxFuture<'_, Result<Permit, CloudError>> {
        Box::pin(Arc::clone(&self.shared).admit(class, call))
    }

    fn report(&self, class: CallClass, report: CallReport) {
        self.shared.metrics.count_answer(class, &report);
        let bucket = self.shared.bucket(class);
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
                seconds = time.min(MAX_CLOSED).as_secs(),
                "Retry-After of the cloud"
            );
        }
        let mut services = self.shared.services.lock();
        services.entry(class.service).or_default().record_answer(class.operation, report.error);
    }

    fn items(&self, class: CallClass, results: &[Option<ErrorKind>]) {
        self.shared.metrics.items(class, results);
        let mut kinds = BTreeMap::new();
        for kind in results.iter().flatten().filter(|kind| !kind.is_at_work()) {
            *kinds.entry(kind.reason()).or_default() += 1;
        }
        if !kinds.is_empty() {
            let failed = FailedItems { at: Instant::now(), of: results.len(), kinds };
            self.shared.failed_items.lock().insert(class.operation, failed);
        }
    }
}

#[cfg(test)]
mod tests;
