//! Limits on the rate of requests: to the API server, and to each service of a cloud.
//!
//! A [`TokenBucket`] is one limit. Its rate and burst can be changed while requests
//! wait. Waiters are served in the order in which they came, those that somebody
//! waits for before routine ones (which get a share all the same). The other side
//! has its say: a `Retry-After` closes the bucket for that time, a 429 halves its
//! rate, and success restores the rate over a minute.
//!
//! [`ApiLimits`] and [`CloudLimits`] say which request pays from which bucket.
//! `bucket` holds the arithmetic and knows no clock; `token_bucket` waits and wakes.

mod api;
mod bucket;
mod cloud;
mod metrics;
mod token_bucket;

pub use self::{
    api::{ApiLimits, ApiRates},
    bucket::{Rate, Tuning},
    cloud::{CloudLimits, CloudRates},
    metrics::LimitMetrics,
    token_bucket::{Refused, TokenBucket},
};

#[cfg(test)]
mod tests;
