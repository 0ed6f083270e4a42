//! What the program does not do yet as the rules say. A movement or a rule that stands for such a
//! mend waits until the mend is there; then its entry goes.

/// A mend that is to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mend {
    /// A refusal that passes is tried again.
    FinalErrors,
    /// What the program wrote to a Service that has got the class of another controller goes at once, also
    /// if the process is another one by then. Now it goes with the Service or its type.
    AfterRestart,
}

/// Those that are still to come.
const AWAITED: &[Mend] = &[Mend::FinalErrors, Mend::AfterRestart];

/// Whether what stands for this mend waits. `QUARTET_MENDS=all` waits for none.
pub(crate) fn awaits(mend: Mend) -> bool {
    AWAITED.contains(&mend) && std::env::var("QUARTET_MENDS").as_deref() != Ok("all")
}
