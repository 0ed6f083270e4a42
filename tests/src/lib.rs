//! End-to-end tests: the built programs against a cluster and a simulated cloud.
//!
//! [`cluster`] starts the cluster (the simulated API server, or a real kube-apiserver with
//! etcd), [`ccm_sim::served`] serves the simulated cloud over the external protocol,
//! [`ccm_sim::program`] runs the built programs as child processes, and [`mod@scenarios`]
//! lists the scenarios. The same scenarios run on both clusters. [`printed`] reads the output
//! of the built programs about themselves, [`measured`] parses their metrics, and
//! [`metrics_page`] writes the page of metrics. [`manifests`] reads the manifests.
//! [`prometheus`] evaluates dashboards and alerts against the programs.

pub mod cluster;
pub mod histories;
pub mod lanes;
pub mod manifests;
pub mod measured;
pub mod metrics_page;
pub mod nodes;
pub mod openstack;
pub mod printed;
pub mod prometheus;
pub mod rights;
pub mod scenarios;
pub mod trials;
