//! The readers of this crate for untrusted text, as functions of bytes. Each one panics if the code
//! that it runs panics, or if a message has line breaks or is too long. They exist only with the
//! feature `fuzz`. `tests/fuzz` has the inputs.

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
