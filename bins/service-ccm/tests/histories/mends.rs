//! What the program does not do yet as the rules say. A movement or a rule that stands for such a
//! mend waits until the mend is there; then its entry goes.

/// A mend that is to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mend {
    /// A refusal that passes is tried again.
    FinalErrors,
    /// What the program wrote to a Service goes when the Service has the class of another controller,
    /// also if the provider has no list and the process is another one by then.
    WithoutList,
}

/// Those that are still to come.
const AWAITED: &[Mend] = &[Mend::FinalErrors, Mend::WithoutList];

/// Whether what stands for this mend waits. `QUARTET_MENDS=all` waits for none.
pub(crate) fn awaits(mend: Mend) -> bool {
    AWAITED.contains(&mend) && std::env::var("QUARTET_MENDS").as_deref() != Ok("all")
}
