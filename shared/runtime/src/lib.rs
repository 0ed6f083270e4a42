//! Everything a controller process is: its options, its life from start to drain,
//! leadership, work queue, limits, metrics and health.

pub mod cloud_gate;
pub mod health;
pub mod http;
mod identity;
pub mod leadership;
pub mod limits;
pub mod logging;
pub mod metrics;
pub mod process;
pub mod program;
pub mod programs;
pub mod rights;
pub mod settings;
pub mod supervisor;
