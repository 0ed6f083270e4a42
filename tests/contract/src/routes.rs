//! The promises of every provider about routes.

mod changes;
mod failures;
mod tables;
mod targets;
mod world;

pub(crate) use self::{changes::*, failures::*, tables::*, targets::*};
