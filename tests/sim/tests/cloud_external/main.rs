//! The external provider's lifecycle: late starts, failures, replacement, wrong
//! configuration, and untrusted peers.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail by panic")]

mod configuration;
mod life;
mod place;
mod serving;
mod transport;
