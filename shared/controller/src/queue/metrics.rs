//! `workqueue_*`: the same names, labels and bounds as client-go's.

use std::sync::Arc;

use ccm_metrics::{Family, Histogram, Row, computed, exponential_buckets, metrics};
use ccm_runtime::metrics::Metrics;
use parking_lot::Mutex;

use super::state::QueueSnapshot;

/// The queue's name: a constant of the program.
type Name = &'static str;

/// Reads one queue. Returns `None` once the queue is dropped.
type Read = Box<dyn Fn() -> Option<QueueSnapshot> + Send + Sync>;

/// Returns bounds from 10 ns to 10 s, each ten times the previous one.
fn bounds() -> impl Iterator<Item = f64> {
    exponential_buckets(1e-8, 10.0, 10)
}

metrics! {
    struct Durations {
        /// How long a key waits before a worker takes it
        [BETA] workqueue_queue_duration_seconds { name } => queued: Family<Histogram, Name>, bounds bounds();
        /// How long a worker keeps a key
        [BETA] workqueue_work_duration_seconds { name } => worked: Family<Histogram, Name>, bounds bounds();
    }
}

computed! {
    static QUEUES: QueueSnapshot { name } = {
        /// Keys that wait to be taken
        [BETA] Gauge workqueue_depth = |queue| queue.depth as f64;
        /// The times that all keys have been in work, summed up; grows while workers are stuck
        [BETA] Gauge workqueue_unfinished_work_seconds = |queue| queue.unfinished.as_secs_f64();
        /// The longest time that a key has been in work
        [BETA] Gauge workqueue_longest_running_processor_seconds = |queue| queue.longest.as_secs_f64();
        /// The longest time that a key has been waiting
        [ALPHA] Gauge ccm_workqueue_oldest_age_seconds = |queue| queue.oldest.as_secs_f64();
        /// Adds, except for keys that were already waiting
        [BETA] Counter workqueue_adds = |queue| queue.adds;
        /// Adds with a delay, after a failure or by plan
        [BETA] Counter workqueue_retries = |queue| queue.retries;
        /// Adds that had to wait, because their object changes all the time
        [ALPHA] Counter ccm_workqueue_paced_adds = |queue| queue.paced;
    }
}

/// The metrics of all queues of a process. Depth, ages and counts are computed on each
/// scrape; only the two histograms are updated during work.
#[derive(Clone)]
pub struct QueueMetrics {
    durations: Durations,
    queues: Arc<Mutex<Vec<(Name, Read)>>>,
}

impl QueueMetrics {
    /// Registers the metrics. Call it once per registry.
    pub fn new(metrics: &Metrics) -> Self {
        let this = Self { durations: Durations::new(metrics), queues: Arc::default() };
        let all = this.clone();
        metrics.collect(QUEUES.collector(move || all.read()));
        this
    }

    /// Creates the sample series for the metrics reference, for a queue with this name.
    pub fn specimens(&self, name: &'static str) {
        drop(self.histograms(name));
        self.watch(name, || Some(QueueSnapshot::default()));
    }

    /// Returns how long keys wait in this queue, and how long they are in work.
    pub(super) fn histograms(&self, name: &'static str) -> (Histogram, Histogram) {
        (self.durations.queued.series(name), self.durations.worked.series(name))
    }

    pub(super) fn watch(
        &self,
        name: &'static str,
        read: impl Fn() -> Option<QueueSnapshot> + Send + Sync + 'static,
    ) {
        self.queues.lock().push((name, Box::new(read)));
    }

    /// Returns the state of all queues. Removes queues that were dropped.
    fn read(&self) -> Vec<Row<QueueSnapshot>> {
        let mut snapshots = Vec::new();
        self.queues.lock().retain(|(name, read)| {
            let snapshot = read();
            snapshots.extend(snapshot.map(|snapshot| (vec![(*name).into()], snapshot)));
            snapshot.is_some()
        });
        snapshots
    }
}
