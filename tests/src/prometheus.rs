//! Dashboards and alerts, evaluated by a real Prometheus.
//!
//! [`story`] lets the built programs live through everything that a dashboard shows, while
//! [`server`] runs a Prometheus that scrapes them. [`dashboards`] reads the dashboards as
//! Grafana does, [`variables`] stands in for Grafana where a query has its variables, and
//! [`promql`] finds the names of metrics in an expression.

pub mod dashboards;
pub mod promql;
pub mod rules;
pub mod server;
pub mod story;
pub mod variables;
