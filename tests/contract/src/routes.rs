//! What every provider promises about routes.

mod changes;
mod failures;
mod tables;
mod targets;
mod world;

pub(crate) use self::{changes::*, failures::*, tables::*, targets::*};
