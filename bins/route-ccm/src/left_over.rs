//! Conditions that an earlier controller of routes has left on nodes for which this program makes none. It cannot
//! know that their network works, so it names them.

use std::time::Duration;

use ccm_controller::watch::Stores;
use ccm_runtime::health::{Condition, Health, Scope};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::{Handles, routes::plan::condition};

/// The time between two looks.
const PERIOD: Duration = Duration::from_mins(1);

/// The line of `/readyz?verbose`.
pub(crate) fn line(health: &Health) -> Condition {
    let line = health.condition("left-over-conditions", Scope::Information, "");
    line.pass("not looked yet: this replica does not lead");
    line
}

/// Looks until the token is cancelled.
pub(crate) async fn run(handles: Handles, stores: Stores, token: CancellationToken) {
    let look = async {
        stores.current().await;
        loop {
            handles.look_for_left_over();
            sleep(PERIOD).await;
        }
    };
    token.run_until_cancelled(look).await;
}

impl Handles {
    fn look_for_left_over(&self) {
        let mut nodes = self.observer.store.list();
        nodes.retain(|node| {
            condition::is_not_created(node) && (!self.has_routes || self.observer.is_left_out(node))
        });
        for node in &nodes {
            self.reports.left_over(node);
        }
        self.metrics.left_over(nodes.len());
        match nodes.first() {
            None => self.left_over.pass("none"),
            Some(first) => self.left_over.fail(format!(
                "{} nodes have NetworkUnavailable=True of a controller that made their routes, and this one makes none for them, first: {}",
                nodes.len(),
                first.name
            )),
        }
    }
}
