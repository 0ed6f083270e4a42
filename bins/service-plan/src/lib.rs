//! Decisions about Services and their load balancers, as pure functions over plain values: what
//! the controller service-ccm will be built around. It is not a program yet.
//!
//! | module | what it decides |
//! |---|---|
//! | [`front_end`] | which load balancer a Service asks for, and what is wrong with the Service |
//! | [`eligible`] | which nodes are members of load balancers |
//! | [`members`] | which members one load balancer is to have, and which may not leave it yet |

pub mod eligible;
pub mod front_end;
pub mod members;
