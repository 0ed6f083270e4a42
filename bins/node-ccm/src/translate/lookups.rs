//! First stage: the nodes of the queue are looked up. The kit's stage takes them in batches and passes them on
//! to the workers.

use std::{sync::Arc, time::Duration};

use ccm_cloud::Call;
use ccm_controller::{
    lookups::{Asker, BATCH, NextStep, Stage, Work},
    queue::BatchWindowConfig,
};
use ccm_objects::{Node, Shared as Name};
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{Translator, workers::Senders};
use crate::{
    machine::{Due, Event, Request},
    perform::Performer,
};

/// How long a batch stays open after its first node. A cloud call takes longer than this, and
/// nodes that are created together register within about this time.
const FIRST_WAIT: Duration = Duration::from_millis(100);

/// The stage's questions and answers.
struct Lookups {
    source: Translator,
    performer: Arc<Performer>,
    senders: Senders,
}

/// Runs the stage until the token is cancelled; `closing` ends pending calls.
pub(crate) async fn run(
    source: Translator,
    performer: Arc<Performer>,
    senders: Senders,
    closing: CancellationToken,
    token: CancellationToken,
) {
    performer.metrics().limit_lookups(BATCH);
    let (Translator { cloud, store, .. }, queue) = (source.clone(), performer.queue().clone());
    let lookups = Lookups { source, performer, senders };
    let window = BatchWindowConfig { first: FIRST_WAIT, ..BatchWindowConfig::default() };
    Stage::new(lookups, &cloud, &store, &queue, &closing).run(window, token).await;
}

impl Asker for Lookups {
    fn next(&self, node: &Arc<Node>) -> NextStep {
        match self.performer.hear(Event::Look(self.source.seen(node))).pop() {
            Some(Request::Due(Due::Known(answer))) => NextStep::Known(answer),
            Some(Request::Due(Due::Ask)) => NextStep::Ask,
            _ => NextStep::Nothing,
        }
    }

    fn call(&self, nodes: &[Arc<Node>]) -> Call {
        let urgent = nodes.iter().any(|node| node.is_uninitialised());
        let limit = self.source.settings.borrow().cloud_call_timeout;
        if urgent { Call::waiting(limit) } else { Call::routine(limit) }
    }

    fn asked(&self, nodes: usize, most: usize) {
        self.performer.metrics().looked_up(nodes);
        self.performer.metrics().limit_lookups(most);
    }

    fn asks_again(&self, name: &Name) {
        self.performer.hear(Event::AskedAgain(Name::clone(name)));
    }

    fn record_answers(&self, works: &[Work], started: Instant) {
        let told = |Work { node, answer }: &Work| {
            self.performer.metrics().count_answer(answer);
            (Arc::clone(node), answer.clone())
        };
        let answers = works.iter().map(told).collect();
        self.performer.hear(Event::Answered { ago: started.elapsed(), answers });
    }

    fn workers(&self, node: &Node) -> &mpsc::Sender<Work> {
        if node.is_uninitialised() { &self.senders.new } else { &self.senders.settled }
    }

    fn done(&self, name: &Name) {
        self.source.done(&self.performer, name);
    }
}
