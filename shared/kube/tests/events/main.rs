//! The event recorder against a server that keeps events, refuses them, or is stuck.
//!
//! client-go's scenarios of writing; those of folding are with the correlator.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bench;
mod trouble;
mod writing;
