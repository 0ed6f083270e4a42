//! Lookups of nodes in calls that are as large as the cloud answers in time: of some nodes, of all,
//! or of those in a queue.

mod stage;

use std::sync::Arc;

use ccm_cloud::{Call, Cloud, CloudError, Detail, ErrorKind, LookupResult};
use ccm_objects::Node;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{
    batch_size::{BatchCall, BatchSize, may_concern_all},
    instances,
};

pub use self::stage::{Asker, BATCH, NextStep, Stage, Work};

/// After this number of calls in a row without any answer, the other nodes are not asked about.
const MANY_UNANSWERED: u32 = 3;

/// Lookups whose number of nodes per call adapts to the cloud.
pub struct SizedLookups {
    cloud: Arc<dyn Cloud>,
    most: usize,
    size: Mutex<BatchSize>,
}

impl SizedLookups {
    /// Begins with `most` nodes per call.
    pub fn new(cloud: Arc<dyn Cloud>, most: usize) -> Self {
        Self { cloud, most, size: Mutex::new(BatchSize::new(most)) }
    }

    /// Returns the maximum number of nodes in the next call.
    pub fn size(&self) -> usize {
        self.size.lock().get()
    }

    /// Looks up these nodes in one call, like [`instances::lookup_each`]: `answered` gets each
    /// result with the index of its node. If the call had too many nodes, the nodes that it failed
    /// for are returned instead, with their errors: a call with fewer nodes may answer them.
    ///
    /// Errors that may concern the whole call are delivered at its end.
    pub async fn ask(
        &self,
        nodes: &[Arc<Node>],
        detail: Detail,
        call: Call,
        mut answered: impl FnMut(usize, LookupResult),
    ) -> Vec<(usize, LookupResult)> {
        let (started, mut succeeded, mut unanswered) = (Instant::now(), 0, Vec::new());
        let sort = |place, answer: LookupResult| {
            succeeded += usize::from(answer.is_ok());
            if may_concern_all(&answer) {
                unanswered.push((place, answer));
            } else {
                answered(place, answer);
            }
        };
        instances::lookup_each(&*self.cloud, nodes, detail, call, sort).await;
        let (asked, took, limit) = (nodes.len(), started.elapsed(), call.timeout);
        let ended = BatchCall { asked, answered: asked - unanswered.len(), took, limit };
        // Errors alone, such as a refused connection, show nothing about the size.
        if succeeded > 0 || !unanswered.is_empty() {
            self.learn(&ended);
        }
        if ended.is_too_large() {
            return unanswered;
        }
        for (place, answer) in unanswered {
            answered(place, answer);
        }
        Vec::new()
    }

    /// Looks up all of these nodes, in as few calls as the cloud answers in time. `answered` gets
    /// the results of each call at its end, with the indices of their nodes and the beginning of
    /// the call. Returns the nodes that the cloud does not answer about, with their errors.
    pub async fn ask_all(
        &self,
        nodes: &[Arc<Node>],
        detail: Detail,
        call: impl Fn() -> Call,
        mut answered: impl FnMut(Instant, Vec<(usize, LookupResult)>),
    ) -> Vec<(usize, LookupResult)> {
        let mut open: Vec<usize> = (0..nodes.len()).rev().collect();
        let mut late = CloudError::new(ErrorKind::Timeout, "the cloud answers too slowly");
        let mut silent_calls = 0;
        while !open.is_empty() && silent_calls < MANY_UNANSWERED {
            let part = open.split_off(open.len().saturating_sub(self.size()));
            let asked: Vec<_> = part.iter().filter_map(|at| nodes.get(*at).cloned()).collect();
            let (started, mut answers) = (Instant::now(), Vec::with_capacity(part.len()));
            let take = |place: usize, answer| {
                answers.extend(part.get(place).map(|at| (*at, answer)));
            };
            let again = self.ask(&asked, detail, call(), take).await;
            let is_silent = answers.iter().all(|(_, answer)| answer.is_err());
            silent_calls = if is_silent { silent_calls + 1 } else { 0 };
            answered(started, answers);
            for (place, answer) in again.into_iter().rev() {
                open.extend(part.get(place));
                late = answer.err().unwrap_or(late);
            }
        }
        open.into_iter().map(|at| (at, Err(late.clone()))).collect()
    }

    /// Adapts the size of the next calls.
    fn learn(&self, call: &BatchCall) {
        let (before, now) = {
            let mut size = self.size.lock();
            let before = size.get();
            size.learn(call);
            (before, size.get())
        };
        let (BatchCall { asked, answered, took, .. }, most) = (call, self.most);
        if now < before {
            tracing::warn!(
                asked,
                answered,
                "the cloud answered {answered} of {asked} lookups of a call within {took:?}; the next calls have at most {now} nodes"
            );
        } else if now > before && now == most {
            tracing::info!("calls to the cloud have up to {most} nodes again");
        }
    }
}

#[cfg(test)]
mod tests;
