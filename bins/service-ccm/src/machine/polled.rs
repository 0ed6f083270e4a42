//! A poll shows a load balancer on which the cloud works.

use std::time::Duration;

use ccm_base::At;
use ccm_cloud::{LoadBalancer, Phase};
use ccm_objects::Service;

use super::entry::{BalancerEntry, in_milliseconds};
use crate::plan::{CallKind, Known, Pending, eligible::NodeSet};

/// The bounds of the wait before the next look at one load balancer.
const SHORTEST: Duration = Duration::from_millis(200);
pub(super) const LONGEST: Duration = Duration::from_secs(30);
/// The longest wait before the next call about a load balancer that no list shows, unless the provider asks for
/// a longer one: a call costs more than a list.
const LONGEST_OF_CALLS: Duration = Duration::from_mins(5);

impl BalancerEntry {
    /// Returns when to look at it again, if the cloud works on it.
    pub(crate) fn check_at(&self) -> Option<At> {
        // A load balancer that was handed to the queue does not need polls any more.
        self.state.pending.as_ref().filter(|_| !self.is_queued).map(|pending| pending.check_at)
    }

    /// Records that it is queued for its next call.
    pub(crate) fn hand_over(&mut self, now: At) {
        self.is_queued = true;
        if let Some(pending) = &mut self.state.pending {
            pending.check_at = pending.check_at.min(now);
        }
    }

    /// Ends a wait for the cloud that is over and after which no call is due. Returns true if there was one.
    pub(crate) fn ends_wait(&mut self, now: At) -> bool {
        self.is_queued = false;
        self.state.pending.take_if(|pending| pending.check_at <= now).is_some()
    }

    /// Returns true if a list shows that a call to create or update has ended. If the list does not
    /// show the address, only the next call finds that out.
    pub(crate) fn has_ended(&self, balancer: &LoadBalancer) -> bool {
        self.state.pending.as_ref().is_some_and(|last| {
            last.call == Some(CallKind::Ensure)
                && last.digest.is_some()
                && balancer.digest == last.digest
                && balancer.phase == Phase::Ready
                && !balancer.ingress.is_empty()
        })
    }

    /// Returns true if a pool is empty for no known reason, although the call named members.
    fn shows_no_members(&self, balancer: &LoadBalancer) -> bool {
        let asked = self.state.pending.as_ref().and_then(|last| last.members.as_ref());
        let mut pools = balancer.pools.iter().flatten();
        asked.is_some_and(|asked| !asked.present.is_empty())
            && pools.any(|pool| pool.members == 0 && pool.why_empty.is_none())
    }

    /// Applies a full read that began at `started`. Returns true if it shows the end of the call. A call
    /// that has not ended stays pending: the next call finds out what follows.
    pub(crate) fn confirmed(
        &mut self,
        balancer: LoadBalancer,
        nodes: &NodeSet,
        started: At,
        now: At,
    ) -> bool {
        // A list may show the new digest before the creation is complete.
        let has_ended = self.answered <= started && self.has_ended(&balancer);
        let lacks_members = has_ended && self.shows_no_members(&balancer);
        if lacks_members && self.state.gap.is_none() {
            self.state.saw_pools(balancer.pools.clone(), true, false, now);
            return false;
        }
        if has_ended && let Some(Pending { digest, members, .. }) = self.state.pending.take() {
            self.complete(balancer, digest, members.as_ref(), nodes, now);
        }
        has_ended
    }

    /// Records that a poll lacks the load balancer, or cannot read it, as this line says: it is
    /// looked at less often. Returns true if the line is news.
    pub(crate) fn not_polled(&mut self, line: Option<&str>, now: At) -> bool {
        if let Some(last) = &mut self.state.pending {
            last.check_at = now + pause(Duration::ZERO, now.since(last.since));
        }
        let is_news = self.state.unreadable.as_deref() != line;
        self.state.unreadable = line.map(str::to_owned);
        is_news
    }

