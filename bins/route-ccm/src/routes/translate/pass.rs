//! The loop: makes passes over all nodes, and sends the calls that follow. It does not wait for
//! calls.

use std::time::Duration;

use ccm_controller::{
    machine::log_unexpected,
    passes::{self, NextPass},
};
use tokio::sync::mpsc;

use crate::routes::{
    Parts,
    look::look,
    machine::{Call, Effect, Event},
};

/// The calls of a pass that do not change routes: a list and two questions.
const QUESTIONS: usize = 3;

/// The leader's looks.
pub(crate) struct Looks {
    pub(crate) parts: Parts,
    pub(crate) calls: mpsc::Sender<Call>,
}

impl passes::Pass for Looks {
    fn period(&self) -> Duration {
        self.parts.nodes.settings.borrow().route_reconciliation_period
    }

    async fn pass(&mut self) -> NextPass {
        let room = self.calls.capacity().saturating_sub(QUESTIONS);
        let look = look(&self.parts, self.parts.nodes.all(), room);
        let timeline = self.parts.door.timeline();
        let mut due = timeline.now() + self.period();
        self.parts.apply(Event::Pass(Box::new(look)), |request| match request {
            Effect::Call(call) => self.send(call),
            Effect::Due(at) => due = at,
            other => log_unexpected(&other),
        });
        NextPass::At(timeline.instant(due))
    }
}

impl Looks {
    fn send(&self, call: Call) {
        // The room of the channel limits the number of calls.
        if let Err(error) = self.calls.try_send(call) {
            tracing::error!("a call to the cloud cannot be queued: {error}");
        }
    }
}
