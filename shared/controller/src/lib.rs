//! The controllers' kit: the parts of a controller other than its plan.
//!
//! | module | what it holds |
//! |---|---|
//! | [`machine`] | the form of a controller: a pure machine with one door |
//! | [`record`] | the last events and effects of a machine: kept, shown, replayed |
//! | [`watch`] | watches objects of any kind on every replica |
//! | [`writer`] | writes objects of any kind, fenced by leadership and by resource version |
//! | [`reader`] | asks the API server itself for one object |
//! | [`queue`] | the work queue by key |
//! | [`batch_size`] | how many keys one call to a cloud is about; pure |
//! | [`workers`] | concurrent workers; a panic ends the process |
//! | [`passes`] | runs passes by period, wake-up and back-off |
//! | [`reports`] | deduplicated events and log lines |
//! | [`lookups`] | lookups in calls as large as the cloud answers in time; the stage that looks up the nodes of a queue |
//! | [`fleet`] | what is odd about all nodes together |
//! | [`left_over`] | taints that an earlier controller has left |
//! | [`instances`] | batched queries to the cloud, with checked answers |
//! | [`identity`] | what says that an instance is a node's; pure |
//! | [`cluster`], [`kind`] | the identity of the cluster; properties of a kind of object |
//! | [`own_node`] | what holds up the node that runs this program |
//! | [`handover`] | what a leader leaves to the next one |
//! | [`repeats`] | delays a confirmed write that has to be repeated; pure |
//! | [`repeat_reports`] | the metric and the event of repeated writes |
//! | [`approvals`] | what a user approves by annotations of the Lease |
//! | [`brake`] | holds mass changes: breaker, budget, approvals; pure |

pub mod approvals;
pub mod batch_size;
pub mod brake;
pub mod cluster;
pub mod fleet;
pub mod handover;
pub mod identity;
pub mod instances;
mod kind;
pub mod left_over;
pub mod lookups;
pub mod machine;
pub mod own_node;
pub mod passes;
pub mod queue;
pub mod reader;
pub mod record;
pub mod repeat_reports;
pub mod repeats;
pub mod reports;
pub mod watch;
pub mod workers;
pub mod writer;
