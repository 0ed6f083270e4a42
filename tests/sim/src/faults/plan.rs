//! The active faults, and their effects on a call.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use rand::{Rng, SeedableRng, rngs::StdRng};
use tokio::time::Instant;

use super::{Fault, FaultEffect, Operation, Trouble};

/// Identifies a fault in its plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FaultId(u64);

impl FaultId {
    /// Returns its number in the plan.
    pub fn number(self) -> u64 {
        self.0
    }
}

/// The active faults. Clones share the plan.
#[derive(Clone, Debug)]
pub struct FaultPlan {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug)]
struct Inner {
    faults: Vec<Active>,
    next: u64,
    random: StdRng,
}

#[derive(Debug)]
struct Active {
    id: FaultId,
    fault: Fault,
    ends: Option<Instant>,
}

impl Default for FaultPlan {
    fn default() -> Self {
        Self::seeded(0)
    }
}

impl FaultPlan {
    /// Returns an empty plan. Its random choices repeat for the same seed and the same calls.
    pub fn seeded(seed: u64) -> Self {
        let inner = Inner { faults: Vec::new(), next: 0, random: StdRng::seed_from_u64(seed) };
        Self { inner: Arc::new(Mutex::new(inner)) }
    }

    /// Activates a fault.
    pub fn add(&self, fault: Fault) -> FaultId {
        let mut inner = self.inner.lock();
        let id = FaultId(inner.next);
        inner.next += 1;
        let ends = fault.lasting.map(|lasting| Instant::now() + lasting);
        inner.faults.push(Active { id, fault, ends });
        id
    }

    /// Ends a fault. Returns false if it has ended already.
    pub fn remove(&self, id: FaultId) -> bool {
        let mut inner = self.inner.lock();
        let before = inner.faults.len();
        inner.faults.retain(|active| active.id != id);
        inner.faults.len() < before
    }

    /// Returns true if a fault has not ended.
    pub fn is_active(&self, id: FaultId) -> bool {
        let mut inner = self.inner.lock();
        inner.expire();
        inner.faults.iter().any(|active| active.id == id)
    }

    /// Ends all faults.
    pub fn clear(&self) {
        self.inner.lock().faults.clear();
    }

    /// Returns the number of active faults.
    pub fn len(&self) -> usize {
        let mut inner = self.inner.lock();
        inner.expire();
        inner.faults.len()
    }

    /// Returns true if no fault is active.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns true if lookups return each answer when it is known.
    pub(crate) fn streams(&self) -> bool {
        let mut inner = self.inner.lock();
        inner.expire();
        let mut effects = inner.faults.iter().map(|active| &active.fault.effect);
        effects.any(|effect| matches!(effect, FaultEffect::OneByOne { streams: true, .. }))
    }

    /// Returns the effect on a load balancer with one of these names in a call of this operation.
    pub(crate) fn trouble(&self, operation: Operation, names: &[String]) -> Option<Trouble> {
        self.inner.lock().trouble(operation, names)
    }

    /// Returns the effect on the next call of this operation.
    pub(crate) fn strike(&self, operation: Operation) -> Strike {
        self.inner.lock().strike(operation)
    }
}

/// The effect on one call.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Strike {
    /// It takes this much longer.
    pub(crate) delay: Duration,
    /// It takes this much longer for each node, one after another.
    pub(crate) each: Duration,
    /// The effect after the delay.
    pub(crate) effect: Option<FaultEffect>,
}

impl Inner {
    fn expire(&mut self) {
        let now = Instant::now();
        self.faults.retain(|active| {
            active.ends.is_none_or(|ends| now < ends) && active.fault.times != Some(0)
        });
    }

    fn trouble(&mut self, operation: Operation, names: &[String]) -> Option<Trouble> {
        self.expire();
        let Self { faults, random, .. } = self;
        faults.iter_mut().find_map(|Active { fault, .. }| {
            let (FaultEffect::LoadBalancers(only, trouble) | FaultEffect::Routes(only, trouble)) =
                &fault.effect
            else {
                return None;
            };
            let meant = only.is_empty() || only.iter().any(|name| names.contains(name));
            let trouble = trouble.clone();
            (meant && fault.applies_to(operation) && fault.hits(random)).then_some(trouble)
        })
    }

    fn strike(&mut self, operation: Operation) -> Strike {
        self.expire();
        let mut strike = Strike::default();
        for Active { fault, .. } in &mut self.faults {
            if matches!(fault.effect, FaultEffect::LoadBalancers(..) | FaultEffect::Routes(..)) {
                continue;
            }
            let delays = matches!(
                fault.effect,
                FaultEffect::Latency(_)
                    | FaultEffect::LatencyBetween(..)
                    | FaultEffect::OneByOne { .. }
            );
            if !fault.applies_to(operation)
                || (!delays && strike.effect.is_some())
                || !fault.hits(&mut self.random)
            {
                continue;
            }
            match &fault.effect {
                FaultEffect::Latency(time) => strike.delay += *time,
                FaultEffect::LatencyBetween(least, most) => {
                    strike.delay +=
                        *least + most.saturating_sub(*least).mul_f64(self.random.random());
                }
                FaultEffect::OneByOne { each, .. } => strike.each += *each,
                effect => strike.effect = Some(effect.clone()),
            }
        }
        strike
    }
}
