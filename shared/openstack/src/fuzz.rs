//! The readers of this crate for text from strangers, as functions of bytes. Each one panics where the code
//! that it runs does, and where a message has line breaks or is too long. With the feature `fuzz` only;
//! `tests/fuzz` has the inputs.

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
