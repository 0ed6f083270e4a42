//! Makes the calls to the cloud and the writes to the API server, one step of a Service after the
//! other.
//!
//! A lane takes a batch of Services and makes at most four calls about them: what should be created
//! or updated, whose members change, what should be deleted, and what is only previewed. Answers
//! are applied one by one as they arrive, so a Service whose answer does not come blocks only its
//! lane. It comes back on a slow lane.

use std::{sync::Arc, time::Duration};

use ccm_controller::{
    queue::{BatchWindow, BatchWindowConfig},
    workers,
    writer::Writer,
};
use ccm_objects::{Service, Shared as Name};
use ccm_runtime::supervisor::Supervisor;
use futures::{StreamExt as _, stream};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::WRITES;
use crate::{
    machine::{
        effect::{Ask, Lane},
        event::Event,
    },
    plan::hangs::SLOW_LANES,
    translate::Translator,
};

/// The longest time for which a batch waits for more Services. A cloud takes longer to make a load
/// balancer.
const LONGEST_WINDOW: Duration = Duration::from_secs(1);

/// The lanes.
pub(crate) struct Lanes {
    pub(super) translator: Arc<Translator>,
    pub(super) writer: Writer<Service>,
    /// Wakes slow lanes that wait for their turn.
    slow_ended: Notify,
}

impl Lanes {
    /// Creates lanes that write with this writer.
    pub(crate) fn new(translator: &Arc<Translator>, writer: Writer<Service>) -> Arc<Self> {
        let translator = Arc::clone(translator);
        Arc::new(Self { translator, writer, slow_ended: Notify::new() })
    }

    /// Starts the lanes.
    pub(crate) fn start(self: &Arc<Self>, tasks: &Supervisor) {
        let run = |lane| Arc::clone(self).run(lane, tasks.token().clone());
        tasks.spawn("lanes", run(Lane::Normal));
        tasks.spawn("slow-lanes", run(Lane::Slow));
    }

    /// Runs until the token is cancelled; takes no more Services once the queue is shut down.
    async fn run(self: Arc<Self>, lane: Lane, token: CancellationToken) {
        let config = BatchWindowConfig { most: LONGEST_WINDOW, ..BatchWindowConfig::default() };
        let batches = stream::unfold(BatchWindow::new(config), async |mut window| {
            let most = match lane {
                Lane::Normal => self.batch_size(),
                Lane::Slow => 1,
            };
            if lane == Lane::Slow {
                self.slow_turn().await;
            }
            let batch = self.queue(lane).get_batch(most, &mut window).await?;
            if lane == Lane::Slow {
                self.slow_lane(true);
            }
            Some((batch, window))
        });
        let lanes = || match lane {
            Lane::Normal => self.translator.settings.borrow().concurrent_service_syncs,
            Lane::Slow => SLOW_LANES as usize,
        };
        let work = |batch| Arc::clone(&self).process(lane, batch);
        workers::pool(batches, lanes, token, work).await;
    }

    fn batch_size(&self) -> usize {
        self.translator.load_balancers().map_or(1, |one| one.traits().max_batch).max(1)
    }

    /// Waits until a slow lane may begin.
    async fn slow_turn(&self) {
        let performer = &self.translator.performer;
        loop {
            let changed = self.slow_ended.notified();
            let due = performer
                .door
                .read(|machine, now| machine.next_slow_lane().filter(|due| now < *due));
            if due.is_none() {
                return;
            }
            tokio::select! {
                () = changed => {}
                () = performer.until(due) => {}
            }
        }
    }

    /// Records that a slow lane begins, or has ended.
    fn slow_lane(&self, begins: bool) {
        self.translator.performer.apply(Event::SlowLane { begins });
        self.slow_ended.notify_waiters();
    }

    async fn process(self: Arc<Self>, lane: Lane, batch: Vec<Name>) {
        let asks: Vec<Ask> = stream::iter(batch)
            .map(|name| self.advance(lane, name))
            .buffer_unordered(WRITES)
            .filter_map(std::future::ready)
            .collect()
            .await;
        // They are on the heap, because the futures of the calls are large.
        Box::pin(self.call(asks)).await;
        if lane == Lane::Slow {
            self.slow_lane(false);
        }
    }

    /// Makes the writes that are due for a Service. Returns the call that follows; otherwise the Service is given
    /// back to its queue.
    async fn advance(&self, lane: Lane, name: Name) -> Option<Ask> {
        let ask = self.steps(lane, &name, true).await;
        if ask.is_none() {
            self.queue(lane).done(&name);
        }
        ask
    }
}
