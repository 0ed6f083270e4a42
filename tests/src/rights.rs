//! Each program with exactly the rights that its manifests grant, and with one right less.
//!
//! [`manifest`] reads the roles as the manifests make them, [`account`] makes the service
//! account on a real API server and changes its rights, [`guard`] installs the policy that asks for
//! the rights that no API serves, [`removal`] checks what must go wrong when one is taken away while
//! the program has work that needs it.

pub mod account;
pub mod guard;
pub mod manifest;
pub mod removal;
mod trials;

pub use trials::trials;
