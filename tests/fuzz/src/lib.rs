//! Random input for everything that reads what strangers say. Not shipped.
//!
//! ```text
//! fuzz/corpus/<target>/* -> mutate -> target: a function of bytes in the crate that reads them
//!                             |
//!                             +-- the program `fuzz` (`run`), or libFuzzer (the folder `fuzz`)
//! ```
//!
//! Most targets are in the crates that they test; `records` and `selectors` are here.
//! A target fails by a panic, or when one input takes more than five seconds of a processor.

pub mod mutate;
mod records;
pub mod run;
mod selectors;

use ccm_external::fuzz::external;
use ccm_openstack::fuzz as openstack;

pub use self::mutate::Form;

/// A reader of bytes from strangers.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name, which is also the name of its folder in the corpus.
    pub name: &'static str,
    /// The form of its inputs.
    pub form: Form,
    /// Reads an input. Panics where there is a defect.
    pub read: fn(&[u8]),
}

/// All targets.
pub const TARGETS: [Target; 9] = [
    Target { name: "cloud_conf", form: Form::Text, read: openstack::cloud_conf },
    Target { name: "clouds_yaml", form: Form::Text, read: openstack::clouds_yaml },
    Target { name: "annotations", form: Form::Text, read: openstack::annotations },
    Target { name: "nova", form: Form::Answers, read: openstack::nova },
    Target { name: "neutron", form: Form::Answers, read: openstack::neutron },
    Target { name: "octavia", form: Form::Answers, read: openstack::octavia },
    Target { name: "external", form: Form::Wire, read: external },
    Target { name: "selectors", form: Form::Text, read: selectors::read },
    Target { name: "records", form: Form::Answers, read: records::read },
];

/// Returns the target of this name.
pub fn target(name: &str) -> Option<Target> {
    TARGETS.into_iter().find(|target| target.name == name)
}
