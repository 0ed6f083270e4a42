//! The readers of this crate for text from strangers, as functions of bytes: a file, a Service, an answer. Each one
//! panics where the code that it runs does, and where a message has line breaks or is too long.
//! With the feature `fuzz` only; `tests/fuzz` has the inputs.

pub use crate::{
    external::fuzz::external,
    openstack::fuzz::{annotations, cloud_conf, clouds_yaml, neutron, nova, octavia},
};
