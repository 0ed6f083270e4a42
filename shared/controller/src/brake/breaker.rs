use ccm_base::At;
use serde::Serialize;

/// Fewer than this are never a mass, whatever their share.
pub(super) const FEW: usize = 3;

/// Whether `part` of `whole` are more than may happen by itself: at least 3, and more
/// than `percent`.
pub const fn is_mass(part: usize, whole: usize, percent: usize) -> bool {
    part >= FEW && part * 100 > percent * whole
}

/// Whether changes are held because of what was last seen of the population: a function
/// of that alone, so it closes by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Breaker<C> {
    /// They are not.
    #[default]
    Closed,
    /// They are, except approved ones.
    Open {
        /// Since when.
        since: At,
        /// Why, by the last look.
        cause: C,
    },
}

/// What a look at the population did to the breaker: what is to be reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transition<C> {
    /// It opened.
    Opened(C),
    /// It stays open, with the cause before and the one now.
    StaysOpen(C, C),
    /// It closed.
    Closed,
    /// It stays closed.
    StaysClosed,
}

impl<C: Copy> Breaker<C> {
    /// Whether changes are held.
    pub const fn is_open(&self) -> bool {
        matches!(self, Self::Open { .. })
    }

    /// The breaker after a look that ends up with this cause, or none.
    #[must_use]
    pub fn after(self, now: At, cause: Option<C>) -> Self {
        match (self, cause) {
            (_, None) => Self::Closed,
            (Self::Open { since, .. }, Some(cause)) => Self::Open { since, cause },
            (Self::Closed, Some(cause)) => Self::Open { since: now, cause },
        }
    }

    /// What is to be reported if it is `after` now.
    pub const fn transition(self, after: Self) -> Transition<C> {
        match (self, after) {
            (Self::Closed, Self::Open { cause, .. }) => Transition::Opened(cause),
            (Self::Open { cause: before, .. }, Self::Open { cause, .. }) => {
                Transition::StaysOpen(before, cause)
            }
            (Self::Open { .. }, Self::Closed) => Transition::Closed,
            (Self::Closed, Self::Closed) => Transition::StaysClosed,
        }
    }
}
