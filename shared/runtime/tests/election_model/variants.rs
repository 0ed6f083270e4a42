//! The checked variants: all protections, each one left out, each one alone.

use std::fmt;

use super::{
    AT_MOST_ONE, Answers, Election, Expiry, HANDED_OVER, Identities, ONE_WRITER, Release, SEEING,
    Term, TermClock, Verdict, Writes,
    duties::{Check, Duty, Eligible, Handover, Leaves, Limited, Reads, Waits},
};

/// By how much the terms of two candidates differ where they do, in ticks.
const LONGER: u8 = 2;

/// A variant of the election, and whether it must be safe.
pub struct Variant {
    pub name: &'static str,
    election: Election,
    /// The rule that it must break.
    breaks: Option<&'static str>,
}

impl Variant {
    /// Returns all variants, with this number of candidates, and a Lease and a term of these ticks.
    pub fn all(candidates: usize, lease: u8, deadline: u8) -> Vec<Self> {
        let quartet = Self::quartet(candidates, lease, deadline);
        let mut variants = Self::unsafe_ones(quartet);
        variants.extend(Self::safe_ones(quartet));
        variants
    }

    fn quartet(candidates: usize, lease: u8, deadline: u8) -> Election {
        Election {
            expiry: Expiry::Observation,
            writes: Writes::CompareAndSwap,
            term: Term::FromRequest,
            term_clock: TermClock::SinceBoot,
            answers: Answers::Examined,
            release: Release::AfterEnd,
            identities: Identities::Unique,
            candidates,
            lease,
            deadline,
            duty: Duty::Nothing,
            longer: 0,
            // The longest that the settings accept.
            longest: lease + LONGER,
            skew: 0,
        }
    }

    fn unsafe_ones(quartet: Election) -> Vec<Self> {
        let unguarded = Election {
            expiry: Expiry::Timestamps,
            writes: Writes::Unconditional,
            term: Term::Endless,
            answers: Answers::Trusted,
            ..quartet
        };
        let not_safe = |name, election| Self { name, election, breaks: Some(AT_MOST_ONE) };
        let beyond = quartet.lease + 1;
        vec![
            not_safe("the library alone", unguarded),
            not_safe(
                "only examined responses",
                Election { answers: Answers::Examined, ..unguarded },
            ),
            not_safe(
                "only compare-and-swap",
                Election { writes: Writes::CompareAndSwap, ..unguarded },
            ),
            not_safe("no compare-and-swap", Election { writes: Writes::Unconditional, ..quartet }),
            not_safe(
                "timestamps, one clock ahead",
                Election { expiry: Expiry::Timestamps, skew: 4, ..quartet },
            ),
            not_safe("no term", Election { term: Term::Endless, ..quartet }),
            not_safe("a term from the answer", Election { term: Term::FromAnswer, ..quartet }),
            not_safe("a term beyond the lease", Election { deadline: beyond, ..quartet }),
            not_safe(
                "a term by a clock that sleeps",
                Election { term_clock: TermClock::Monotonic, ..quartet },
            ),
            not_safe("release before the end", Election { release: Release::BeforeEnd, ..quartet }),
            not_safe(
                "different terms, own respected",
                Election { longest: 0, longer: LONGER, ..quartet },
            ),
            not_safe(
                "different terms, records cut short",
                Election { longest: quartet.deadline + LONGER - 1, longer: LONGER, ..quartet },
            ),
            not_safe(
                "one identity for all",
                Election { identities: Identities::Shared, ..quartet },
            ),
        ]
    }

    fn safe_ones(quartet: Election) -> Vec<Self> {
        let safe = |name, election| Self { name, election, breaks: None };
        vec![
            safe("all in place", quartet),
            safe("all in place, one clock ahead", Election { skew: 4, ..quartet }),
            safe("all in place, different terms", Election { longer: LONGER, ..quartet }),
            safe(
                "all in place, a term as the lease",
                Election { deadline: quartet.lease, ..quartet },
            ),
            // Not needed with compare-and-swap.
            safe("accepted responses trusted", Election { answers: Answers::Trusted, ..quartet }),
            // Enough if clocks were perfect.
            safe("timestamps, perfect clocks", Election { expiry: Expiry::Timestamps, ..quartet }),
        ]
    }

