//! The checked variants: all protections, each one left out, each one alone.

use std::fmt;

use super::{Answers, Election, Expiry, Identities, Release, Term, TermClock, Verdict, Writes};

/// By how much the terms of two candidates differ where they do, in ticks.
const LONGER: u8 = 2;

/// A variant of the election, and whether it must be safe.
pub struct Variant {
    pub name: &'static str,
    election: Election,
    safe: bool,
}

impl Variant {
    /// All variants, with this number of candidates, and a Lease and a term of these ticks.
    pub fn all(candidates: usize, lease: u8, deadline: u8) -> Vec<Self> {
        let quartet = Election {
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
            longer: 0,
            // The longest that the settings accept.
            longest: lease + LONGER,
            skew: 0,
        };
        let mut variants = Self::unsafe_ones(quartet);
        variants.extend(Self::safe_ones(quartet));
        variants
    }

    fn unsafe_ones(quartet: Election) -> Vec<Self> {
        let unguarded = Election {
            expiry: Expiry::Timestamps,
            writes: Writes::Unconditional,
            term: Term::Endless,
            answers: Answers::Trusted,
            ..quartet
        };
        let not_safe = |name, election| Self { name, election, safe: false };
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
        let safe = |name, election| Self { name, election, safe: true };
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
    /// Whether the result is the expected one.
    pub fn is_as_expected(&self) -> bool {
        if self.variant.safe {
            self.verdict.two_leaders.is_none() && self.verdict.taken_over
        } else {
            self.verdict.two_leaders.is_some()
        }
    }
}

impl fmt::Display for Outcome<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { variant: Variant { name, safe, .. }, verdict } = self;
        let found = if verdict.two_leaders.is_some() { "unsafe" } else { "safe" };
        let expected = if *safe { "safe" } else { "unsafe" };
        let (states, depth) = (verdict.states, verdict.depth);
        write!(f, "{name:34} {states:>10} {depth:>6}  {found:6}  {expected:8}")?;
        if self.is_as_expected() {
            return Ok(());
        }
        match &verdict.two_leaders {
            Some(way) => write!(f, "  WRONG: two leaders by {way:?}"),
            None if *safe => write!(f, "  WRONG: no takeover"),
            None => write!(f, "  WRONG: never two leaders"),
        }
    }
}
