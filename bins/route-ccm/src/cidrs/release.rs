//! When blocks become free, what the route table says about them, and what the next leader should
//! know.

use std::time::Duration;

use ccm_base::At;
use ccm_controller::queue::Priority;
use ipnet::IpNet;
use tokio::time::{sleep, sleep_until};

use super::Cidrs;
use crate::lease::Handover;

/// How many nodes that are gone the next leader learns of: a text with the Lease is short.
const LEFT: usize = 200;
/// How long to wait for more nodes that go at the same time.
const COALESCE: Duration = Duration::from_millis(100);
/// How long to sleep when nothing is due; any change wakes the task.
const IDLE: Duration = Duration::from_mins(1);

impl Cidrs {
    /// Frees the blocks of nodes that are gone as they become due. Never returns.
    pub(super) async fn release_all(&self, handover: &Handover) {
        loop {
            let now = self.timeline.now();
            let released = self.change(|core| {
                core.allocator.expire(now);
                (core.allocator.next_release(), core.allocator.held(LEFT))
            });
            let (next, held) = released.unwrap_or_default();
            if !self.is_observing() {
                handover.change(|left| left.held = held);
            }
            let due = self.timeline.instant(next.unwrap_or(now + IDLE).min(now + IDLE));
            tokio::select! {
                () = sleep_until(due) => {}
                () = self.left.notified() => {}
            }
            sleep(COALESCE).await;
        }
    }

    /// The table of the routes, as the cloud was asked for at `read`, with the routes that are being
    /// made.
    pub(crate) fn routes_are(&self, destinations: Vec<IpNet>, read: At) {
        let mut destinations = Some(destinations);
        let first = self.change(|core| {
            let is_first = !core.allocator.knows_routes();
            core.allocator.routes_are(destinations.take().unwrap_or_default(), read);
            if is_first { core.waiting.first(u64::MAX) } else { Vec::new() }
        });
        match (first, destinations) {
            (Some(first), _) => {
                for name in first {
                    self.queue.add(name, Priority::Urgent);
                }
            }
            (None, destinations) => {
                *self.table.lock() = destinations.map(|destinations| (destinations, read));
            }
        }
        self.left.notify_one();
    }

    /// Blocks of nodes that are gone wait for the end of their routes: this says of a destination
    /// whether there is none, and none is being made.
    pub(crate) fn without_routes(&self, has_none: impl Fn(IpNet) -> bool) {
        let gone = self.change(|core| {
            let waiting = core.allocator.waiting_for_routes().map(|(network, _)| network);
            let gone: Vec<IpNet> = waiting.filter(|network| has_none(*network)).collect();
            for network in &gone {
                core.allocator.route_gone(*network);
            }
            gone.len()
        });
        if gone.is_some_and(|gone| gone > 0) {
            self.left.notify_one();
        }
    }

    /// A route was deleted.
    pub(crate) fn route_gone(&self, destination: IpNet) {
        self.change(|core| core.allocator.route_gone(destination));
        self.left.notify_one();
    }
}
