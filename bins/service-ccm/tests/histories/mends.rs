//! The known deviations of the program from the rules. A movement or a rule that needs a mend is
//! skipped until the mend exists; then its entry is removed.

/// A mend that does not exist yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mend {
    /// The program removes what it wrote to a Service at once when the class changes to another
    /// controller, even after a restart. Now it does that when the Service or its type goes.
    AfterRestart,
}

/// The mends that do not exist yet.
const AWAITED: &[Mend] = &[Mend::AfterRestart];

/// Returns true if this mend does not exist yet. `QUARTET_MENDS=all`: always false.
pub(crate) fn awaits(mend: Mend) -> bool {
    AWAITED.contains(&mend) && std::env::var("QUARTET_MENDS").as_deref() != Ok("all")
}
