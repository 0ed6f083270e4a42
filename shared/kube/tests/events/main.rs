//! The event recorder against a server that stores events, refuses them, or hangs.
//!
//! client-go's scenarios of writing; its scenarios of aggregation are with the correlator.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bench;
mod trouble;
mod writing;
