//! Finds the Leases that show that another cloud controller works. Pure.

use std::fmt;

use ccm_base::message::one_line;
use jiff::Timestamp;

use crate::{leadership::program_of, plans::Mode};

/// The end of the names of the Leases of Go cloud controllers. Upstream and most providers use
/// `cloud-controller-manager`, others put their name before it. kube-controller-manager does not
/// run cloud controllers.
const GO: &str = "cloud-controller-manager";
/// The longest text of another program that is shown.
const SHOWN: usize = 128;

/// A Lease as one look has seen it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SeenLease {
    pub(super) name: String,
    pub(super) holder: String,
    /// A text that changes with each renewal.
    pub(super) renewed: String,
    /// When its holder began to lead.
    pub(super) acquired: Option<Timestamp>,
    /// False if the Lease has not been renewed for so long that its holder is gone, even
    /// if the clocks differ.
    pub(super) may_live: bool,
    /// True if its term is not over by this machine's clock.
    pub(super) is_held: bool,
}

/// The Leases and names that are this program's own.
pub(super) struct Own {
    pub(super) program: &'static str,
    /// The name of its work in a Go program, for instance `cloud-node`.
    pub(super) work: &'static str,
    /// The name of its Lease, if it is among those that are looked at.
    pub(super) lease: Option<String>,
    /// True if others of this program may lead at the same time.
    pub(super) allows_others: bool,
}

impl Own {
    /// Returns true if another program that does this program's work holds the Lease.
    pub(super) fn is_rival(&self, lease: &SeenLease) -> bool {
        let is_go = lease.name.ends_with(GO) && program_of(&lease.holder).is_none();
        let is_held = is_go && !lease.holder.is_empty();
        self.is_second(lease) || (is_held && self.is_other(lease))
    }

    /// Returns true if the same program holds this other Lease.
    pub(super) fn is_second(&self, lease: &SeenLease) -> bool {
        self.is_other(lease) && program_of(&lease.holder) == Some(self.program)
    }

    fn is_other(&self, lease: &SeenLease) -> bool {
        !self.is_own(lease) && lease.may_live
    }

    fn is_own(&self, lease: &SeenLease) -> bool {
        self.lease.as_ref() == Some(&lease.name)
    }
}

/// Another cloud controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rival {
    pub(super) lease: String,
    holder: String,
    /// True if it is this program with another Lease. Two may divide nodes or classes between them.
    pub(super) is_same_program: bool,
    acquired: Option<Timestamp>,
}

impl fmt::Display for Rival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (lease, holder) = (one_line(&self.lease, SHOWN), one_line(&self.holder, SHOWN));
        write!(f, "{holder} renews the Lease {lease}")
    }
}

/// Returns the competing controllers that have renewed their Leases between two looks.
pub(super) fn rivals(own: &Own, before: &[SeenLease], after: &[SeenLease]) -> Vec<Rival> {
    let is_renewed = |lease: &&SeenLease| {
        let known = before.iter().find(|known| known.name == lease.name);
        known.is_some_and(|known| known.renewed != lease.renewed || lease.is_held)
    };
    let rivals = after.iter().filter(|lease| own.is_rival(lease)).filter(is_renewed);
    rivals
        .map(|SeenLease { name, holder, acquired, .. }| Rival {
            lease: name.clone(),
            holder: holder.clone(),
            is_same_program: program_of(holder) == Some(own.program),
            acquired: *acquired,
        })
        .collect()
}

/// Returns the other leader of this program to which this leader yields. Of two that see each
/// other, the one that led first stays, so exactly one ends. A leader whose Lease is elsewhere
/// yields, because the other one does not see it.
pub(super) fn yields_to<'a>(
    own: &Own,
    leases: &[SeenLease],
    found: &'a [Rival],
) -> Option<&'a Rival> {
    if own.allows_others {
        return None;
    }
    let mine = leases.iter().find(|lease| own.is_own(lease));
    let is_before_us = |rival: &&Rival| {
        mine.is_none_or(|mine| (rival.acquired, &rival.lease) < (mine.acquired, &mine.name))
    };
    found.iter().filter(|rival| rival.is_same_program).find(is_before_us)
}

/// The verdict about the competing controllers.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RivalsVerdict {
    /// How many of the controllers are a fault.
    pub(super) count: usize,
    /// The text about them, if there are any.
    pub(super) text: Option<String>,
}

/// Judges the controllers that compete with a program. The same program under another Lease is not
/// a fault if that is allowed, and an observer never has a fault.
pub(super) fn verdict(own: &Own, mode: Mode, found: &[Rival]) -> RivalsVerdict {
    let program = own.program;
    let (same, others): (Vec<_>, Vec<_>) = found.iter().partition(|rival| rival.is_same_program);
    let list = |rivals: &[&Rival]| {
        let list: Vec<_> = rivals.iter().map(ToString::to_string).collect();
        (!list.is_empty()).then(|| list.join("; "))
    };
    let is_observing = mode == Mode::Observe;
    let advice = match is_observing {
        true => "this process only observes".to_owned(),
        false => {
            format!(
                "switch {} off there, or end it (docs/explanation/leadership.md, Rivals)",
                own.work
            )
        }
    };
    let others_text =
        list(&others).map(|list| format!("another cloud controller runs: {list}; {advice}"));
    let same_advice = match own.allows_others {
        true => "--allow-other-leaders is right only if the two divide nodes or classes",
        false => {
            "end one of the two, or set --allow-other-leaders in both if they divide nodes or classes"
        }
    };
    let same_text = list(&same).map(|list| {
        format!(
            "another {program} leads: {list}; {same_advice} (docs/explanation/leadership.md, Rivals)"
        )
    });
    let texts: Vec<_> = others_text.into_iter().chain(same_text).collect();
    RivalsVerdict {
        count: match (is_observing, own.allows_others) {
            (true, _) => 0,
            (false, true) => others.len(),
            (false, false) => found.len(),
        },
        text: (!texts.is_empty()).then(|| texts.join(". Also ")),
    }
}
