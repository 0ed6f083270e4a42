//! Each program with exactly the rights that its manifests grant, and with one right less.
//!
//! [`manifest`] reads the roles that the manifests make, [`account`] makes the service account on a
//! real API server and changes its rights, [`guard`] installs the policy that asks for the rights
//! that no API serves, [`confined`] tries which writes the admission policy of an account lets
//! pass, [`removal`] checks what must go wrong when a right is taken away while the program has
//! work that needs it, [`policy`] checks a program's reports about a policy that is missing or
//! belongs to another version.

pub mod account;
pub mod confined;
pub mod guard;
pub mod manifest;
pub mod policy;
pub mod removal;
mod trials;

pub use trials::trials;
