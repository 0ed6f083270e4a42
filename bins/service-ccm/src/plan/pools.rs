//! The members behind the ports of a load balancer, and when service-ccm asks the cloud again if
//! they are missing, or if the provider could not see them: pure.

use std::time::Duration;

use ccm_base::{At, Backoff};
use ccm_cloud::{FrontEnd, Pool};
use serde::{Deserialize, Serialize};

/// The waits between two full calls about a gap.
const WAITS: Backoff = Backoff { first: Duration::from_secs(5), longest: Duration::from_mins(5) };

/// A load balancer that lacks members, or whose members the provider could not see. service-ccm
/// makes a full call at once, and further ones with back-off. It keeps a closed gap for a while: a
/// gap that opens again soon continues the back-off.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// The reason why the provider could not see the members. `None` if a pool is empty.
    why: Option<String>,
    /// The number of full calls that have not closed the gap.
    times: u32,
    /// When the next full call is due.
    retry_at: At,
    is_open: bool,
}

impl Gap {
    /// Returns true if a full call is due.
    pub fn is_due(&self, now: At) -> bool {
        self.is_open && self.retry_at <= now
    }

    /// Returns when the next full call is due, if the gap is open.
    pub fn next(&self) -> Option<At> {
        self.is_open.then_some(self.retry_at)
    }

    /// Returns true if a change of members could not see the members now either.
    pub fn is_blind(&self, now: At) -> bool {
        self.is_open && self.why.is_some() && now < self.retry_at
    }

    /// Returns why the provider cannot see the members, if a full call has not helped.
    pub fn unseen(&self) -> Option<&str> {
        self.why.as_deref().filter(|_| self.is_open && self.times > 0)
    }
}

/// Closes the gap.
pub(super) fn close(gap: &mut Option<Gap>, now: At) {
    if let Some(open) = gap {
        open.is_open = false;
        gap.take_if(|gap| gap.retry_at + WAITS.longest <= now);
    }
}

/// Opens the gap. `is_full` means that a full call has just ended with this gap.
pub(super) fn open(gap: &mut Option<Gap>, why: Option<String>, is_full: bool, now: At) {
    gap.take_if(|gap| !gap.is_open && gap.retry_at + WAITS.longest <= now);
    let times = match gap {
        Some(last) if last.is_open && why.is_none() && !is_full => return,
        Some(last) => last.times.saturating_add(1),
        None => u32::from(is_full),
    };
    let wait = if times == 0 { Duration::ZERO } else { WAITS.after(times) };
    *gap = Some(Gap { why, times, retry_at: now + wait, is_open: true });
}

/// A port without members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Empty<'a> {
    /// The port and its protocol: `80/TCP`.
    pub(super) port: String,
    /// The reason why the port has no members, in the provider's words.
    pub(super) why: Option<&'a str>,
}

/// Returns the ports without members. With a front end: its ports with a member port whose pool is
/// empty or does not exist.
pub(super) fn empty<'a>(pools: &'a [Pool], front_end: Option<&FrontEnd>) -> Vec<Empty<'a>> {
    let of = |pool: &'a Pool| Empty {
        port: format!("{}/{}", pool.port, pool.protocol),
        why: pool.why_empty.as_deref(),
    };
    let Some(front_end) = front_end else {
        return pools.iter().filter(|pool| pool.members == 0).map(of).collect();
    };
    let ports = front_end.ports.iter().filter(|port| port.member_port.is_some());
    ports
        .filter_map(|port| {
            let is = |pool: &&Pool| (pool.protocol, pool.port) == (port.protocol, port.port);
            match pools.iter().find(is) {
                Some(pool) if pool.members > 0 => None,
                Some(pool) => Some(of(pool)),
                None => Some(Empty { port: format!("{}/{}", port.port, port.protocol), why: None }),
            }
        })
        .collect()
}

/// Describes these ports in one line.
pub(super) fn in_words(empty: &[Empty<'_>]) -> String {
    let mut parts: Vec<String> = Vec::new();
    let bare: Vec<&str> =
        empty.iter().filter(|one| one.why.is_none()).map(|one| one.port.as_str()).collect();
    if !bare.is_empty() {
        parts.push(format!("no member behind {}", bare.join(", ")));
    }
    let mut whys: Vec<&str> = empty.iter().filter_map(|one| one.why).collect();
    whys.dedup();
    parts.extend(whys.into_iter().map(str::to_owned));
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use ccm_cloud::Protocol;

    use super::*;

    fn at(seconds: u64) -> At {
        At::default() + Duration::from_secs(seconds)
    }

    #[test]
    fn a_gap_is_looked_at_at_once_and_then_with_back_off() {
        let mut gap = None;
        let mut now = at(0);
        let mut waits = Vec::new();
        open(&mut gap, None, false, now);
        for _ in 0..9 {
            let next = gap.as_ref().and_then(Gap::next).expect("an open gap");
            waits.push(next.since(now).as_secs());
            now = next;
            assert!(gap.as_ref().is_some_and(|gap| gap.is_due(now)));
            open(&mut gap, None, true, now);
        }
        assert_eq!(waits, [0, 5, 10, 20, 40, 80, 160, 300, 300]);
        // A list in the meantime does not delay the next call.
        let before = gap.clone();
        open(&mut gap, None, false, now);
        assert_eq!(gap, before);
    }

    #[test]
    fn what_a_full_call_has_left_waits_first() {
        let mut gap = None;
        open(&mut gap, None, true, at(0));
        assert_eq!(gap.and_then(|gap| gap.next()), Some(at(5)));
    }

    /// The full call sees the members and closes the gap. The change of members does not see them
    /// and opens it again.
    #[test]
    fn a_gap_that_comes_back_at_once_is_the_same() {
        let (mut gap, blind) = (None, || Some("no port".to_owned()));
        open(&mut gap, blind(), false, at(0));
        assert!(gap.as_ref().is_some_and(|gap| gap.unseen().is_none()), "it was not tried yet");
        close(&mut gap, at(1));
        assert!(gap.as_ref().is_some_and(|gap| gap.next().is_none()));
        open(&mut gap, blind(), false, at(1));
        let shown = gap.as_ref().expect("a gap");
        assert_eq!((shown.next(), shown.unseen()), (Some(at(6)), Some("no port")));
        assert!(shown.is_blind(at(5)) && !shown.is_blind(at(6)));
        close(&mut gap, at(6));
        open(&mut gap, blind(), false, at(400));
        assert_eq!(gap.as_ref().and_then(Gap::next), Some(at(400)), "that was long ago");
        close(&mut gap, at(701));
        assert_eq!(gap, None);
    }

    #[test]
    fn ports_without_members_are_named() {
        let pool = |port, members, why: Option<&str>| Pool {
            protocol: Protocol::Tcp,
            port,
            members,
            why_empty: why.map(str::to_owned),
        };
        let pools = [pool(80, 2, None), pool(443, 0, None), pool(444, 0, Some("no zone"))];
        assert_eq!(in_words(&empty(&pools, None)), "no member behind 443/TCP; no zone");
        assert!(empty(&pools[..1], None).is_empty());
    }
}
