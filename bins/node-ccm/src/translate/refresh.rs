//! Looks up all nodes once per period.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use ccm_cloud::{Call, CloudError, Detail, Lookup, LookupResult};
use ccm_controller::{
    fleet::{FleetLine, Oddity},
    lookups::SizedLookups,
    passes::{NextPass, Pass},
};
use ccm_objects::Node;
use ccm_runtime::health::Condition;
use tokio::time::Instant;

use super::Translator;
use crate::{
    machine::{Event, KnownAnswer, Request},
    perform::Performer,
};

/// The most nodes in one lookup: the provider decides how many of its own requests that takes,
/// and whether one list is cheaper.
const MOST: usize = 10_000;

/// Looks up all nodes, and lets the machine compare them with their instances.
pub(crate) struct Refresh {
    source: Translator,
    performer: Arc<Performer>,
    line: FleetLine,
    sized: SizedLookups,
}

impl Pass for Refresh {
    async fn pass(&mut self) -> NextPass {
        let nodes = self.source.store.list();
        let seen = nodes.iter().map(|node| self.source.seen(node)).collect();
        let mut requests = self.performer.hear(Event::Refresh(seen));
        for node in &nodes {
            self.source.if_gone(&self.performer, &node.name);
        }
        // The selector excludes the nodes of another cloud controller on purpose.
        let mut selected = nodes;
        selected.retain(|node| self.source.selects(node));
        let foreign = Oddity::of_ids(&*self.source.cloud, &selected);
        let Some(Request::LookUp(nodes)) = requests.pop() else {
            self.line.show(foreign.as_ref(), "no initialised nodes, so no lookup was made");
            return NextPass::Period;
        };
        match self.refresh(&nodes, foreign).await {
            Ok((oddity, line)) => {
                self.line.show(oddity.as_ref(), line);
                NextPass::Period
            }
            Err(error) => {
                self.line.fail(format!("cannot look up the nodes: {error}"));
                NextPass::Failed(error.class())
            }
        }
    }

    fn period(&self) -> Duration {
        self.source.settings.borrow().node_status_update_frequency
    }
}

impl Refresh {
    pub(crate) fn new(source: &Translator, performer: &Arc<Performer>, health: Condition) -> Self {
        let (source, performer) = (source.clone(), Arc::clone(performer));
        let sized = SizedLookups::new(Arc::clone(&source.cloud), MOST);
        Self { source, performer, line: FleetLine::new(health), sized }
    }

    /// Looks up these nodes and lets the machine compare them. Logs the result in one line. Returns
    /// it with the oddity.
    ///
    /// # Errors
    ///
    /// The reason why the cloud has not answered about any node. A node without an answer does not
    /// delay other nodes.
    async fn refresh(
        &self,
        nodes: &[Arc<Node>],
        foreign: Option<Oddity>,
    ) -> Result<(Option<Oddity>, String), CloudError> {
        let (started, metrics) = (Instant::now(), self.performer.metrics());
        let answers = self.look_up(nodes).await;
        let unanswered = answers.iter().filter_map(KnownAnswer::error).count();
        let error = answers.iter().find_map(KnownAnswer::error).cloned();
        if let Some(error) = error.clone().filter(|_| unanswered == nodes.len()) {
            metrics.refreshed(started.elapsed(), Err(error.kind));
            tracing::warn!(%error, "cannot look up the nodes; initialised nodes are not updated until a lookup succeeds");
            return Err(error);
        }
        let oddity = foreign.or_else(|| not_found(nodes, &answers));
        for (node, answer) in nodes.iter().zip(answers) {
            self.performer.hear(Event::Compare { seen: self.source.seen(node), answer });
        }
        let took = started.elapsed();
        let differing = match self.performer.hear(Event::Compared { ago: took }).pop() {
            Some(Request::Differing(differing)) => differing,
            _ => 0,
        };
        let nodes = nodes.len();
        metrics.refreshed(took, Ok(differing));
        tracing::info!(differing, unanswered, "Update {nodes} nodes status took {took:?}.");
        let line = format!("{nodes} nodes looked up, {differing} differ");
        let line = match error {
            Some(error) => format!("{line}; {unanswered} not answered, the first: {error}"),
            None => line,
        };
        Ok((oddity, line))
    }

    /// Looks up all of these nodes. The machine keeps the instances that are found. Returns exactly one answer for
    /// each node.
    async fn look_up(&self, nodes: &[Arc<Node>]) -> Vec<KnownAnswer> {
        let mut answers: BTreeMap<usize, KnownAnswer> = BTreeMap::new();
        let take = |started: Instant, part: Vec<(usize, LookupResult)>| {
            let mut instances = Vec::new();
            for (at, answer) in part {
                self.performer.metrics().count_answer(&answer);
                let answer = match answer {
                    Ok(Lookup::Found(instance)) => {
                        let id = instance.provider_id.clone();
                        instances.push(*instance);
                        KnownAnswer::Found(id)
                    }
                    other => KnownAnswer::Other(other),
                };
                answers.insert(at, answer);
            }
            self.performer.hear(Event::Found { ago: started.elapsed(), instances });
        };
        let call = || Call::routine(self.source.settings.borrow().cloud_call_timeout);
        let late = self.sized.ask_all(nodes, Detail::Everything, call, take).await;
        answers.extend(late.into_iter().map(|(at, answer)| (at, KnownAnswer::Other(answer))));
        answers.into_values().collect()
    }
}

/// Returns a finding if the cloud does not know any of the initialised nodes. A node without an
/// answer counts as known.
fn not_found(nodes: &[Arc<Node>], answers: &[KnownAnswer]) -> Option<Oddity> {
    let initialised = nodes.iter().zip(answers).filter(|(node, _)| !node.is_uninitialised());
    let is_gone = |answer: &KnownAnswer| matches!(answer, KnownAnswer::Other(Ok(Lookup::Gone(_))));
    let gone = initialised.clone().filter(|(_, answer)| is_gone(answer)).count();
    let of = initialised.count();
    Oddity::of_answers(of - gone, of)
}
