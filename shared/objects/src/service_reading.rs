//! The fields of Services that a program keeps: each one costs memory on every replica.

use serde::{Deserialize, Serialize};

/// The most bytes that are kept of one Service.
pub const LARGEST_SERVICE: usize = 64 << 10;

/// The fields that a program reads of Services of type `LoadBalancer`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceReading {
    /// The values of `spec.loadBalancerClass` that are served.
    pub classes: Vec<String>,
    /// True if Services without a class are served.
    pub classless: bool,
    /// The beginnings of the annotations that are read.
    pub annotations: Vec<String>,
    /// True if a provider wants the whole Service.
    pub json: bool,
}

impl ServiceReading {
    /// Returns true if Services of this class are read in full.
    pub fn serves(&self, class: Option<&str>) -> bool {
        serves_class(&self.classes, self.classless, class)
    }

    /// Returns true if annotations with this key are read.
    pub fn reads(&self, key: &str) -> bool {
        self.annotations.iter().any(|start| key.starts_with(start.as_str()))
    }
}

/// Returns true if a program that serves these classes serves a Service of this class.
pub fn serves_class(classes: &[String], classless: bool, class: Option<&str>) -> bool {
    match class {
        None => classless,
        Some(class) => classes.iter().any(|served| served == class),
    }
}

/// The part of a Service that was omitted because it is larger than [`LARGEST_SERVICE`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TooLarge {
    /// The largest part: `annotation <key>`, `spec`, `metadata.labels` or `metadata`.
    pub part: Box<str>,
    /// The bytes of this part.
    pub bytes: usize,
    /// How many more parts were omitted.
    pub others: usize,
}
