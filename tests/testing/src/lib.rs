//! Helpers for the unit tests of several crates. No program links it. `log` captures log output, and `said`
//! checks what is said to users.

mod log;
mod said;

pub use log::Log;
pub use said::{check_line, checked};
