//! The election against a small API server in memory, on paused time: the ways in which
//! two replicas could lead, and what it takes for one to lead.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::float_cmp,
    reason = "a helper of a test fails as the test does"
)]

mod blind;
mod chaos;
mod clocks;
mod elections;
mod lease_api;
mod line;
mod loss;
mod races;
mod records;
mod replicas;
mod sharing;
