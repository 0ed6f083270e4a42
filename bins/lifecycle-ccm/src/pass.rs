//! The pass: the order of its events. The effects of each event are performed before the next
//! event.

use std::sync::Arc;

use ccm_controller::{
    machine::Door,
    passes::{NextPass, Pass},
};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    machine::{Event, Machine},
    perform::{Asker, Performer, Requests, Writes},
    settings::LifecycleSettings,
    translate::Translator,
};

/// The leader's work.
pub(crate) struct LifecyclePass {
    pub(crate) door: Door<Machine>,
    pub(crate) translator: Translator,
    pub(crate) performer: Arc<Performer>,
    pub(crate) asker: Asker,
    pub(crate) writes: Writes,
    pub(crate) settings: watch::Receiver<Arc<LifecycleSettings>>,
    /// Cancelled when the pass should end.
    pub(crate) closing: CancellationToken,
}

impl Pass for LifecyclePass {
    fn period(&self) -> std::time::Duration {
        self.settings.borrow().parameters.policy.monitor_period
    }

    async fn pass(&mut self) -> NextPass {
        let started = Instant::now();
        self.step(Event::Pass(self.translator.sight())).await;
        let requests = self.step(self.asker.due()).await;
        if let Some(ask) = requests.ask {
            let within = self.settings.borrow().cloud_call_timeout;
            let answers = async {
                let fleet = self.asker.ask(ask, within).await;
                let requests = self.step(Event::Answered).await;
                self.asker.read_leases(requests.leases, within).await;
                fleet
            };
            let Some(fleet) = self.closing.run_until_cancelled(answers).await else {
                return NextPass::At(started);
            };
            let unlisted = self.translator.unlisted(fleet.as_ref());
            self.step(Event::Decide { sight: self.translator.sight(), unlisted }).await;
            self.performer.metrics.passed(started.elapsed());
        }
        let next = self.step(Event::Ended).await.next;
        self.show();
        next.map_or(NextPass::Period, |next| NextPass::At(self.door.timeline().instant(next)))
    }
}

impl LifecyclePass {
    /// Applies an event with the current settings, and makes the writes that follow from it.
    async fn step(&self, event: Event) -> Requests {
        let settings = Arc::clone(&self.settings.borrow());
        let news = self.translator.settings(&settings);
        let mut requests = Requests::default();
        for event in news.into_iter().chain([event]) {
            requests = self.performer.perform(self.door.apply(event));
        }
        self.writes.write(std::mem::take(&mut requests.writes), &settings).await;
        requests
    }

    /// Shows the memory: metrics, and the line about the fleet.
    fn show(&self) {
        self.performer.metrics.set_gauges(&self.door.read(Machine::gauges));
        let (selected, shown) = self.door.read(|machine, _| machine.survey());
        self.performer.survey(&selected, shown);
    }
}
