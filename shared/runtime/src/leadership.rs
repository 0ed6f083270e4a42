//! Leader election.
//!
//! `kube-leader-election` implements the protocol (read the Lease, decide, patch it). On its own it
//! can elect two leaders, because it trusts wall clocks and patches without a precondition. Three
//! mechanisms around it make it safe, and all three are required (the model in
//! `tests/model_check.rs` finds two leaders without any one of them):
//!
//! 1. **Compare-and-swap**: a write carries the resource version of the Lease that the decision was
//!    based on ([`guard`], which turns the library's patches into updates).
//! 2. **Monotonic observation**: a Lease has expired when *this process* has seen it unchanged
//!    for its whole duration, whatever its timestamps say ([`guard`]).
//! 3. **A local deadline**: a leader's term ends by its own clock before another replica may
//!    take over, counted from before the request was sent ([`term`]). Each write checks
//!    that the term outlives the write's own time limit.
//!
//! A replica is a candidate only while its watches work ([`eligibility`]). A leader can leave a
//! text to the next one ([`LeaseAnnotations`]).
//!
//! Like client-go's election this assumes that clocks run at equal *rates*, within the
//! ratio of lease to deadline (3 : 2). A request that has been sent cannot be cancelled;
//! the time between deadline and lease covers it.

mod annotations;
mod elector;
pub mod eligibility;
pub mod guard;
mod identity;
mod metrics;
mod observed;
mod problem;
mod standby;
pub mod term;

pub use annotations::{CLOUD_IDENTITY, HANDOVER, LeaseAnnotations};
pub use elector::{Elector, Ended};
pub use eligibility::Eligibility;
pub(crate) use identity::program as program_of;
pub use metrics::LeadershipMetrics;
pub use term::{Leadership, Lost, Term};
