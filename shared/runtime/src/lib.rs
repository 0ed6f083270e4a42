//! The process of a controller program: everything but its kinds of objects and its plan.
//!
//! | module | what it holds |
//! |---|---|
//! | [`program`] | the trait `Program` and its life: `start`, `check`, `shell`, `provider`, `election`, `reload`, `signals` |
//! | [`settings`] | the settings that every program has; flags that are accepted without effect |
//! | [`leadership`] | the election: `guard`, `observed`, `elector`, `term`, `standby` |
//! | [`limits`] | token buckets for the API server and the cloud, with `Retry-After` and adaptive rates |
//! | [`cloud_gate`] | the `CallGate` of a process: limits, metrics, and the term for writes to the cloud |
//! | [`plans`] | what the program has decided to do, for `/plan` |
//! | [`health`], [`http`] | named checks; the pages, their server and its TLS |
//! | [`rights`] | what a program needs of the API server, and its review at the start |
//! | [`supervisor`] | named tasks; an unexpected end ends the process |
//! | [`logging`], [`metrics`], [`process`] | log format and levels; the registry; `process_*` |

pub mod cloud_gate;
pub mod health;
pub mod http;
mod identity;
pub mod leadership;
pub mod limits;
pub mod logging;
pub mod metrics;
pub mod plans;
pub mod process;
pub mod program;
pub mod programs;
pub mod rights;
pub mod settings;
pub mod supervisor;
