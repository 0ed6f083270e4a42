//! Prevents mass changes because of one wrong answer. Pure, with the time as a value.
//!
//! A controller asks its [`Brake`] before each change that is hard to undo. The brake
//! holds it for one of two reasons ([`Hold`]):
//!
//! * the **breaker** is open: the last observation of the whole population is not
//!   plausible. The controller defines the cause; [`is_mass`] is the usual measure. The
//!   breaker closes with a later plausible observation.
//! * the **budget** is used up: within a sliding window no more than a [`Limit`] of the
//!   population may change. The [`Window`] is a value that another process can read, so
//!   that a new leader continues with the budget that the last one left.
//!
//! A change that a user has [approved](approval) passes both. [`Brake::observe`] returns
//! what to report; [`Brake::usage`] and [`Brake::breaker`] are for gauges.
//!
//! lifecycle-ccm asks for its deletions, service-ccm for the members that leave a load balancer,
//! route-ccm for the routes that it deletes, node-ccm for the changes of Ready nodes.

pub mod approval;
mod breaker;
mod limit;
mod window;

use std::fmt;

use ccm_base::At;
use serde::{Deserialize, Serialize};

pub use self::{
    breaker::{Breaker, Transition, is_mass},
    limit::{DEFAULT_LIMIT, DEFAULT_LIMIT_TEXT, InvalidLimit, Limit},
    window::{Usage, Window, is_sum, split_all, summed_up},
};

/// How many objects may change within a sliding window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// The limit.
    pub limit: Limit,
    /// The length of the window.
    pub window: std::time::Duration,
}

/// Why a change is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Hold {
    /// The breaker is open.
    Breaker,
    /// The budget is used up.
    Budget {
        /// When budget becomes available again; `None` if the limit is zero.
        until: Option<At>,
    },
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Breaker => f.write_str("the breaker is open"),
            Self::Budget { until: Some(until) } => write!(f, "the budget is used up until {until}"),
            Self::Budget { until: None } => f.write_str("the budget is zero"),
        }
    }
}

/// Breaker and budget of one kind of change, whose breaker opens for causes `C`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Brake<C> {
    breaker: Breaker<C>,
    window: Window,
}

impl<C> Default for Brake<C> {
    fn default() -> Self {
        Self { breaker: Breaker::Closed, window: Window::default() }
    }
}

impl<C: Copy + PartialEq> Brake<C> {
    /// Returns a closed breaker, and the window that the last leader stored.
    pub fn resume(now: At, window: Window) -> Self {
        Self { breaker: Breaker::Closed, window: window.read_at(now) }
    }

    /// Returns the state of the breaker.
    pub const fn breaker(&self) -> &Breaker<C> {
        &self.breaker
    }

    /// Returns the window, to be stored for the next leader.
    pub const fn window(&self) -> &Window {
        &self.window
    }

    /// Returns the used and allowed part of this budget for this population.
    pub fn usage(&self, now: At, population: usize, budget: Budget) -> Usage {
        self.window.usage(now, population, budget)
    }

    /// Opens the breaker for this cause, or closes it without a cause.
    pub fn observe(&mut self, now: At, cause: Option<C>) -> Transition<C> {
        let before = self.breaker;
        self.breaker = before.after(now, cause);
        before.transition(self.breaker)
    }

    /// Requests to change the object with this UID and charges the budget. An object that was
    /// charged within the window is not charged again.
    ///
    /// # Errors
    ///
    /// Why the change is held.
    pub fn request(
        &mut self,
        now: At,
        uid: &str,
        population: usize,
        budget: Budget,
    ) -> Result<(), Hold> {
        if self.breaker.is_open() {
            return Err(Hold::Breaker);
        }
        self.window.take(now, uid, population, budget).map_err(|until| Hold::Budget { until })
    }

    /// Records that the object was changed at this time instead of the time at which it was
    /// charged: its window begins now. Does nothing if it was not charged.
    pub fn renew(&mut self, now: At, uid: &str) {
        self.window.renew(now, uid);
    }

    /// Gives back the budget that this object has taken: it was not changed.
    pub fn release(&mut self, uid: &str) {
        self.window.release(uid);
    }
}

#[cfg(test)]
mod tests;
