//! Who is looked at next.

use std::{sync::Arc, time::Duration};

use super::{At, Court, Policy, Ruling, Subject, record::Record};

/// How many nodes one pass looks up at most: two batches of 500.
pub const LOOKUPS_PER_PASS: usize = 1000;

/// How often the fleet is listed while the breaker is open.
const RELIST: Duration = Duration::from_secs(30);

/// What to ask the cloud.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Agenda {
    /// The nodes to look up, the most urgent first; at most [`LOOKUPS_PER_PASS`].
    pub look_up: Vec<Arc<str>>,
    /// Whether to list the fleet. Its first page must not be asked before this agenda.
    pub list: bool,
    /// When the next agenda may not be empty if no node changes and nothing is asked
    /// now. After a hearing, ask for a new agenda to know.
    pub next: Option<At>,
    /// Cases that ended without a hearing: the node turned Ready, vanished, or left the
    /// court's reach. For the log; nothing is to be done.
    pub ended: Vec<Ruling>,
}

impl Agenda {
    /// Whether there is nothing to ask.
    pub fn is_empty(&self) -> bool {
        self.look_up.is_empty() && !self.list
    }
}

impl Court {
    /// Says what to ask the cloud now.
    pub fn agenda(&mut self, now: At, subjects: &[Subject], policy: &Policy) -> Agenda {
        let ended = self.enrol(subjects);
        let mut waiting: Vec<(&Subject, &Record)> = subjects
            .iter()
            .filter(|subject| subject.is_watched())
            .filter_map(|subject| Some((subject, self.records.get(&subject.name)?)))
            .collect();
        let relist = self.relist();
        let nobody_due = waiting.iter().all(|(_, record)| record.look_again > now);
        if nobody_due {
            let list = relist.is_some_and(|at| at <= now);
            let looks = waiting.iter().map(|(_, record)| record.look_again);
            let next = looks.chain(relist.filter(|at| *at > now)).min();
            return Agenda { look_up: Vec::new(), list, next, ended };
        }
        // Those who are due soon come along: one batch instead of two.
        let horizon = now + policy.monitor_period / 2;
        let later = waiting.iter().map(|(_, record)| record.look_again).filter(|at| *at > horizon);
        let next = later.chain(relist.filter(|at| *at > now)).min();
        waiting.retain(|(_, record)| record.look_again <= horizon);
        waiting.sort_by_cached_key(|(subject, record)| urgency(subject, record));
        waiting.truncate(LOOKUPS_PER_PASS);
        let convicts = waiting
            .iter()
            .any(|(subject, record)| is_near_conviction(now, subject, record, policy));
        Agenda {
            look_up: waiting.iter().map(|(subject, _)| Arc::clone(&subject.name)).collect(),
            list: convicts || relist.is_some_and(|at| at <= now),
            next,
            ended,
        }
    }

    /// When an open breaker wants a new list.
    fn relist(&self) -> Option<At> {
        self.breaker.is_open().then(|| self.listed.unwrap_or_default() + RELIST)
    }
}

/// Open cases first, then those never looked at, then those longest ago.
fn urgency(subject: &Subject, record: &Record) -> (bool, At, Arc<str>) {
    let when = match (&record.case, record.looked) {
        (Some(_), _) => record.look_again,
        (None, looked) => looked.unwrap_or_default(),
    };
    (record.case.is_none(), when, Arc::clone(&subject.name))
}

/// Whether one more answer "gone" would bring it before the list.
fn is_near_conviction(now: At, subject: &Subject, record: &Record, policy: &Policy) -> bool {
    let confirmed = |opened: At| opened + policy.confirmation_period <= now;
    !subject.protected
        && subject.can_be_judged(policy)
        && record.case.as_ref().is_some_and(|case| confirmed(case.opened()))
}
