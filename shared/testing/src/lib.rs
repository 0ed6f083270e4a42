//! What the unit tests of several crates need. No program is built with it.

mod log;

pub use log::Log;
