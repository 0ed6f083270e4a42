//! The node controller.
pub mod plan;
