//! The pauses that services asked for with `Retry-After`.

use std::{array, time::Duration};

use ccm_cloud::{CloudError, ErrorKind};
use parking_lot::Mutex;
use rand::Rng as _;
use tokio::time::{Instant, sleep_until};

use super::{Deadline, Service};

/// Callers that waited for the end of a pause go on within so long of each other.
const SPREAD: Duration = Duration::from_millis(500);

/// Until when each service is left alone. Holds for all callers, over re-logins and
/// changes of the configuration.
#[derive(Debug)]
pub(crate) struct Pauses(Mutex<[Option<Instant>; Service::ALL.len()]>);

impl Default for Pauses {
    fn default() -> Self {
        Self(Mutex::new(array::from_fn(|_| None)))
    }
}

impl Pauses {
    /// The service asked for a pause. It never shortens one that there is.
    pub(crate) fn ask(&self, service: Service, pause: Duration) {
        let end = Instant::now() + pause;
        let mut ends = self.0.lock();
        let slot = &mut ends[service as usize];
        if slot.is_none_or(|before| before < end) {
            *slot = Some(end);
        }
    }

    /// The end of the service's pause, if it has one.
    pub(crate) fn end(&self, service: Service) -> Option<Instant> {
        self.0.lock()[service as usize].filter(|end| *end > Instant::now())
    }

    /// Waits until the service may be called. Fails at once if that is too late.
    pub(crate) async fn over(
        &self,
        service: Service,
        operation: &str,
        deadline: Deadline,
    ) -> Result<(), CloudError> {
        while let Some(end) = self.end(service) {
            if end >= deadline.at {
                let left = end.saturating_duration_since(Instant::now());
                return Err(CloudError::new(
                    ErrorKind::Throttled,
                    format!(
                        "{} {operation} not sent: the service asked for a pause, which lasts longer than the {} s that the call has",
                        service.name(),
                        deadline.seconds()
                    ),
                )
                .with_retry_after(left));
            }
            let late = SPREAD.mul_f64(rand::rng().random_range(0.0..1.0));
            sleep_until((end + late).min(deadline.at)).await;
        }
        Ok(())
    }
}
