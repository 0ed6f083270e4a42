//! `RangeAllocator`: the turns of nodes.

use std::sync::Arc;

use ccm_controller::workers;
use ccm_objects::Shared as Name;
use tokio_util::sync::CancellationToken;

use super::WRITERS;
use crate::node_ipam::{machine::Event, perform::writes::Writes};

/// Works on the queue until the token is cancelled.
pub(crate) async fn run(writes: Arc<Writes>, token: CancellationToken) {
    let queue = writes.performer.queue.clone();
    let work = move |name: Name| {
        let writes = Arc::clone(&writes);
        async move {
            let node = writes.performer.store.get(&name);
            writes.apply(Event::Turn { name, node }).await;
        }
    };
    workers::by_key(queue, || WRITERS, token, work).await;
}
