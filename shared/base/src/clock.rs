//! The only module that reads clocks.
//!
//! Code that needs the time takes it as a value or calls one of these three; a
//! lint bans the standard library's clocks everywhere else. Waiting is done with
//! the async runtime's timers, which tests can pause.
//!
//! A wall clock may be set, above all soon after a machine has started. Moments ([`At`]) do not
//! follow that, because they measure how long ago something was. They follow it where they become
//! text, which others read, and where such a text is read.

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use crate::{At, steps};

/// Returns the wall-clock time, for timestamps that other programs read: events, leases, logs.
/// Never measure durations with it: it can jump.
#[expect(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
pub fn wall() -> Timestamp {
    let now = Timestamp::now() + SignedDuration::from_millis(TEST.load(Ordering::Relaxed));
    steps::notice(now.as_duration(), monotonic());
    now
}

/// By how much a test has set the wall clock, in milliseconds.
static TEST: AtomicI64 = AtomicI64::new(0);

/// Sets the wall clock of this process forward or back, as NTP does. For tests.
pub fn set_wall(by: SignedDuration) {
    let by = i64::try_from(by.as_millis()).unwrap_or_default();
    TEST.fetch_add(by, Ordering::Relaxed);
}

/// Returns by how much the wall clock has been set since the process began: the difference between
/// moments and their texts.
pub fn set_since_start() -> SignedDuration {
    steps::since_start()
}

/// Runs this on the current thread as if the wall clock had been set by this much since the process
/// began. So the moments and the texts of another process, or of this one before its clock was set,
/// correspond to each other as they did there.
pub fn while_set_by<R>(set: SignedDuration, run: impl FnOnce() -> R) -> R {
    steps::pinned(set, run)
}

/// Returns the clock of the timers, which tests cannot pause here.
fn monotonic() -> SignedDuration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    SignedDuration::new(now.tv_sec, i32::try_from(now.tv_nsec).unwrap_or(0))
}

/// Returns the time since boot, including suspend (`CLOCK_BOOTTIME`).
///
/// The monotonic clock stops while a machine sleeps or a VM is paused: a leader that
/// relies on it would still believe in a term that has ended.
#[cfg(target_os = "linux")]
pub fn since_boot() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// Returns the time since boot. Systems other than Linux offer only the monotonic clock here.
#[cfg(not(target_os = "linux"))]
pub fn since_boot() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// The moments of one process: the wall clock's time at its beginning, and from there on
/// the monotonic clock, so that moments never go back. As text, which another process reads, they have
/// the wall clock's time (see [`At`]).
#[derive(Clone, Copy, Debug)]
pub struct Timeline {
    begins: At,
    started: Instant,
}

impl Timeline {
    /// Begins a timeline now.
    pub fn begin() -> Self {
        Self { begins: wall().into(), started: Instant::now() }
    }

    /// Returns this moment. Notices a step of the wall clock.
    pub fn now(&self) -> At {
        wall();
        self.begins + self.started.elapsed()
    }

    /// Returns when the timers of this process reach the moment. A moment before the beginning
    /// counts as the beginning.
    pub fn instant(&self, at: At) -> Instant {
        self.started + at.since(self.begins)
    }
}

/// Returns the seconds since the Unix epoch, with fractions. Metrics such as
/// `process_start_time_seconds` are defined in these units.
pub fn unix_seconds() -> f64 {
    wall().as_duration().as_secs_f64()
}
