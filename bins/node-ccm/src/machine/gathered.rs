//! A brake for changes that are wanted one by one: it opens its breaker by their number.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use ccm_base::At;
use ccm_controller::brake::{Brake, Breaker, Budget, Hold, Transition, Usage, Window};
use serde::{Deserialize, Serialize};

/// How long a change waits for others: one wrong answer of a cloud shows in many objects within
/// this time, in one list or in a few lookups.
const TOGETHER: Duration = Duration::from_secs(5);

/// The cause of an open breaker: more changes are wanted at once than may be made within the
/// whole window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TooMany {
    /// The number of changes.
    pub(crate) changes: usize,
    /// The number of objects that may change.
    pub(crate) population: usize,
}

/// Why a change is not made now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Pause {
    /// Until this time, other changes are gathered.
    Gathers(At),
    /// The brake holds it.
    Held(Hold),
}

impl Pause {
    /// Returns why it is held, if it is.
    pub(crate) fn held(self) -> Option<String> {
        match self {
            Self::Held(hold) => Some(hold.to_string()),
            Self::Gathers(_) => None,
        }
    }
}

/// A change that is wanted and not made.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct WantedChange {
    since: At,
    is_charged: bool,
    is_held: bool,
}

/// A brake for changes that are wanted object by object, in any order: it gathers them before it
/// decides about the first one. If more are wanted than the budget allows within its whole window,
/// its breaker opens and node-ccm does not make any of them. The breaker closes when fewer changes are
/// wanted. Changes that were made by approval still count, so the approval of one does not approve the others.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Gathered {
    brake: Brake<TooMany>,
    wanted: BTreeMap<Box<str>, WantedChange>,
    /// Changed past the open breaker: approved, or not protected any more.
    passed: BTreeSet<Box<str>>,
    /// The number of wanted changes that are held, and why the last one was.
    held: usize,
    hold: Option<Hold>,
}

impl Gathered {
    /// Returns a memory in which no change is wanted; these were made under the last leader.
    pub(super) fn resume(now: At, window: Window) -> Self {
        Self { brake: Brake::resume(now, window), ..Self::default() }
    }

    /// Records that the object with this UID should be changed.
    pub(super) fn wants(&mut self, now: At, uid: &str) {
        if !self.wanted.contains_key(uid) {
            let wanted = WantedChange { since: now, is_charged: false, is_held: false };
            self.wanted.insert(uid.into(), wanted);
        }
    }

    /// Records that the object is right as it is.
    pub(super) fn agrees(&mut self, uid: &str) {
        if self.forget(uid).is_some_and(|wanted| wanted.is_charged) {
            self.brake.release(uid);
        }
    }

    fn forget(&mut self, uid: &str) -> Option<WantedChange> {
        let wanted = self.wanted.remove(uid)?;
        self.held -= usize::from(wanted.is_held);
        Some(wanted)
    }

    /// Forgets an object that is gone, or not protected any more: what happens to it is not
    /// charged. This says nothing about the cloud's answers about the others.
    pub(super) fn leaves(&mut self, uid: &str) {
        let was_wanted = self.wanted.contains_key(uid);
        self.agrees(uid);
        if was_wanted && self.brake.breaker().is_open() {
            self.passed.insert(uid.into());
        }
    }

    /// Records that the object was changed.
    pub(super) fn made(&mut self, now: At, uid: &str) {
        if self.forget(uid).is_none() {
            return;
        }
        self.brake.renew(now, uid);
        if self.brake.breaker().is_open() {
            self.passed.insert(uid.into());
        }
    }

    /// Opens or closes the breaker according to the wanted changes. Call it after each change of
    /// them.
    pub(super) fn observe(
        &mut self,
        now: At,
        population: usize,
        budget: Budget,
    ) -> Transition<TooMany> {
        let changes = self.wanted.len() + self.passed.len();
        let is_mass = !self.wanted.is_empty() && changes > budget.limit.for_population(population);
        if !is_mass {
            self.passed.clear();
        }
        self.brake.observe(now, is_mass.then_some(TooMany { changes, population }))
    }

