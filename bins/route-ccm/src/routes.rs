//! The routes of nodes.

pub mod plan;
