//! The external protocol on the simulated cloud, in addition to the contract (`tests/contract`):
//! its content, large calls, late starts, failures, replacement, wrong configuration, untrusted
//! peers.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail by panic")]

mod calls;
mod configuration;
mod life;
mod parts;
mod place;
mod program;
mod serving;
mod transport;
mod whole;
