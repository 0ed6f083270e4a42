//! Finds out by how much the wall clock has been set since the process began.

use std::{
    cell::Cell,
    sync::{
        OnceLock,
        atomic::{AtomicI64, Ordering},
    },
};

use jiff::SignedDuration;

/// A smaller difference is the time between the two readings.
const STEP: SignedDuration = SignedDuration::from_secs(1);

/// In milliseconds.
static SET: AtomicI64 = AtomicI64::new(0);

thread_local! {
    /// The step that this thread uses instead, in milliseconds.
    static PINNED: Cell<Option<i64>> = const { Cell::new(None) };
}

/// Returns by how much the wall clock has been set since the first reading, as of the last one.
pub(crate) fn since_start() -> SignedDuration {
    PINNED.get().map_or_else(noticed, SignedDuration::from_millis)
}

fn noticed() -> SignedDuration {
    SignedDuration::from_millis(SET.load(Ordering::Relaxed))
}

/// Runs this as if the wall clock had been set by this much, even if it is set again in
/// between.
pub(crate) fn pinned<R>(set: SignedDuration, run: impl FnOnce() -> R) -> R {
    /// Removes the pin, also when `run` panics.
    struct Back(Option<i64>);
    impl Drop for Back {
        fn drop(&mut self) {
            PINNED.set(self.0);
        }
    }
    let set = i64::try_from(set.as_millis()).unwrap_or_default();
    let _back = Back(PINNED.replace(Some(set)));
    run()
}

/// Compares a reading of the wall clock with one of the clock that nobody sets.
pub(crate) fn notice(wall: SignedDuration, monotonic: SignedDuration) {
    static FIRST: OnceLock<SignedDuration> = OnceLock::new();
    let difference = wall - monotonic;
    let set = difference - *FIRST.get_or_init(|| difference);
    if (set - noticed()).abs() >= STEP {
        SET.store(i64::try_from(set.as_millis()).unwrap_or_default(), Ordering::Relaxed);
    }
}
