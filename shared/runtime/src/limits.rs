//! Request rate limits: for the API server, and for each service of a cloud.
//!
//! A [`TokenBucket`] is one limit. Its rate and burst can change while requests wait. Waiters
//! are served in order of arrival, urgent ones before routine ones (which get a share all the
//! same). The server influences the rate: a `Retry-After` closes the bucket for that time, a
//! 429 halves its rate, and success restores the rate over a minute.
//!
//! [`ApiLimits`] and [`CloudLimits`] map a request to its bucket. `bucket` is pure arithmetic
//! without a clock; `token_bucket` waits and wakes.

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
