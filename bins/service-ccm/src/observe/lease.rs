//! The annotations of the Lease: which members have left, which orphans were deleted and which load
//! balancers were replaced, for the next leader, so that a change of leader gives no new budget; the nodes that all load balancers have, so that it
//! costs no reads; and what a user approves for many Services at once.

use std::{collections::BTreeMap, time::Duration};

use ccm_cloud::Digest;
use ccm_controller::{
    approvals::Approvals,
    brake::{
        Window,
        approval::{Keys, SetApproval},
    },
    handover,
    queue::Priority,
};
use ccm_objects::Shared as Name;
use ccm_runtime::leadership::LeaseAnnotations;
use serde::{Deserialize, Deserializer, Serialize};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::Handles;
use crate::{
    machine::Inherited,
    plan::{
        REPLACEMENT_APPROVED,
        losses::{self, Losses},
        marks::Marks,
        members::Departures,
        orphans::{BUDGET, Orphans},
    },
};

/// The time between two looks: that between two renewals of the Lease.
const PERIOD: Duration = Duration::from_secs(2);
/// How long departures are collected. The sooner the next renewal has them, the fewer a leader
/// that is killed conceals.
const TOGETHER: Duration = Duration::from_millis(100);
/// For how long after its end a node's mark is left to the next leader: members may be held, or the
/// cloud may fail.
const MARKED: Duration = Duration::from_hours(1);

/// The annotations of the Lease that approve the replacement of load balancers. They are not those that
/// approve that members leave: planned work on nodes should replace no load balancer.
const REPLACEMENTS: Keys = Keys {
    selector: "quartet.dev/replacements-approved-selector",
    until: "quartet.dev/replacements-approved-until",
};

/// What the Lease approves: that members leave, and that load balancers are replaced.
#[derive(Debug, Default)]
pub(crate) struct Approved([Option<SetApproval>; 2]);

impl Approved {
    /// Returns true if what this key stands for is approved for a Service with these labels.
    pub(crate) fn covers(&self, key: &str, labels: &BTreeMap<Name, Name>) -> bool {
        let [members, replacements] = &self.0;
        let set = if key == REPLACEMENT_APPROVED { replacements } else { members };
        set.as_ref().is_some_and(|set| set.covers(labels))
    }
}

/// What a leader leaves to the next one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Left {
    #[serde(flatten)]
    members: Departures,
    /// The marks of nodes that are gone, and may still be members.
    #[serde(default, skip_serializing_if = "Marks::is_empty")]
    marks: Marks,
    /// The load balancers without a Service that were deleted.
    #[serde(default)]
    orphans: Window,
    /// The Services whose load balancers were replaced.
    #[serde(default)]
    replaced: Window,
    /// The digest of the nodes that all load balancers have; none while some have others. With the
    /// same nodes the next leader need not read the members of all at once.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "lenient")]
    settled: Option<Digest>,
}

impl handover::Shorten for Left {
    fn shorten(&mut self) -> bool {
        self.marks.shorten()
            || self.members.sum_up()
            || self.orphans.sum_up()
            || self.replaced.sum_up()
    }
}

/// Ignores a digest that cannot be read: only the budgets must not get lost.
fn lenient<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Digest>, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.and_then(|text| text.parse().ok()))
}

/// Takes over what the last leader has left.
pub(crate) fn take_over(handles: &Handles, lease: &LeaseAnnotations) {
    let (now, left) = (handles.timeline.now(), handover::found::<Left>(lease));
    let inherited = Inherited { departures: left.members, settled: left.settled };
    handles.balancers.machine().inherit(now, inherited);
    handles.went.lock().add_earlier(left.marks);
    *handles.orphans.lock() = Orphans::resume(now, left.orphans);
    *handles.losses.lock() = Losses::resume(now, left.replaced);
    // What is still in the window is to be left to the leader after this one as well.
    handles.balancers.set_departures();
}

/// Reads approvals, and leaves to the next leader what it should know, until the token is cancelled.
pub(crate) async fn run(handles: Handles, lease: LeaseAnnotations, token: CancellationToken) {
    let work = async {
        let mut members = Approvals::new(&lease, "that held members leave");
        let what = "that load balancers that are lost are replaced";
        let mut replacements = Approvals::of(&lease, REPLACEMENTS, what);
        let mut settled = None;
        loop {
            if members.read() | replacements.read() {
                let approved = [&members, &replacements].map(|one| one.current().cloned());
                approve(&handles, Approved(approved));
            }
            if timeout(PERIOD, handles.balancers.departed()).await.is_ok() {
                sleep(TOGETHER).await;
            }
            if settled != handles.balancers.machine().settled() {
                settled = handles.balancers.machine().settled();
                handles.balancers.machine().keep_departures();
            }
            leave(&handles, &lease);
        }
    };
    token.run_until_cancelled(work).await;
}

/// Another approval: what is held may change now.
fn approve(handles: &Handles, approved: Approved) {
    *handles.approved.lock() = approved;
    let mut held: Vec<Name> = Vec::new();
    handles.balancers.each(|name, entry| {
        if entry.held() > 0 || entry.is_replacement_held() {
            held.push(Name::clone(name));
        }
    });
    for name in held {
        handles.queue.add(name, Priority::Routine);
    }
}

/// Waits until the next leader would know which load balancers are deleted or replaced now, even if
/// this one dies of it.
pub(crate) async fn store(handles: &Handles, lease: &LeaseAnnotations) {
    handles.balancers.machine().keep_departures();
    leave(handles, lease);
    lease.stored().await;
}

/// Leaves to the next leader which members have left lately, which orphans were deleted, and the
/// nodes that all load balancers have.
fn leave(handles: &Handles, lease: &LeaseAnnotations) {
    // Two tasks do this: what is older must not replace what is newer.
    let _alone = handles.balancers.leaving.lock();
    let settled = handles.balancers.machine().settled();
    let window = handles.settings.borrow().load_balancer_member_loss_window;
    let now = handles.timeline.now();
    let Some(members) = handles.balancers.machine().departures(now - window) else { return };
    let orphans = handles.orphans.lock().window(now - BUDGET.window);
    let replaced = handles.losses.lock().window(now - losses::BUDGET.window);
    let is_there = |node: &str| handles.nodes.get(node).is_some();
    let marks = handles.node_set.borrow().marks.of_gone(is_there, now - MARKED);
    let left = Left { members, marks, orphans, replaced, settled: None };
    if left != Left::default() {
        // They leave the window in time.
        handles.balancers.machine().keep_departures();
    }
    handover::keep(lease, &Left { settled, ..left });
}
