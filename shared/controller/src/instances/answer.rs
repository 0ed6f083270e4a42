use ccm_cloud::{ErrorKind, Lookup, LookupResult};
use ccm_metrics::label;
use strum::{IntoStaticStr, VariantNames};

/// The result of a lookup, besides errors: the values of a metric's label.
#[derive(Clone, Copy, Debug, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum LookupOutcome {
    /// The cloud knows the instance.
    Found,
    /// The cloud proves that there is no instance.
    Gone,
    /// Another controller is responsible for it.
    NotOurs,
}

label!(LookupOutcome);

impl LookupOutcome {
    /// Returns the answer, or the kind of the error.
    pub fn from_result(result: &LookupResult) -> Result<Self, ErrorKind> {
        match result {
            Ok(Lookup::Found(_)) => Ok(Self::Found),
            Ok(Lookup::Gone(_)) => Ok(Self::Gone),
            Ok(Lookup::NotOurs(_)) => Ok(Self::NotOurs),
            Err(error) => Err(error.kind),
        }
    }
}
