//! OpenStack: Keystone, Nova and Neutron behind the provider contract.
#![expect(dead_code, reason = "the factory that builds it comes with the client")]

mod addresses;
mod client;
mod config;
mod deadline;
mod describe;
mod ids;
mod instances;
mod neutron;
mod nova;
mod page;
#[cfg(test)]
mod scripted;
mod text;
