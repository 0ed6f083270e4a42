//! Each program with exactly the rights that its manifests grant, and with one right less.
//!
//! [`manifest`] reads the roles as the manifests make them, [`account`] makes the service
//! account on a real API server and changes its rights, [`removal`] checks what must go
//! wrong when one is taken away, while a [`Story`] makes the program do all that it can do.
//! [`trials`] are the tests of all that.

pub mod account;
pub mod manifest;
pub mod removal;
mod stories;
pub mod trials;

pub use stories::{Story, of_node_and_lifecycle};
