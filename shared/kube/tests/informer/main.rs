//! The informer against a server that lists, watches and misbehaves.
//!
//! The server keeps nodes, a log of their changes and a compaction point of the log; it
//! answers like a kube-apiserver. Time is paused, so that minutes of back-off take no time.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod changes;
mod faults;
mod freshness;
mod malformed;
mod running;
mod server;
mod silence;
mod writes;
