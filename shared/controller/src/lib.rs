//! The kit of controllers: what every controller is made of besides its plan.
//!
//! | module | what it holds |
//! |---|---|
//! | [`watch`] | keeps objects of any kind current on every replica |
//! | [`writer`] | writes objects of any kind: within the term, to the version decided on |
//! | [`queue`] | the work queue by key |
//! | [`workers`] | runs work side by side; a panic ends the process |
//! | [`passes`] | runs passes by period, wake and back-off |
//! | [`reports`] | an event and a log line, unless both were written a moment ago |
//! | [`brake`] | holds mass changes: breaker, budget, approvals; pure |
//! | [`inventory`] | the fleet as last listed |
//! | [`instances`] | asks the cloud about many nodes, whatever it answers |

pub mod brake;
pub mod instances;
pub mod inventory;
mod kind;
pub mod passes;
pub mod queue;
pub mod reports;
pub mod watch;
pub mod workers;
pub mod writer;
