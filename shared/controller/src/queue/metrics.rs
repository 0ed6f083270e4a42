//! `workqueue_*`: the same names, labels and bounds as client-go's.

use std::{
    fmt::{self, Debug},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet},
    metrics::{
        family::Family,
        histogram::{Histogram, exponential_buckets},
    },
};

use super::state::Snapshot;
use ccm_runtime::metrics::{Column, Metrics, encode_counters, encode_gauges};

/// The queue's name as given by the program: a constant of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueueLabels {
    name: &'static str,
}

/// Reads one queue; `None` once the queue is gone.
type Read = Box<dyn Fn() -> Option<Snapshot> + Send + Sync>;

/// Bounds from 10 ns to 10 s, each ten times the one before.
fn histogram() -> Histogram {
    Histogram::new(exponential_buckets(1e-8, 10.0, 10))
}

type Durations = Family<QueueLabels, Histogram, fn() -> Histogram>;

/// The metrics of all queues of a process. Depth, ages and counts are computed when
/// they are asked for; only the two histograms are written while working.
#[derive(Clone)]
pub struct QueueMetrics {
    queued: Durations,
    worked: Durations,
    queues: Arc<Mutex<Vec<(QueueLabels, Read)>>>,
}

impl Debug for QueueMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueMetrics").finish_non_exhaustive()
    }
}

impl QueueMetrics {
    /// Registers the metrics; to be called once per registry.
    pub fn new(metrics: &Metrics) -> Self {
        let this = Self {
            queued: Family::new_with_constructor(histogram),
            worked: Family::new_with_constructor(histogram),
            queues: Arc::default(),
        };
        metrics.register(
            "workqueue_queue_duration_seconds",
            "[BETA] How long a key waits before a worker takes it",
            this.queued.clone(),
        );
        metrics.register(
            "workqueue_work_duration_seconds",
            "[BETA] How long a worker keeps a key",
            this.worked.clone(),
        );
        metrics.collect(this.clone());
        this
    }

    /// Makes one series of everything for a queue of this name: what the reference of the
    /// metrics is printed from.
    pub fn specimens(&self, name: &'static str) {
        drop(self.observed(name));
        self.watch(name, || Some(Snapshot::default()));
    }

    pub(super) fn observed(&self, name: &'static str) -> Observed {
        let labels = QueueLabels { name };
        Observed {
            queued: self.queued.get_or_create_owned(&labels),
            worked: self.worked.get_or_create_owned(&labels),
        }
    }

    pub(super) fn watch(
        &self,
        name: &'static str,
        read: impl Fn() -> Option<Snapshot> + Send + Sync + 'static,
    ) {
        self.queues.lock().push((QueueLabels { name }, Box::new(read)));
    }

    /// The queues there are, and how they stand. Queues that are gone are dropped.
    fn read(&self) -> Vec<(QueueLabels, Snapshot)> {
        let mut snapshots = Vec::new();
        self.queues.lock().retain(|(labels, read)| {
            let snapshot = read();
            snapshots.extend(snapshot.map(|snapshot| (*labels, snapshot)));
            snapshot.is_some()
        });
        snapshots
    }
}

/// The histograms of one queue.
#[derive(Debug)]
pub(super) struct Observed {
    queued: Histogram,
    worked: Histogram,
}

impl Observed {
    pub(super) fn waited(&self, waited: Duration) {
        self.queued.observe(waited.as_secs_f64());
    }

    pub(super) fn worked(&self, took: Duration) {
        self.worked.observe(took.as_secs_f64());
    }
}

impl Collector for QueueMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let queues = self.read();
        let gauges: [Column<Snapshot, f64>; 4] = [
            ("workqueue_depth", "[BETA] Keys that wait to be taken.", |queue| queue.depth as f64),
            (
                "workqueue_unfinished_work_seconds",
                "[BETA] How long the keys in work have been in work, summed up; it grows while workers are stuck.",
                |queue| queue.unfinished.as_secs_f64(),
            ),
            (
                "workqueue_longest_running_processor_seconds",
                "[BETA] How long the key that has been in work longest has been so.",
                |queue| queue.longest.as_secs_f64(),
            ),
            (
                "ccm_workqueue_oldest_age_seconds",
                "[ALPHA] How long the key that has waited longest has waited.",
                |queue| queue.oldest.as_secs_f64(),
            ),
        ];
        for (name, help, value) in gauges {
            encode_gauges(
                &mut encoder,
                (name, help),
                queues.iter().map(|(labels, queue)| (*labels, value(queue))),
            )?;
        }
        let counters: [Column<Snapshot, u64>; 2] = [
            (
                "workqueue_adds",
                "[BETA] Adds, those of keys that waited already left out.",
                |queue| queue.adds,
            ),
            (
                "workqueue_retries",
                "[BETA] Adds with a delay, after a failure or by plan.",
                |queue| queue.retries,
            ),
        ];
        for (name, help, value) in counters {
            encode_counters(
                &mut encoder,
                (name, help),
                queues.iter().map(|(labels, queue)| (*labels, value(queue))),
            )?;
        }
        Ok(())
    }
}
