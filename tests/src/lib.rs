//! End-to-end tests: the built programs against a cluster and a simulated cloud.
//!
//! [`cluster`] starts the cluster (the simulated API server, or a real
//! kube-apiserver with etcd), [`ccm_sim::served`] serves the simulated cloud over the
//! external protocol, [`ccm_sim::program`] runs the built programs as child processes, and
//! [`mod@scenarios`] lists what must happen. The same scenarios run on both clusters.
//! [`printed`] asks the built programs what they are, [`measured`] reads what they report, and [`metrics_page`] writes it down.
//! [`manifests`] reads what an operator installs.
//! [`prometheus`] looks at the programs as people do who have dashboards and alerts.

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
