//! The fields of requests.

use std::time::Duration;

use serde::{Deserialize, Deserializer, de::Error as _};

/// Returns a duration in Go's notation.
pub(super) fn duration<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(from)?;
    let wrong = |error| D::Error::custom(format!("{text:?} {error}"));
    ccm_base::duration::parse(&text).map(Some).map_err(wrong)
}

/// Sets a value that is given.
pub(super) fn set<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}
