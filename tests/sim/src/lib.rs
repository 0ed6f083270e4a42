//! A simulated API server and a simulated cloud with fault injection, for the playground
//! and the scenario tests.

pub mod apiserver;
pub mod cloud;
pub mod cloud_pages;
pub mod faults;
pub mod poll;
pub mod program;
pub mod served;
