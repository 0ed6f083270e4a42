//! The loop: looks at all nodes, and sends the calls that follow. It waits for no call.

use std::time::Duration;

use ccm_controller::passes::{self, NextPass};
use tokio::sync::mpsc;

use crate::routes::{
    Parts,
    machine::{Call, Effect, Event, Pass},
    nodes::Nodes,
    perform::{Perform, calls},
};

/// The calls of a look that do not change routes: a list and two questions.
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
        let look = look(&self.parts.nodes, &self.parts.perform, room);
        let timeline = self.parts.entrance.timeline();
        let mut due = timeline.now() + self.period();
        self.parts.apply(Event::Pass(Box::new(look)), |request| match request {
            Effect::Call(call) => self.send(call),
            Effect::Due(at) => due = at,
            _ => {}
        });
        NextPass::At(timeline.instant(due))
    }
}

impl Looks {
    fn send(&self, call: Call) {
        // The number of calls is limited by the channel's room.
        if let Err(error) = self.calls.try_send(call) {
            tracing::error!("a call to the cloud cannot be queued: {error}");
        }
    }
}

/// All that a look depends on. `room`: how many calls may wait for a lane.
pub(crate) fn look(nodes: &Nodes, perform: &Perform, room: usize) -> Pass {
    let (cloud, ipam) = (&*nodes.cloud, perform.ipam.as_ref());
    Pass {
        lacks: ipam.map(|ipam| ipam.lacks()).unwrap_or_default(),
        awaited: ipam.map(|ipam| ipam.awaited()).unwrap_or_default(),
        nodes: nodes.all(),
        traits: calls::traits(cloud),
        has_instances: !matches!(cloud.instances(), Ok(None)),
        room,
    }
}
