//! The promises about routes, one function each.

mod changes;
mod failures;
mod tables;
mod targets;
mod world;

pub use changes::*;
pub use failures::*;
pub use tables::*;
pub use targets::*;
