//! What keeps a controller from changing many objects because of one wrong answer: pure,
//! with the time as a value.
//!
//! A controller asks its [`Brake`] for each change that would be hard to take back. The
//! brake holds it for one of two reasons ([`Hold`]):
//!
//! * the **breaker** is open: what was last seen of the whole population is not
//!   believable. What makes it so is the controller's own cause; [`is_mass`] is the
//!   usual measure. It closes when a later look is believable.
//! * the **budget** is used up: within a sliding window no more than a [`Limit`] of the
//!   population may change. The [`Window`] is a value that another process can read, so
//!   that a new leader goes on with what is left of the last one's budget.
//!
//! Both pass what a person has [approved](approval). [`Brake::observe`] says what is to
//! be reported, [`Brake::usage`] and [`Brake::breaker`] are for gauges.
//!
//! lifecycle-ccm asks for its deletions, and approvals by its annotation are in use. The
//! window is not stored yet, and approvals by label or for a set are not read yet.

pub mod approval;
mod breaker;
mod limit;
mod window;

use std::fmt;

use ccm_base::At;

pub use self::{
    breaker::{Breaker, Transition, is_mass},
    limit::{InvalidLimit, Limit},
    window::{Usage, Window},
};

/// How many objects may change in a window of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// How many.
    pub limit: Limit,
    /// The length of the window; it slides.
    pub window: std::time::Duration,
}

/// Why a change is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// The breaker is open.
    Breaker,
    /// The budget is used up.
    Budget {
        /// When there is budget again; never by itself if the limit is zero.
        until: Option<At>,
    },
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Breaker => f.write_str("the breaker is open"),
            Self::Budget { until: Some(until) } => write!(f, "the budget is used up until {until}"),
            Self::Budget { until: None } => f.write_str("the budget allows no change"),
        }
    }
}

/// Breaker and budget of one kind of change, whose breaker opens for causes `C`.
#[derive(Clone, Debug)]
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
    /// A closed breaker and the window of the last leader.
    pub fn resume(now: At, window: Window) -> Self {
        Self { breaker: Breaker::Closed, window: window.read_at(now) }
    }

    /// Whether changes are held because of what was last seen of the population.
    pub const fn breaker(&self) -> &Breaker<C> {
        &self.breaker
    }

    /// What is to be stored for the next leader.
    pub const fn window(&self) -> &Window {
        &self.window
    }

    /// What is used of what this budget allows with this population.
    pub fn usage(&self, now: At, population: usize, budget: Budget) -> Usage {
        self.window.usage(now, population, budget)
    }

    /// Opens the breaker for this cause, or closes it if there is none.
    pub fn observe(&mut self, now: At, cause: Option<C>) -> Transition<C> {
        let before = self.breaker;
        self.breaker = before.after(now, cause);
        before.transition(self.breaker)
    }

    /// Asks to change the object with this UID, and takes it out of the budget. One that
    /// was paid for within the window is not paid for again.
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

    /// Gives back what was taken for this object: it was not changed.
    pub fn release(&mut self, uid: &str) {
        self.window.release(uid);
    }
}

#[cfg(test)]
mod tests;
