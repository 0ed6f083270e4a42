//! The annotations of the Lease: a user's approvals for many Services at once, and this leader's
//! note to the next one.

use std::{sync::Arc, time::Duration};

use ccm_controller::{
    approvals::{self, Approvals},
    brake::approval::Keys,
    handover,
};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::Translator;
use crate::machine::event::Event;

/// The time between two looks: that between two renewals of the Lease.
const PERIOD: Duration = Duration::from_secs(2);
/// How long departures are collected. The sooner the next renewal contains them, the fewer of them
/// are lost when a leader is killed.
const TOGETHER: Duration = Duration::from_millis(100);

/// The annotations of the Lease that approve the replacement of load balancers. They differ from
/// the annotations that approve that members leave, because planned work on nodes should not
/// replace load balancers.
const REPLACEMENTS: Keys = Keys {
    selector: "quartet.dev/replacements-approved-selector",
    until: "quartet.dev/replacements-approved-until",
};

impl Translator {
    /// Takes over what the last leader has left.
    pub(crate) fn take_over(&self) {
        let left = handover::found(&self.performer.lease);
        self.performer.apply(Event::TermBegins(Box::new(left)));
    }

    /// Follows the approvals until the token is cancelled.
    pub(crate) async fn follow_approvals(self: Arc<Self>, token: CancellationToken) {
        let lease = &self.performer.lease;
        let what = "that load balancers that are lost are replaced";
        let all = [
            Approvals::new(lease, "that held members leave"),
            Approvals::with_keys(lease, REPLACEMENTS, what),
        ];
        let changed = |approved| drop(self.performer.apply(Event::Approved(approved)));
        approvals::follow(all, token, changed).await;
    }

    /// Leaves to the next leader what it should know, until the token is cancelled.
    pub(crate) async fn follow_note(self: Arc<Self>, token: CancellationToken) {
        let work = async {
            loop {
                if timeout(PERIOD, self.performer.wakes.note.notified()).await.is_ok() {
                    sleep(TOGETHER).await;
                }
                if self.performer.door.read(|machine, _| machine.has_note()) {
                    self.leave(false);
                }
            }
        };
        token.run_until_cancelled(work).await;
    }

    /// Waits until the next leader would know which load balancers are deleted or replaced now, even if
    /// this one dies of it.
    pub(crate) async fn store_note(&self) {
        self.leave(true);
        self.performer.lease.stored().await;
    }

    fn leave(&self, must: bool) {
        // Two tasks do this, and an older note must not replace a newer one.
        let _alone = self.performer.noting.lock();
        let mut gone = self.performer.door.read(|machine, _| machine.marked_nodes());
        gone.retain(|node| self.nodes.get(node).is_none());
        self.performer.apply(Event::NoteDue { gone, must });
    }
}
