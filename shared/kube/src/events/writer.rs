//! The task that writes events, one after another.

use std::time::Duration;

use kube::Client;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use super::{
    Dropped, EventMetrics, Observed, correlator::Correlator, delivery::Delivery, object::Names,
};

/// How long the remaining events may take at shutdown.
const FLUSH: Duration = Duration::from_secs(2);

/// Writes the events that an [`EventRecorder`](super::EventRecorder) records.
pub struct EventWriter {
    delivery: Delivery,
    waiting: mpsc::Receiver<Observed>,
    metrics: EventMetrics,
    correlator: Correlator,
    names: Names,
    start: Instant,
    /// True if an event was taken off the queue and is neither written nor counted as dropped.
    writing: bool,
}

impl EventWriter {
    pub(super) fn new(
        client: Client,
        component: &str,
        waiting: mpsc::Receiver<Observed>,
        metrics: EventMetrics,
    ) -> Self {
        Self {
            delivery: Delivery::new(client, component),
            waiting,
            metrics,
            correlator: Correlator::default(),
            names: Names::default(),
            start: Instant::now(),
            writing: false,
        }
    }

    /// Writes until `stop` is cancelled, then flushes the queue for at most two seconds. Events
    /// that are left are counted as dropped.
    pub async fn run(mut self, stop: CancellationToken) {
        let late = async {
            stop.cancelled().await;
            sleep(FLUSH).await;
        };
        tokio::select! {
            () = self.work(&stop) => return,
            () = late => {}
        }
        self.waiting.close();
        let left = usize::from(self.writing) + self.waiting.len();
        for _ in 0..left {
            self.metrics.dropped(Dropped::Shutdown);
        }
        if left > 0 {
            tracing::warn!(events = left, "events not written before shutdown");
        }
    }

    /// Ends once `stop` is cancelled and the queue is empty.
    async fn work(&mut self, stop: &CancellationToken) {
        loop {
            let next = tokio::select! {
                biased;
                next = self.waiting.recv() => next,
                () = stop.cancelled() => {
                    // Nothing is accepted from here on, so the queue drains.
                    self.waiting.close();
                    self.waiting.recv().await
                }
            };
            let Some(event) = next else { return };
            self.writing = true;
            self.write(&event, stop).await;
            self.writing = false;
        }
    }

    async fn write(&mut self, event: &Observed, stop: &CancellationToken) {
        let (now, names) = (self.start.elapsed(), &mut self.names);
        let name = || names.next(&event.about, event.at);
        let Some(occurrence) = self.correlator.judge(event, now, name) else {
            return self.metrics.dropped(Dropped::Spam);
        };
        match self.delivery.deliver(event, &occurrence, stop).await {
            Ok(()) => {
                self.metrics.sent.inc();
            }
            Err(error) => {
                self.metrics.dropped(Dropped::Failed);
                tracing::warn!(
                    object = event.about.kind,
                    name = event.about.name,
                    reason = event.reason,
                    error = %error,
                    "event not written"
                );
            }
        }
    }
}
