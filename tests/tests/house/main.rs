//! The rules of this repository, which do not need a cluster.

mod alerts;
mod circles;
mod dashboards;
mod documents;
mod english;
mod features;
mod map;
mod mutants;
mod pages;
mod questions;
mod suites;
mod tidy;
mod walk;
