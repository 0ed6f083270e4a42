//! Rules of this repository that need no cluster.

mod alerts;
mod circles;
mod dashboards;
mod documents;
mod english;
mod features;
mod mutants;
mod pages;
mod suites;
mod tidy;
mod walk;
