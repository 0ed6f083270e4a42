//! By how much the wall clock has been set since the process began.

use std::sync::{
    OnceLock,
    atomic::{AtomicI64, Ordering},
};

use jiff::SignedDuration;

/// A smaller difference is the time between the two readings.
const STEP: SignedDuration = SignedDuration::from_secs(1);

/// In milliseconds.
static SET: AtomicI64 = AtomicI64::new(0);

/// By how much the wall clock has been set since the first reading, as of the last one.
pub(crate) fn since_start() -> SignedDuration {
    SignedDuration::from_millis(SET.load(Ordering::Relaxed))
}

/// Compares a reading of the wall clock with one of the clock that nobody sets.
pub(crate) fn notice(wall: SignedDuration, monotonic: SignedDuration) {
    static FIRST: OnceLock<SignedDuration> = OnceLock::new();
    let difference = wall - monotonic;
    let set = difference - *FIRST.get_or_init(|| difference);
    if (set - since_start()).abs() >= STEP {
        SET.store(i64::try_from(set.as_millis()).unwrap_or_default(), Ordering::Relaxed);
    }
}
