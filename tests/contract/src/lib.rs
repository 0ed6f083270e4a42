//! The contract of cloud providers as a test suite: what every provider promises, one case each.
//!
//! ```text
//! cases (machines, balancers, routes) -> Lab (calls and values) -> Cloud: the provider
//!                                                               -> Rig: the cloud behind it
//! ```
//!
//! A case calls the provider as a controller does, and the [`Rig`] produces the events in the
//! cloud: a person deletes a load balancer, an answer is lost, a machine is built. A provider
//! brings a [`Stage`], which makes a new rig for each case, and calls [`main`]. A case names what
//! it needs beyond that ([`Need`]). If the cloud does not have it, the case is shown as ignored,
//! with the stage's reason.
//!
//! | module | contents |
//! |---|---|
//! | `rig` | what a cloud under test must be able to do, and how a case gets one |
//! | `lab` | a cloud and its provider, as a case calls them; the values of the cases |
//! | `suite` | the list of all cases, and how they run |
//! | `machines`, `balancers`, `routes` | the cases |

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail by panic")]

mod balancers;
mod lab;
mod machines;
mod rig;
mod routes;
mod suite;

pub use lab::{cluster, namesake, owner};
pub use rig::{
    BalancerSide, Harm, MachineSide, Need, Rig, RouterSide, Row, Stage, Whose, Wish, Written,
};
pub use suite::main;