    /// Returns the variants of duties, with two candidates and few ticks.
    pub fn duties() -> Vec<Self> {
        let quartet = Self::quartet(2, 3, 2);
        let named = |name, duty, breaks| {
            let election = Election { duty, ..quartet };
            Self { name, election, breaks }
        };
        let handover =
            Handover { waits: Waits::ForItsRenewal, leaves: Leaves::All, reads: Reads::Always };
        let deletes = |name, handover| named(name, Duty::Deletes(handover), Some(HANDED_OVER));
        let limited = Limited { check: Check::AfterInFull, drains: true };
        let writes = |name, limited| named(name, Duty::Writes(limited), Some(ONE_WRITER));
        let eligible = Eligible { stands_aside: true, gives_back: true };
        let watches = |name, eligible| named(name, Duty::Watches(eligible), Some(SEEING));
        // The time between the end of a term and the end of the Lease hides writes that are too late.
        let tight = |variant: Self| {
            let election = Election { deadline: quartet.lease, ..variant.election };
            Self { election, ..variant }
        };
        let brief = Limited { check: Check::AfterForNow, ..limited };
        vec![
            named("deletions", Duty::Deletes(handover), None),
            deletes("a deletion at once", Handover { waits: Waits::Never, ..handover }),
            deletes(
                "a deletion after any renewal",
                Handover { waits: Waits::ForAnyRenewal, ..handover },
            ),
            deletes(
                "own deletions alone are left",
                Handover { leaves: Leaves::OwnAlone, ..handover },
            ),
            deletes("what is left is read once", Handover { reads: Reads::Once, ..handover }),
            named("writes", Duty::Writes(limited), None),
            tight(named("writes, a term as the lease", Duty::Writes(limited), None)),
            writes("a check before the wait", Limited { check: Check::Before, ..limited }),
            tight(writes("a check for now", brief)),
            writes("release before writes end", Limited { drains: false, ..limited }),
            named("watches that fail", Duty::Watches(eligible), None),
            watches("a blind candidate", Eligible { stands_aside: false, ..eligible }),
            watches("a blind leader", Eligible { gives_back: false, ..eligible }),
        ]
    }

    /// Checks it.
    pub fn check(&self) -> Outcome<'_> {
        Outcome { variant: self, verdict: self.election.check() }
    }
}

/// The result of checking a variant.
pub struct Outcome<'a> {
    variant: &'a Variant,
    verdict: Verdict,
}

impl Outcome<'_> {
    /// Returns true if the result is the expected one.
    pub fn is_as_expected(&self) -> bool {
        let Verdict { broken, taken_over, at_work, .. } = &self.verdict;
        let broken = broken.as_ref().map(|(rule, _)| *rule);
        broken == self.variant.breaks && (broken.is_some() || (*taken_over && *at_work))
    }
}

impl fmt::Display for Outcome<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { variant: Variant { name, breaks, .. }, verdict } = self;
        let text = |is_broken: bool| if is_broken { "unsafe" } else { "safe" };
        let (found, expected) = (text(verdict.broken.is_some()), text(breaks.is_some()));
        let (states, depth) = (verdict.states, verdict.depth);
        write!(f, "{name:34} {states:>10} {depth:>6}  {found:6}  {expected:8}")?;
        if self.is_as_expected() {
            return Ok(());
        }
        match (&verdict.broken, breaks) {
            (Some((rule, way)), _) => write!(f, "  WRONG: not \"{rule}\", by {way:?}"),
            (None, Some(rule)) => write!(f, "  WRONG: always \"{rule}\""),
            (None, None) => write!(f, "  WRONG: no takeover, or nothing is done"),
        }
    }
}
