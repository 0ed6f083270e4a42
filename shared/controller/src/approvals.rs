//! The approvals that a user gives by annotations of the Lease, as the leader follows them.

use std::time::Duration;

use ccm_base::{At, clock};
use ccm_runtime::leadership::LeaseAnnotations;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::brake::approval::{InvalidApproval, KEYS, Keys, SetApproval};

/// How often the annotations are read: as often as the Lease is renewed.
const PERIOD: Duration = Duration::from_secs(2);

/// Follows these approvals until the token is cancelled. `changed` gets all of them, in their order, whenever one
/// of them has changed.
pub async fn follow<const N: usize>(
    mut all: [Approvals; N],
    token: CancellationToken,
    changed: impl Fn([Option<SetApproval>; N]),
) {
    let work = async {
        loop {
            let is_new = all.iter_mut().fold(false, |is_new, one| one.read() | is_new);
            if is_new {
                changed(all.each_ref().map(|one| one.current().cloned()));
            }
            sleep(PERIOD).await;
        }
    };
    token.run_until_cancelled(work).await;
}

/// The approval on the Lease as last read.
#[derive(Debug)]
pub struct Approvals {
    lease: LeaseAnnotations,
    keys: Keys,
    /// The approved change, for log lines: `that held members leave`.
    what: &'static str,
    last: Result<Option<SetApproval>, InvalidApproval>,
}

impl Approvals {
    /// Starts without an approval. `what` completes "the Lease approves".
    pub fn new(lease: &LeaseAnnotations, what: &'static str) -> Self {
        Self::with_keys(lease, KEYS, what)
    }

    /// Returns the same with annotations of their own.
    pub fn with_keys(lease: &LeaseAnnotations, keys: Keys, what: &'static str) -> Self {
        Self { lease: lease.clone(), keys, what, last: Ok(None) }
    }

    /// Reads the Lease's annotations. Logs a change and returns true if there was one. An approval
    /// ends by the current wall clock, which may have been set since the process began. So the
    /// approval stays in force until the next call.
    pub fn read(&mut self) -> bool {
        self.read_at(clock::wall().into())
    }

    /// Returns the approval that this Lease has now, so that it can be compared with an earlier
    /// one.
    pub fn right_now(lease: &LeaseAnnotations) -> Option<SetApproval> {
        Self::on(lease, KEYS, clock::wall().into()).ok().flatten()
    }

    fn on(
        lease: &LeaseAnnotations,
        keys: Keys,
        now: At,
    ) -> Result<Option<SetApproval>, InvalidApproval> {
        let read = SetApproval::read(keys, |key| lease.get(key))?;
        read.map(|set| set.unless_over(now)).transpose()
    }

    fn read_at(&mut self, now: At) -> bool {
        let read = Self::on(&self.lease, self.keys, now);
        if read == self.last {
            return false;
        }
        match &read {
            Ok(Some(approval)) => tracing::info!("the Lease approves {}: {approval}", self.what),
            Ok(None) => tracing::info!("the Lease does not approve {} any more", self.what),
            Err(error) => tracing::warn!("the Lease does not approve {}: {error}", self.what),
        }
        self.last = read;
        true
    }

    /// Returns the approval. Returns `None` if nothing is approved, if the annotations are invalid,
    /// or if their time is over.
    pub fn current(&self) -> Option<&SetApproval> {
        self.last.as_ref().ok()?.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ccm_base::clock::Timeline;

    use super::*;
    use crate::brake::approval::{SELECTOR, UNTIL};

    fn approvals(until: At) -> Approvals {
        let texts = [(SELECTOR, "*".to_owned()), (UNTIL, until.to_string())];
        Approvals::new(&LeaseAnnotations::with(texts), "tests")
    }

    /// After the wall clock is set back by an hour, the timeline of a process is an hour ahead of
    /// it.
    #[tokio::test(start_paused = true)]
    async fn an_approval_ends_by_the_wall_clock_as_it_is_now() {
        let timeline = Timeline::begin();
        let mut approvals = approvals(timeline.now() + Duration::from_mins(30));
        tokio::time::sleep(Duration::from_hours(1)).await;
        assert!(approvals.read());
        assert!(approvals.current().is_some(), "{} by the timeline", timeline.now());
    }

    #[test]
    fn it_is_over_at_its_time() {
        let at = |seconds| At(Duration::from_secs(seconds));
        let mut approvals = approvals(at(100));
        assert!(approvals.read_at(at(99)) && approvals.current().is_some());
        assert!(!approvals.read_at(at(99)), "it is known");
        assert!(approvals.read_at(at(100)) && approvals.current().is_none());
    }
}