    /// Checks that the object may be changed now; charges the budget, unless a user has approved
    /// it.
    ///
    /// # Errors
    ///
    /// The reason why not.
    pub(super) fn request(
        &mut self,
        now: At,
        uid: &str,
        population: usize,
        budget: Budget,
        is_approved: bool,
    ) -> Result<(), Pause> {
        self.wants(now, uid);
        let Some(wanted) = self.wanted.get_mut(uid) else { return Ok(()) };
        self.held -= usize::from(std::mem::take(&mut wanted.is_held));
        if is_approved {
            return Ok(());
        }
        if now < wanted.since + TOGETHER {
            return Err(Pause::Gathers(wanted.since + TOGETHER));
        }
        // Another change of it may have been charged before: that one was made.
        let since = now - budget.window;
        let is_new = !self.brake.window().after(since).any(|(_, paid)| paid == uid);
        match self.brake.request(now, uid, population, budget) {
            Ok(()) => {
                wanted.is_charged |= is_new;
                Ok(())
            }
            Err(hold) => {
                wanted.is_held = true;
                self.held += 1;
                self.hold = Some(hold);
                Err(Pause::Held(hold))
            }
        }
    }

    /// Returns why the breaker is open, if it is.
    pub(super) fn cause(&self) -> Option<TooMany> {
        match self.brake.breaker() {
            Breaker::Open { cause, .. } => Some(*cause),
            Breaker::Closed => None,
        }
    }

    /// Returns the breaker and the window.
    pub(super) fn brake(&self) -> &Brake<TooMany> {
        &self.brake
    }

    /// Returns the used and allowed part of this budget.
    pub(super) fn usage(&self, now: At, population: usize, budget: Budget) -> Usage {
        self.brake.usage(now, population, budget)
    }

    /// Returns the number of objects whose change is held, and why.
    pub(super) fn held(&self) -> Option<(usize, Hold)> {
        Some((self.held, self.hold?)).filter(|(held, _)| *held > 0)
    }

    /// Returns true if a change of this object is wanted.
    pub(super) fn is_wanted(&self, uid: &str) -> bool {
        self.wanted.contains_key(uid)
    }

