//! The story, a chapter for each controller.

pub mod node;
