//! Helpers for the unit tests of several crates. No program links it.

mod log;
mod said;

pub use log::Log;
pub use said::{check_line, checked};
