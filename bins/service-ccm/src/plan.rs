//! Decisions about Services and their load balancers, as pure functions.

pub mod eligible;
pub mod front_end;
pub mod members;