    /// Applies what a poll has shown. Returns true if the cloud still works on it.
    pub(crate) fn polled(
        &mut self,
        service: &Service,
        mut balancer: LoadBalancer,
        now: At,
    ) -> bool {
        balancer.pools = None;
        let state = &mut self.state;
        state.unreadable = None;
        let Some(last) = state.pending.as_mut() else { return false };
        if let Phase::Pending(waiting) = &balancer.phase {
            last.what.clone_from(&waiting.what);
            last.check_at = now + pause(waiting.check_after, now.since(last.since));
            return true;
        }
        let has_ended = match last.call {
            // If it is ready, more changes may follow, or the list does not show the end.
            Some(CallKind::Ensure) => balancer.phase != Phase::Ready,
            // The next call finds out whether more changes follow.
            Some(CallKind::Members) => true,
            Some(CallKind::Delete | CallKind::DeleteDuplicate) => false,
            None => {
                if state.was_complete(service, &balancer.id) {
                    state.configured = state.configured.or(balancer.digest);
                }
                true
            }
        };
        if has_ended {
            state.pending = None;
        }
        state.known = Known::There(Box::new(balancer));
        false
    }
}

/// Returns the wait before the next look at a load balancer on which the cloud has worked for this
/// long: what takes long is looked at less often.
pub(super) fn pause(asked: Duration, age: Duration) -> Duration {
    in_milliseconds(asked.max(age / 8)).clamp(SHORTEST, LONGEST)
}

/// Returns the wait before the next call about a load balancer that no list shows, on which the cloud has worked
/// for this long.
pub(super) fn pause_of_calls(asked: Duration, age: Duration) -> Duration {
    in_milliseconds(asked.max((age / 8).min(LONGEST_OF_CALLS)))
}

#[cfg(test)]
mod tests {
    use ccm_cloud::{Digest, Ingress, IngressAddress, IpMode};

    use super::*;

    #[test]
    fn a_creation_has_ended_when_its_digest_and_its_address_are_there() {
        let digest = |hash| Some(Digest { version: 1, hash });
        let ingress = Ingress {
            address: IngressAddress::Hostname("a".to_owned()),
            ip_mode: IpMode::Vip,
            failed_ports: Vec::new(),
        };
        let mut entry = BalancerEntry::default();
        entry.state.pending = Some(Pending {
            call: Some(CallKind::Ensure),
            digest: digest(1),
            members: None,
            what: String::new(),
            check_at: At::default(),
            since: At::default(),
        });
        let whole = LoadBalancer {
            digest: digest(1),
            ingress: vec![ingress],
            ..LoadBalancer::new("lb-1", "", None)
        };
        assert!(entry.has_ended(&whole));
        assert!(!entry.has_ended(&LoadBalancer { digest: digest(2), ..whole.clone() }));
        assert!(!entry.has_ended(&LoadBalancer { ingress: Vec::new(), ..whole.clone() }));
        let (why, cure) = ("no capacity".to_owned(), ccm_cloud::Cure::Ensure);
        assert!(!entry.has_ended(&LoadBalancer { phase: Phase::Failed { why, cure }, ..whole }));
    }

    #[test]
    fn what_cannot_be_read_is_said_once_and_polled_less_often() {
        let mut entry = BalancerEntry::default();
        let minutes = |count| At(Duration::from_mins(count));
        entry.state.pending = Some(Pending {
            call: Some(CallKind::Ensure),
            digest: None,
            members: None,
            what: String::new(),
            check_at: At::default(),
            since: At::default(),
        });
        assert!(entry.not_polled(Some("no digest"), minutes(2)));
        assert!(!entry.not_polled(Some("no digest"), minutes(2)), "it is not news");
        assert_eq!(entry.check_at(), Some(minutes(2) + Duration::from_secs(15)));
        entry.polled(&Service::default(), LoadBalancer::new("lb-1", "", None), minutes(3));
        assert_eq!(entry.state.unreadable, None);
    }

    #[test]
    fn what_takes_long_is_polled_less_often() {
        let seconds = Duration::from_secs;
        for (asked, age, expect) in [
            (seconds(1), seconds(0), seconds(1)),
            (seconds(1), seconds(80), seconds(10)),
            (seconds(20), seconds(80), seconds(20)),
            (seconds(1), seconds(3600), LONGEST),
            (Duration::ZERO, seconds(0), SHORTEST),
        ] {
            assert_eq!(pause(asked, age), expect, "{asked:?} {age:?}");
        }
    }
}
