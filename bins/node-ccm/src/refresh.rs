//! Keeps initialised nodes true to their instances: one list of the fleet per period,
//! and work only for nodes that differ.

use std::{collections::HashSet, sync::Arc, time::Duration};

use ccm_base::Backoff;
use ccm_base::RetryClass;
use ccm_cloud::{Call, Claim, CloudError, Fleet, ProviderId};
use ccm_controller::{instances, inventory::Changes, queue::Priority};
use ccm_objects::Node;
use ccm_runtime::health::Condition;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::{
    controller::Controller,
    metrics::State,
    observe,
    plan::{Answer, plan},
};

/// The share of a period by which it is shorter or longer at random, so that programs
/// that were started together do not list together for ever.
const SPREAD: f64 = 0.1;
/// The waits after lists that failed.
const RETRY: Backoff = Backoff { first: Duration::from_secs(5), longest: Duration::from_mins(1) };

/// Refreshes until the token is cancelled: at once, and then every period.
pub(crate) async fn run(controller: Arc<Controller>, health: Condition, token: CancellationToken) {
    let mut settings = controller.settings.clone();
    let mut failures = 0;
    loop {
        let wait = tokio::select! {
            biased;
            () = token.cancelled() => return,
            result = controller.refresh() => match result {
                Ok(line) => {
                    failures = 0;
                    health.pass(line);
                    None
                }
                Err(error) => {
                    failures += 1;
                    health.fail(format!("the fleet could not be listed: {error}"));
                    Some(after_failure(&error, failures))
                }
            },
        };
        let unit = rand::random::<f64>();
        let ended = Instant::now();
        // A new period counts from the last refresh, too.
        loop {
            let period = spread(controller.settings().node_status_update_frequency, unit);
            let pause =
                wait.map_or(period, |wait| wait.min(period)).saturating_sub(ended.elapsed());
            tokio::select! {
                biased;
                () = token.cancelled() => return,
                () = sleep(pause) => break,
                Ok(()) = settings.changed() => {}
            }
        }
    }
}

/// A period that is up to [`SPREAD`] shorter or longer. `unit` is the random number.
fn spread(period: Duration, unit: f64) -> Duration {
    period.mul_f64(1.0 + SPREAD * (2.0 * unit - 1.0))
}

fn after_failure(error: &CloudError, failures: u32) -> Duration {
    match error.class() {
        RetryClass::RetryAfter(after) => after.max(RETRY.first),
        RetryClass::Permanent => RETRY.longest,
        RetryClass::Retry => RETRY.after(failures),
    }
}

impl Controller {
    /// Lists the fleet and queues what differs from it. Tells in a line what came of it.
    async fn refresh(&self) -> Result<String, CloudError> {
        if !self.has_settled_nodes() {
            return Ok("no initialised node to compare, so the fleet was not listed".to_owned());
        }
        let started = Instant::now();
        let time = self.settings().cloud_call_timeout;
        let listed = instances::list(&*self.cloud, Call::routine(time)).await;
        let result = match listed {
            Ok(fleet) => Ok(self.compare(fleet, started)),
            Err(error) => Err(error),
        };
        let took = started.elapsed();
        self.metrics.refreshed(
            took,
            result.as_ref().map(|seen| seen.differing).map_err(|error| error.kind),
        );
        match result {
            Ok(seen) => {
                let Seen { nodes, differing, instances } = seen;
                tracing::info!(instances, differing, "Update {nodes} nodes status took {took:?}.");
                Ok(format!("{instances} instances listed, {differing} of {nodes} nodes differ"))
            }
            Err(error) => {
                tracing::warn!(%error, "the fleet could not be listed; nodes stay as they are");
                Err(error)
            }
        }
    }

    /// Whether there is a node for which a list of the fleet is worth its calls: one
    /// that has been initialised and is not another provider's.
    fn has_settled_nodes(&self) -> bool {
        let settled =
            |node: &Arc<Node>| !node.is_uninitialised() && self.claim(node) != Some(Claim::Foreign);
        self.store.list().iter().any(settled)
    }

    /// Takes over the list and queues the nodes that differ from it.
    fn compare(&self, fleet: Fleet, started: Instant) -> Seen {
        let count = fleet.instances.len();
        let changes = self.inventory.apply(fleet, started);
        let news = News::of(&changes);
        let nodes = self.store.list();
        let differing = nodes.iter().filter(|node| self.differs(node, &news)).count();
        Seen { nodes: nodes.len(), differing, instances: count }
    }

    /// Whether the node is to be looked at; if so, it is queued.
    fn differs(&self, node: &Arc<Node>, news: &News) -> bool {
        let id = instances::canonical_id(&*self.cloud, node);
        if node.is_uninitialised() {
            // It is on its way through the queue, but may be waiting for what the list
            // has just shown.
            if news.concern(&node.name, id.as_deref()) {
                self.queue.add(Arc::clone(&node.name), Priority::Urgent);
            }
            return false;
        }
        let claim = match self.claim(node) {
            Some(Claim::Foreign) => {
                self.foreign(node);
                return false;
            }
            None => return false,
            Some(claim) => claim,
        };
        let known = id.as_deref().map(|id| self.inventory.get(id));
        let Some(Ok(Some(instance))) = known else {
            // Not in the list, or not to be told apart in it: that proves nothing.
            self.ledger.demand(&node.name);
            self.queue.add(Arc::clone(&node.name), Priority::Routine);
            return true;
        };
        let is_new = news.contains(&instance.provider_id);
        let plan =
            plan(&observe::facts(node), claim, &Answer::Found(instance), self.settings().policy());
        if plan.steps.is_empty() {
            self.ledger.set_state(&node.name, State::Initialised);
            self.tell_notes(node, &plan);
            self.plans.clear("Node", &node.name);
            return false;
        }
        if is_new {
            // Nothing is taken from a node on the word of a list alone.
            self.ledger.demand(&node.name);
        }
        self.queue.add(Arc::clone(&node.name), Priority::Routine);
        true
    }
}

/// What a refresh has seen.
struct Seen {
    nodes: usize,
    differing: usize,
    instances: usize,
}

/// The instances that the last list showed for the first time, or otherwise than before.
#[derive(Default)]
struct News {
    ids: HashSet<ProviderId>,
    names: HashSet<String>,
}

impl News {
    fn of(changes: &Changes) -> Self {
        let mut news = Self::default();
        for instance in changes.new.iter().chain(&changes.changed) {
            news.ids.insert(instance.provider_id.clone());
            news.ids.extend(instance.other_ids.iter().cloned());
            news.names.insert(instance.name.clone());
        }
        news
    }

    fn contains(&self, id: &ProviderId) -> bool {
        self.ids.contains(id)
    }

    /// Whether one of them is the instance of this node, as far as a list can tell: by
    /// provider ID, or by name while the node has none.
    fn concern(&self, node: &str, id: Option<&str>) -> bool {
        match id {
            Some(id) => ProviderId::parse(id).is_ok_and(|id| self.ids.contains(&id)),
            None => self.names.contains(node),
        }
    }
}

#[cfg(test)]
mod tests;
