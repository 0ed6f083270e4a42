//! The kit of controllers: what every controller is made of besides its plan.

pub mod brake;
pub mod instances;
pub mod inventory;
pub mod node_watch;
pub mod node_writer;
pub mod queue;
