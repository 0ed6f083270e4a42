//! The limits of requests to a cloud.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;

use super::{
    LimitMetrics, Rate, TokenBucket, Tuning,
    metrics::{ClassLabel, LimiterLabels},
};

/// The rates for each service of a cloud.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CloudRates {
    /// Requests that change nothing.
    pub read: Rate,
    /// Requests that change something.
    pub write: Rate,
}

/// Two buckets for each service of a cloud, one for reads and one for writes, made
/// when the first request comes. Clones are the same buckets.
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
    /// Limits of these rates.
    pub fn new(rates: CloudRates, metrics: &LimitMetrics) -> Self {
        let state = Mutex::new(State { rates, buckets: BTreeMap::new() });
        Self { shared: Arc::new(Shared { state, metrics: metrics.clone() }) }
    }

    /// Changes the rates of all services, for requests that wait as well.
    pub fn configure(&self, rates: CloudRates) {
        let mut state = self.shared.state.lock();
        state.rates = rates;
        for (labels, bucket) in &state.buckets {
            bucket.configure(rates.of(labels.1));
        }
    }

    /// The bucket of this service's reads or writes.
    pub fn bucket(&self, service: &'static str, write: bool) -> TokenBucket {
        let class = if write { ClassLabel::Write } else { ClassLabel::Read };
        let labels = (service, class);
        let mut state = self.shared.state.lock();
        let rate = state.rates.of(class);
        let make = || self.shared.metrics.bucket(labels, rate, Tuning::default());
        state.buckets.entry(labels).or_insert_with(make).clone()
    }
}
