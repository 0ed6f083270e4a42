//! Turns the news for the controller of routes into events.

pub(crate) mod pass;

use std::{sync::Arc, time::Duration};

use ccm_controller::{approvals, watch::Stores, workers};
use ccm_kube::store::Change;
use ccm_objects::{Node, Shared as Name};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{Parts, machine::Event, nodes::Nodes, perform::conditions::Conditions};

/// How many conditions are written at once. A write in flight takes some 50 KB, including the
/// answer and the object that is read from it. More at once are not faster.
const WRITERS: usize = 16;
/// The time between two searches for conditions that an earlier controller has left.
const LEFT_OVER: Duration = Duration::from_mins(1);

/// Returns the event for a change of a node.
pub(crate) fn change_event(nodes: &Nodes, change: &Change<Node>) -> Event {
    match change {
        Change::Added(node) => Event::Changed { before: None, after: nodes.view(node) },
        Change::Updated { old, new } => {
            Event::Changed { before: Some(nodes.view(old)), after: nodes.view(new) }
        }
        Change::Deleted(node) => {
            let is_marked = node.has_taint_of(&nodes.settings.borrow().scale_down_taints);
            Event::Gone { view: nodes.view(node), is_marked }
        }
    }
}

/// Looks at the routes when a user has approved changes, until the token is cancelled.
pub(crate) async fn approvals(parts: Parts, token: CancellationToken) {
    let held = approvals::Approvals::new(&parts.lease, "that held changes of routes are made");
    approvals::follow([held], token, |_| parts.performer.passes.wake()).await;
}

/// Works on the queue of conditions until the token is cancelled.
pub(crate) async fn conditions(conditions: Conditions, token: CancellationToken) {
    let queue = conditions.parts.performer.conditions.clone();
    let conditions = Arc::new(conditions);
    let work = move |name: Name| {
        let conditions = Arc::clone(&conditions);
        async move {
            let nodes = &conditions.parts.nodes;
            let node = nodes.store.get(&name).map(|node| nodes.told(&node));
            let lack = conditions.lack(&name);
            conditions.apply(Event::Condition { name, node, lack }).await;
        }
    };
    workers::by_key(queue, || WRITERS, token, work).await;
}

/// Looks for conditions that an earlier controller has left, until the token is cancelled.
pub(crate) async fn left_over(parts: Parts, stores: Stores, token: CancellationToken) {
    let look = async {
        stores.current().await;
        loop {
            parts.tell(Event::LeftOver(parts.nodes.all()));
            sleep(LEFT_OVER).await;
        }
    };
    token.run_until_cancelled(look).await;
}
