//! What is behind the ports of a load balancer, and when the cloud is asked again if that is
//! nothing, or could not be seen: pure.

use std::time::Duration;

use ccm_base::{At, Backoff};
use ccm_cloud::{FrontEnd, Pool};

/// The waits between two full calls about a gap.
const WAITS: Backoff = Backoff { first: Duration::from_secs(5), longest: Duration::from_mins(5) };

/// A load balancer that lacks members which it should have, or whose members could not be seen. It
/// gets a full call at once, and the next ones with back-off. It is remembered for a while after it
/// was closed: what comes back at once is the same gap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Why the members could not be seen. None if a pool is empty.
    why: Option<String>,
    /// How many full calls have not closed it.
    times: u32,
    /// When the next one is due.
    retry_at: At,
    is_open: bool,
}

impl Gap {
    /// Whether a full call is due.
    pub fn is_due(&self, now: At) -> bool {
        self.is_open && self.retry_at <= now
    }

    /// When the next full call is due, if one is to be made.
    pub fn next(&self) -> Option<At> {
        self.is_open.then_some(self.retry_at)
    }

    /// Whether a change of members would see nothing now either.
    pub fn is_blind(&self, now: At) -> bool {
        self.is_open && self.why.is_some() && now < self.retry_at
    }

    /// Why the members cannot be seen, if a full call has not helped.
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

/// Opens the gap. `is_full` says that a full call has left it.
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
    /// `80/TCP`.
    pub(super) port: String,
    /// Why, as the provider says.
    pub(super) why: Option<&'a str>,
}

/// The ports without members. With a front end also those of its ports that have no pool, and no
/// others.
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

/// These ports in one line.
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
        // A look at the list meanwhile delays nothing.
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

    /// The full call sees what the change of members does not: each of them ends the other one's
    /// trouble.
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
