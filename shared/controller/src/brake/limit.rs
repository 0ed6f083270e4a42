use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::breaker::FEW;

/// How many of a population may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Limit {
    /// This many objects. With zero, only approved ones.
    Count(u32),
    /// This percentage, rounded up and at least 3, so that a small population can change. With
    /// zero, only approved ones.
    Percent(u8),
}

/// The default limit of all brakes.
pub const DEFAULT_LIMIT: Limit = Limit::Percent(10);
/// [`DEFAULT_LIMIT`] as the text of a setting.
pub const DEFAULT_LIMIT_TEXT: &str = "10%";

impl Limit {
    /// Returns the limit for a population of this size.
    pub fn for_population(self, population: usize) -> usize {
        match self {
            Self::Count(count) => usize::try_from(count).unwrap_or(usize::MAX),
            Self::Percent(0) => 0,
            Self::Percent(percent) => (population * usize::from(percent)).div_ceil(100).max(FEW),
        }
    }
}

/// Why a text is not a [`Limit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be a number of nodes or a percentage, for instance 5 or 10%")]
pub struct InvalidLimit;

impl FromStr for Limit {
    type Err = InvalidLimit;

    fn from_str(text: &str) -> Result<Self, InvalidLimit> {
        let number = text.strip_suffix('%').map(str::trim);
        match number.map(str::parse) {
            Some(Ok(percent @ 0..=100)) => Ok(Self::Percent(percent)),
            Some(_) => Err(InvalidLimit),
            None => text.parse().map(Self::Count).map_err(|_| InvalidLimit),
        }
    }
}
