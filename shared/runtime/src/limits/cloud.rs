//! Rate limits for requests to a cloud.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;

use super::{
    LimitMetrics, Rate, TokenBucket, Tuning,
    metrics::{ClassLabel, LimiterLabels},
};

/// The rates for each cloud service.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CloudRates {
    /// Read requests.
    pub read: Rate,
    /// Write requests.
    pub write: Rate,
}

/// Two buckets per cloud service, one for reads and one for writes, created at the first
/// request. Clones share the buckets.
#[derive(Clone, Debug)]
pub struct CloudLimits {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    metrics: LimitMetrics,
}

#[derive(Debug)]
struct State {
    rates: CloudRates,
    buckets: BTreeMap<LimiterLabels, TokenBucket>,
}

impl CloudRates {
    fn of(&self, class: ClassLabel) -> Rate {
        match class {
            ClassLabel::Write => self.write,
            ClassLabel::Read | ClassLabel::Event => self.read,
        }
    }
}

impl CloudLimits {
    /// Limits with these rates.
    pub fn new(rates: CloudRates, metrics: &LimitMetrics) -> Self {
        let state = Mutex::new(State { rates, buckets: BTreeMap::new() });
        Self { shared: Arc::new(Shared { state, metrics: metrics.clone() }) }
    }

    /// Changes the rates of all services, also for waiting requests.
    pub fn configure(&self, rates: CloudRates) {
        let mut state = self.shared.state.lock();
        state.rates = rates;
        for (labels, bucket) in &state.buckets {
            bucket.configure(rates.of(labels.1));
        }
    }

    /// The bucket for this service's reads or writes.
    pub fn bucket(&self, service: &'static str, write: bool) -> TokenBucket {
        let class = if write { ClassLabel::Write } else { ClassLabel::Read };
        let labels = (service, class);
        let mut state = self.shared.state.lock();
        let rate = state.rates.of(class);
        let make = || self.shared.metrics.bucket(labels, rate, Tuning::default());
        state.buckets.entry(labels).or_insert_with(make).clone()
    }
}
