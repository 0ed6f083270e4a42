//! Helpers for the unit tests of several crates. No program links it.

mod log;

pub use log::Log;
