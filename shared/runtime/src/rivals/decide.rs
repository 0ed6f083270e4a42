//! Which Leases show that another cloud controller works. Pure.

use std::fmt;

use ccm_base::message::one_line;

use crate::leadership::program_of;

/// How the Leases of Go cloud controllers end: `cloud-controller-manager` is upstream's and most
/// providers', others put their name before it. kube-controller-manager runs no cloud controllers.
const GO: &str = "cloud-controller-manager";
/// The longest text of another program that is shown.
const SHOWN: usize = 128;

/// A Lease as one look has seen it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) name: String,
    pub(super) holder: String,
    /// Another text after each renewal.
    pub(super) renewed: String,
}

/// What is this program's own.
pub(super) struct Own {
    pub(super) program: &'static str,
    /// The name of its Lease, if it is among those that are looked at.
    pub(super) lease: Option<String>,
}

impl Own {
    /// Returns true if another program that does this program's work holds the Lease.
    pub(super) fn is_rival(&self, lease: &Seen) -> bool {
        let is_own = self.lease.as_ref() == Some(&lease.name);
        let same_program = program_of(&lease.holder) == Some(self.program);
        let is_go = lease.name.ends_with(GO) && program_of(&lease.holder).is_none();
        !is_own && !lease.holder.is_empty() && (is_go || same_program)
    }
}

/// Another cloud controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rival {
    pub(super) lease: String,
    holder: String,
    /// True if it is this program with another Lease. Two may divide nodes or classes between them.
    pub(super) is_same_program: bool,
}

impl fmt::Display for Rival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (lease, holder) = (one_line(&self.lease, SHOWN), one_line(&self.holder, SHOWN));
        write!(f, "{holder} renews the Lease {lease}")
    }
}

/// The rivals that have renewed their Leases between two looks.
pub(super) fn rivals(own: &Own, before: &[Seen], after: &[Seen]) -> Vec<Rival> {
    let is_renewed = |lease: &&Seen| {
        let known = before.iter().find(|known| known.name == lease.name);
        known.is_some_and(|known| known.renewed != lease.renewed)
    };
    let rivals = after.iter().filter(|lease| own.is_rival(lease)).filter(is_renewed);
    rivals
        .map(|Seen { name, holder, .. }| Rival {
            lease: name.clone(),
            holder: holder.clone(),
            is_same_program: program_of(holder) == Some(own.program),
        })
        .collect()
}
