//! The whole controller with a simulated API server and a simulated cloud in one process with
//! paused time: cases that would take minutes as a scenario, or that need a table of another kind
//! of cloud.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

#[path = "whole/another_cloud.rs"]
mod another_cloud;
#[path = "whole/conditions.rs"]
mod conditions;
#[path = "whole/explain.rs"]
mod explain;
#[path = "whole/faults.rs"]
mod faults;
#[path = "whole/foreign.rs"]
mod foreign;
#[path = "whole/left_out.rs"]
mod left_out;
#[path = "whole/world.rs"]
mod world;
#[path = "whole/wrong_setting.rs"]
mod wrong_setting;
