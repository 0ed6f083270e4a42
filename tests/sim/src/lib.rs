//! A simulated API server and a simulated cloud with fault injection, for the playground
//! and the scenario tests.
//!
//! | module | what it holds |
//! |---|---|
//! | [`apiserver`] | the API server: one core with two front ends |
//! | [`cloud`], [`faults`] | the cloud, and faults for its calls |
//! | [`cloud_pages`], [`served`] | the cloud's pages for `curl`; the cloud behind the external protocol |
//! | [`program`], [`poll`] | the built programs as child processes; waiting for a condition |

pub mod apiserver;
pub mod cloud;
pub mod cloud_pages;
pub mod faults;
pub mod poll;
pub mod program;
pub mod served;
