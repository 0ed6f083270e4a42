use ccm_base::At;
use serde::{Deserialize, Serialize};

/// Fewer changes than this never count as a mass change, whatever their share.
pub(super) const FEW: usize = 3;

/// Returns true if `part` of `whole` is too many to be a coincidence: at least 3, and more than
/// `percent`.
pub const fn is_mass(part: usize, whole: usize, percent: usize) -> bool {
    part >= FEW && part * 100 > percent * whole
}

/// Says if changes are held because of the last observation of the population. It depends on
/// nothing else, so it closes without an action by the user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Breaker<C> {
    /// Changes pass.
    #[default]
    Closed,
    /// Changes are held, except approved ones.
    Open {
        /// Since when the breaker is open.
        since: At,
        /// The cause in the last observation.
        cause: C,
    },
}

/// The effect of an observation on the breaker, to be reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Transition<C> {
    /// It opened.
    Opened(C),
    /// It stays open, with the previous and the current cause.
    StaysOpen(C, C),
    /// It closed.
    Closed,
    /// It stays closed.
    StaysClosed,
}

impl<C: Copy> Breaker<C> {
    /// Returns true if changes are held.
    pub const fn is_open(&self) -> bool {
        matches!(self, Self::Open { .. })
    }

    /// Returns the breaker after an observation. `cause` says what was not plausible about it.
    #[must_use]
    pub fn after(self, now: At, cause: Option<C>) -> Self {
        match (self, cause) {
            (_, None) => Self::Closed,
            (Self::Open { since, .. }, Some(cause)) => Self::Open { since, cause },
            (Self::Closed, Some(cause)) => Self::Open { since: now, cause },
        }
    }

    /// Returns the transition from this state to `after`.
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
