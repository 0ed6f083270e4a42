//! Decisions about Services and their load balancers, as pure functions.

pub mod front_end;
