//! The process of a controller program: everything except its object kinds and its plan.
//!
//! | module | content |
//! |---|---|
//! | [`program`] | the trait `Program`; `start` and `check`, with `setup` in common; `parts`; `life`, from start to end; `provider`, `reload`; `specimens`, for the metrics reference |
//! | [`programs`] | the list of programs: the only place, besides its crate, where a controller is added |
//! | [`settings`] | the settings common to all programs; flags accepted without effect |
//! | [`leadership`] | the election: `guard`, `observed`, `elector`, `eligibility`, `term`, `standby` |
//! | [`limits`] | token buckets for the API server and the cloud, with `Retry-After` and adaptive rates |
//! | [`cloud_gate`] | the `CallGate` of a process: limits, metrics, and the term for writes to the cloud |
//! | [`same_cloud`] | checks that the cloud is still the recorded one: no call is made to another one |
//! | [`plans`], [`explain`] | the decided steps of the program, for `/plan`; explanations of single objects, for `/explain` |
//! | [`identity`] | the names of a program |
//! | [`records`] | the records of the program's machines, for `/record` |
//! | [`health`], [`http`] | health checks; the admin pages, their server and its TLS |
//! | [`rights`] | the API server permissions of a program, and their review at startup |
//! | `own_policy` | the admission policy of the program's account: if it is in force, and what it has refused |
//! | `rivals` | whether another cloud controller does the same work |
//! | [`supervisor`] | named tasks; an unexpected end ends the process |
//! | [`logging`], [`metrics`], [`process`] | log format and levels; the registry; `process_*` |

pub mod cloud_gate;
pub mod explain;
pub mod health;
pub mod http;
mod identity;
pub mod leadership;
pub mod limits;
pub mod logging;
pub mod metrics;
mod own_policy;
pub mod plans;
pub mod process;
pub mod program;
pub mod programs;
pub mod records;
pub mod rights;
mod rivals;
pub mod same_cloud;
pub mod settings;
pub mod supervisor;
