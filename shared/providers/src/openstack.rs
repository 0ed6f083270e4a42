//! OpenStack: Nova's servers as a cluster's machines.
//!
//! ```text
//! config -> session (token, catalog) -> client -> answer
//!              discovery (endpoints) -^    |
//!                                          +-> wire: pause, gate, transport, fault, metrics
//! ```
//!
//! Every request, those for tokens and versions included, goes over one
//! [`client::Wire`].

mod client;
mod config;
mod discovery;
mod fault;
mod metrics;
mod session;
mod transport;

#[cfg(test)]
mod tests;
