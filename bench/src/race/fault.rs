//! The faults of a leader in a round.

use std::time::Duration;

use rand::{Rng as _, rngs::StdRng, seq::IndexedRandom as _};

/// Wall clocks are up to this much wrong, either way.
const WRONG_BY: i64 = 3600;

/// One thing that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The leader is killed.
    Kill,
    /// Both candidates end in this way. Two new ones wait for the same Lease to expire.
    KillBoth,
    /// The leader gives the Lease back.
    Release,
    /// The leader is frozen for longer than the Lease lasts.
    Freeze,
    /// The Lease requests of both candidates and their answers travel slowly.
    Slow,
    /// The leader's requests are carried out, and no answer ever comes.
    Silence,
    /// The leader's requests are carried out, and the connection breaks before the answer.
    Cut,
    /// The wall clocks of both candidates step.
    Clocks,
}

impl Fault {
    /// Every fault; each is as likely as the others.
    pub const ALL: [Self; 8] = [
        Self::Kill,
        Self::KillBoth,
        Self::Release,
        Self::Freeze,
        Self::Slow,
        Self::Silence,
        Self::Cut,
        Self::Clocks,
    ];

    /// Returns its name in the table.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kill => "leader killed",
            Self::KillBoth => "both killed",
            Self::Release => "leader released",
            Self::Freeze => "leader frozen",
            Self::Slow => "requests and answers slow",
            Self::Silence => "answers lost, silently",
            Self::Cut => "answers lost, connection cut",
            Self::Clocks => "wall clocks stepped",
        }
    }

    /// Returns how long it lasts, in milliseconds: from and up to.
    const fn lasts(self) -> (u64, u64) {
        match self {
            Self::Kill | Self::KillBoth => (50, 150),
            // The last write gets enough time.
            Self::Release => (300, 500),
            // This is longer than a Lease and a standby's last wait for it.
            Self::Freeze => (1200, 2500),
            Self::Slow | Self::Silence | Self::Cut => (800, 2500),
            Self::Clocks => (1200, 1500),
        }
    }
}

/// A round, drawn before it begins.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The fault.
    pub fault: Fault,
    /// How long a leader leads before the fault.
    pub settle: Duration,
    /// How long the fault lasts.
    pub length: Duration,
    /// How far the candidates' wall clocks are ahead if they step, in seconds.
    pub ahead: [i64; 2],
}

impl Plan {
    /// Draws a fault. Takes the same number of values from `random` for every result.
    pub fn draw(random: &mut StdRng) -> Self {
        let fault = Fault::ALL.choose(random).copied().unwrap_or(Fault::Kill);
        let settle = Duration::from_millis(random.random_range(50..450));
        let part: f64 = random.random();
        let (from, to) = fault.lasts();
        let from = Duration::from_millis(from);
        let length = from + (Duration::from_millis(to) - from).mul_f64(part);
        Self { fault, settle, length, ahead: wrong_clocks(random) }
    }
}

/// Returns how far the clocks of two candidates are ahead, in seconds.
pub fn wrong_clocks(random: &mut StdRng) -> [i64; 2] {
    [random.random_range(-WRONG_BY..=WRONG_BY), random.random_range(-WRONG_BY..=WRONG_BY)]
}
