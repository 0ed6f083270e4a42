//! End-to-end tests: the built programs against a cluster and a cloud.
//!
//! | module | what it holds |
//! |---|---|
//! | [`suite`] | the tests of one controller, which its crate runs as its target `world` |
//! | [`trials`], [`lanes`] | tests that run at the same time, each on its own cluster |
//! | [`cluster`] | the simulated API server, or a real kube-apiserver with etcd |
//! | [`fixture`] | what every test on a cluster has; [`nodes`] writes and reads nodes |
//! | [`in_process`] | a controller in the process of its test, with a simulated API server |
//! | [`mod@scenarios`] | scenarios with the simulated cloud |
//! | [`rights`] | a program with exactly its rights, and with one less |
//! | [`prometheus`] | dashboards, alert rules and pages of metrics, with a real Prometheus |
//! | [`openstack`] | scenarios with real OpenStack services |
//! | [`manifests`] | what is installed |
//! | [`mod@policies`] | mutating admission policies of a real API server |
//! | [`dice`] | random numbers that are the same for the same seed |
//! | [`mod@queue`] | the work queue of random histories of machines |
//! | [`seeds`] | the seeds of random histories, and the searches of them |
//! | [`histories`] | random histories of the deletion policy |
//! | [`mutants`] | decisions that are broken one at a time: `make mutants` |
//! | [`printed`], [`measured`], [`metrics_page`] | what the built programs print about themselves; `docs/reference/metrics.md` |
//!
//! The test targets: `house` holds the rules of this repository, which do not need a cluster.
//! `world` holds the tests that need a cluster and do not belong to a single controller.
//! `openstack` runs the scenarios with real services.

pub mod cluster;
pub mod dice;
pub mod fixture;
pub mod histories;
pub mod in_process;
pub mod lanes;
pub mod manifests;
pub mod measured;
pub mod metrics_page;
pub mod mutants;
pub mod nodes;
pub mod openstack;
pub mod policies;
pub mod printed;
pub mod prometheus;
pub mod queue;
pub mod rights;
pub mod scenarios;
pub mod seeds;
pub mod services;
pub mod suite;
pub mod trials;