    /// Returns true if the change of this object is held.
    pub(super) fn is_held(&self, uid: &str) -> bool {
        self.wanted.get(uid).is_some_and(|wanted| wanted.is_held)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use ccm_controller::brake::Limit;

    use super::*;

    const HOUR: Budget = Budget { limit: Limit::Percent(10), window: Duration::from_hours(1) };
    const POPULATION: usize = 50;

    fn at(seconds: u64) -> At {
        At(Duration::from_secs(seconds))
    }

    /// Requests changes at this time, and decides about them when they have been gathered. Returns
    /// how many are made.
    fn wave(gathered: &mut Gathered, start: u64, uids: std::ops::Range<u32>) -> usize {
        let uids: Vec<String> = uids.map(|number| number.to_string()).collect();
        for uid in &uids {
            gathered.wants(at(start), uid);
            gathered.observe(at(start), POPULATION, HOUR);
            let waits = gathered.request(at(start), uid, POPULATION, HOUR, false);
            assert_eq!(waits, Err(Pause::Gathers(at(start + 5))));
        }
        let mut made = 0;
        for uid in &uids {
            if gathered.request(at(start + 5), uid, POPULATION, HOUR, false).is_ok() {
                gathered.made(at(start + 5), uid);
                made += 1;
            }
            gathered.observe(at(start + 5), POPULATION, HOUR);
        }
        made
    }

    #[test]
    fn too_many_at_once_are_all_held() {
        for (wanted, made) in [(50, 0), (6, 0), (5, 5), (4, 4)] {
            let mut gathered = Gathered::default();
            assert_eq!(wave(&mut gathered, 0, 0..wanted), made, "{wanted}");
            let held = gathered.held().map_or(0, |(held, _)| held);
            assert_eq!(held, wanted as usize - made, "{wanted}");
            assert_eq!(gathered.brake().breaker().is_open(), made == 0, "{wanted}");
        }
    }

    #[test]
    fn the_sixth_within_an_hour_is_held_and_made_an_hour_later() {
        let mut gathered = Gathered::default();
        assert_eq!(wave(&mut gathered, 0, 0..3), 3);
        assert_eq!(wave(&mut gathered, 300, 3..6), 2, "three and two are five");
        assert_eq!(wave(&mut gathered, 600, 6..9), 0);
        assert_eq!(gathered.usage(at(605), POPULATION, HOUR), Usage { used: 5, limit: 5 });
        let sixth = gathered.request(at(3604), "5", POPULATION, HOUR, false);
        assert_eq!(sixth, Err(Pause::Held(Hold::Budget { until: Some(at(3605)) })));
        assert_eq!(gathered.request(at(3605), "5", POPULATION, HOUR, false), Ok(()));
    }

    #[test]
    fn the_breaker_closes_when_the_cloud_says_otherwise() {
        let mut gathered = Gathered::default();
        assert_eq!(wave(&mut gathered, 0, 0..50), 0);
        for uid in 4..50 {
            gathered.agrees(&uid.to_string());
        }
        assert_eq!(gathered.observe(at(300), POPULATION, HOUR), Transition::Closed);
        assert_eq!(gathered.request(at(300), "0", POPULATION, HOUR, false), Ok(()));
        gathered.agrees("0");
        assert_eq!(gathered.usage(at(300), POPULATION, HOUR).used, 0, "it was not changed");
    }

    #[test]
    fn an_approval_of_one_is_none_of_the_others() {
        let mut gathered = Gathered::default();
        assert_eq!(wave(&mut gathered, 0, 0..6), 0);
        assert_eq!(gathered.request(at(10), "0", POPULATION, HOUR, true), Ok(()));
        gathered.made(at(10), "0");
        gathered.leaves("1");
        gathered.observe(at(10), POPULATION, HOUR);
        let other = gathered.request(at(10), "2", POPULATION, HOUR, false);
        assert_eq!(other, Err(Pause::Held(Hold::Breaker)));
        for uid in ["2", "3", "4", "5"] {
            assert_eq!(gathered.request(at(20), uid, POPULATION, HOUR, true), Ok(()));
            gathered.made(at(20), uid);
        }
        assert_eq!(gathered.observe(at(20), POPULATION, HOUR), Transition::Closed);
        assert_eq!(gathered.held(), None);
        assert_eq!(wave(&mut gathered, 30, 10..15), 5, "approved changes are not charged");
    }

    #[test]
    fn the_window_survives_the_leader() {
        let mut first = Gathered::default();
        assert_eq!(wave(&mut first, 0, 0..5), 5);
        let mut second = Gathered::resume(at(60), first.brake().window().clone());
        assert_eq!(wave(&mut second, 60, 5..6), 0);
        assert!(!second.brake().breaker().is_open(), "the budget holds it");
    }

    /// The next change of an object is paid with the first one.
    #[test]
    fn what_was_made_stays_charged_when_the_next_change_is_not_needed() {
        let mut gathered = Gathered::default();
        assert_eq!(wave(&mut gathered, 0, 0..1), 1);
        gathered.wants(at(100), "0");
        assert_eq!(gathered.request(at(105), "0", POPULATION, HOUR, false), Ok(()));
        gathered.agrees("0");
        assert_eq!(gathered.usage(at(106), POPULATION, HOUR).used, 1);
    }

    proptest! {
        /// Whatever is wanted, and whenever: no more objects than the limit change within an hour.
        #[test]
        fn no_hour_sees_more_changes_than_allowed(
            waves in proptest::collection::vec((1_u64..4000, 0_u32..50, 0_u32..12), 1..20),
        ) {
            let (mut gathered, mut now) = (Gathered::default(), 0);
            let mut changes: Vec<(u64, u32)> = Vec::new();
            for (pause, first, count) in waves {
                now += pause + 5;
                for number in first..first + count {
                    gathered.wants(at(now), &number.to_string());
                }
                gathered.observe(at(now), POPULATION, HOUR);
                now += 5;
                for number in first..first + count {
                    let uid = number.to_string();
                    if gathered.request(at(now), &uid, POPULATION, HOUR, false).is_ok() {
                        gathered.made(at(now), &uid);
                        changes.push((now, number));
                    } else {
                        gathered.agrees(&uid);
                    }
                    gathered.observe(at(now), POPULATION, HOUR);
                }
                let of_late = changes.iter().filter(|(when, _)| when + 3600 > now);
                let objects: BTreeSet<u32> = of_late.map(|(_, number)| *number).collect();
                prop_assert!(objects.len() <= 5, "{objects:?}");
            }
        }
    }
}
