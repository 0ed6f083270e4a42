//! OpenStack's part of [`crate::fuzz`].

mod balancers;
mod machines;
mod played;
#[cfg(test)]
mod recorded;
mod settings;

pub use self::{
    balancers::octavia,
    machines::{neutron, nova},
    settings::{annotations, cloud_conf, clouds_yaml},
};
