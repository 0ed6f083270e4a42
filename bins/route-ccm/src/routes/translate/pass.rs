//! The loop: looks at all nodes, and sends the calls that follow. It waits for no call.

use std::{sync::Arc, time::Duration};

use ccm_controller::passes::{self, Next};
use tokio::sync::{mpsc, watch};

use crate::{
    routes::{
        entrance::Entrance,
        machine::{Call, Effect, Event, Pass},
        nodes::Nodes,
        perform::{Perform, calls},
    },
    settings::RouteSettings,
};

/// The calls of a look that do not change routes: a list and two questions.
const QUESTIONS: usize = 3;

/// The leader's looks.
pub(crate) struct Looks {
    pub(crate) entrance: Arc<Entrance>,
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) perform: Arc<Perform>,
    pub(crate) calls: mpsc::Sender<Call>,
    pub(crate) settings: watch::Receiver<Arc<RouteSettings>>,
}

impl passes::Pass for Looks {
    fn period(&self) -> Duration {
        self.settings.borrow().route_reconciliation_period
    }

    async fn pass(&mut self) -> Next {
        let room = self.calls.capacity().saturating_sub(QUESTIONS);
        let look = look(&self.nodes, &self.perform, room);
        let effects = self.entrance.apply(Event::Pass(Box::new(look)));
        let timeline = self.entrance.timeline();
        let mut due = timeline.now() + self.period();
        self.perform.perform(effects, |request| match request {
            Effect::Call(call) => self.send(call),
            Effect::Due(at) => due = at,
            _ => {}
        });
        Next::At(timeline.instant(due))
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
