//! A list of the cloud, or a full look, shows a load balancer.

use std::{cmp::Reverse, mem, time::Duration};

use ccm_base::{At, message::line_about};
use ccm_cloud::{LoadBalancer, Phase};
use ccm_objects::Service;

use super::entry::BalancerEntry;
use crate::plan::{
    CallKind, Foreign, Known, Pending,
    eligible::NodeSet,
    status::{DIGEST, ID, has_address},
};

/// The load balancers that others have made for a Service: see [`BalancerState`](crate::plan::BalancerState).
#[derive(Debug, Default)]
pub(crate) struct Made {
    /// An adoptable load balancer, and the evidence.
    pub(crate) adoptable: Option<(String, String)>,
    /// A load balancer of others that the Service has or names.
    pub(crate) foreign: Option<Foreign>,
}

/// The result of a list for one Service.
pub(crate) struct Listing<'a> {
    /// The Service.
    pub(crate) service: &'a Service,
    /// Its load balancers.
    pub(crate) found: Vec<LoadBalancer>,
    /// The entries of the list that cannot be read. Without any, it shows all load balancers of the cluster.
    pub(crate) malformed: &'a [String],
    /// True if the provider keeps the digest of the configuration.
    pub(crate) stores_digest: bool,
    /// When the list was requested.
    pub(crate) started: At,
    /// When it had arrived.
    pub(crate) seen: At,
}

impl BalancerEntry {
    /// Records that a list has been compared with the Services. Returns true if the Service needs a
    /// look.
    pub(crate) fn compared(&mut self, made: Made, listing: Listing<'_>, nodes: &NodeSet) -> bool {
        let Made { adoptable, foreign } = made;
        let state = &mut self.state;
        let changed = state.adoptable != adoptable || state.foreign != foreign;
        (state.adoptable, state.foreign) = (adoptable, foreign);
        if changed {
            // The cloud may now accept a call that it refused before.
            state.failed.retain(|failed| failed.call != CallKind::Ensure);
        }
        if self.answered > listing.started {
            return false;
        }
        let id = self.state.id().or_else(|| listing.service.annotation(ID));
        let line = id.filter(|_| listing.found.is_empty());
        let line = line.and_then(|id| line_about(listing.malformed, id).map(str::to_owned));
        let is_news = mem::replace(&mut self.state.unreadable, line) != self.state.unreadable;
        self.listed(listing, nodes) || changed || is_news
    }

    /// Applies a list. Returns true if the Service needs a look.
    pub(super) fn listed(&mut self, listing: Listing<'_>, nodes: &NodeSet) -> bool {
        let Listing { service, mut found, malformed, stores_digest, started, seen } = listing;
        // The load balancer that the Service names stays, otherwise the oldest.
        let named = service.annotation(ID);
        found.sort_by_key(|one| (named != Some(&*one.id), Reverse(one.age), one.id.clone()));
        let mut found = found.into_iter();
        let Some(mut balancer) = found.next() else {
            return self.listed_none(malformed.is_empty());
        };
        let state = &mut self.state;
        // A list that is read in pages may show a load balancer on two of them.
        state.duplicate = found.map(|other| other.id).find(|id| *id != balancer.id);
        if state.duplicate.is_none() {
            state.failed.retain(|failed| failed.call != CallKind::DeleteDuplicate);
        }
        // A call was answered with `Elsewhere`, and only the answer to another call changes that.
        if state.is_elsewhere() {
            return state.duplicate.is_some();
        }
        // Only a full read counts.
        balancer.pools = None;
        self.forget_others(&balancer);
        if let Some(members) = balancer.members.take() {
            self.membership.shown(&members, nodes, seen);
        }
        let before = self.state.balancer();
        keep_unshown(&mut balancer, before);
        let is_foreign_write = before.is_some_and(|before| {
            let is_versioned = before.version.is_some() && balancer.version.is_some();
            is_versioned && before.version != balancer.version
        });
        let differs = before.is_none_or(|before| *before != balancer);
        if self.state.pending.is_none() {
            self.configured_as(service, &balancer, is_foreign_write, stores_digest);
            if let Phase::Pending(waiting) = &balancer.phase {
                // The cloud works for another process.
                self.state.pending = Some(Pending {
                    call: None,
                    digest: None,
                    members: None,
                    what: waiting.what.clone(),
                    check_at: started + waiting.check_after,
                    since: started,
                });
            }
        }
        let state = &mut self.state;
        state.known = Known::There(Box::new(balancer));
        differs || state.duplicate.is_some() || state.configured.is_none()
    }

    /// Records that a list does not show a load balancer of the Service.
    fn listed_none(&mut self, is_complete: bool) -> bool {
        // The list does not contain the load balancers of another controller (`Elsewhere`).
        let is_none = matches!(self.state.known, Known::Absent | Known::Elsewhere(_));
        if !is_complete || self.state.pending.is_some() || is_none {
            return false;
        }
        self.state.known = Known::Absent;
        self.state.configured = None;
        self.forget_members();
        true
    }

    /// Records which configuration a load balancer has that a list shows, and on which no call is at work.
    fn configured_as(
        &mut self,
        service: &Service,
        balancer: &LoadBalancer,
        is_foreign_write: bool,
        stores_digest: bool,
    ) {
        let state = &mut self.state;
        if is_foreign_write {
            // The digest does not say what has changed, neither now nor when the cloud is ready.
            (state.configured, state.needs_look) = (None, true);
            (self.awaited, state.pools) = (true, None);
            self.membership.forget();
        } else if !state.was_complete(service, &balancer.id) {
            // Its digest may have been stored before its last part was made.
            state.configured = None;
        } else if stores_digest {
            state.configured = balancer.digest;
        } else if state.configured.is_none() {
            state.configured = service.annotation(DIGEST).and_then(|text| text.parse().ok());
        }
        // Only a call shows the address that the Service lacks.
        if balancer.ingress.is_empty() && !has_address(service) {
            self.state.configured = None;
        }
    }

    /// Forgets the members if the list shows another load balancer than before.
    fn forget_others(&mut self, balancer: &LoadBalancer) {
        if matches!(&self.state.known, Known::There(before) if before.id != balancer.id) {
            self.forget_members();
            self.awaited = true;
        }
    }

    /// Takes the Service's own word, for a provider that has no list: it has this load balancer, with all
    /// nodes as its members.
    pub(crate) fn assume(&mut self, service: &Service, id: &str, nodes: &NodeSet, now: At) {
        if self.state.known == Known::Nothing {
            self.state.known = Known::Recorded { id: id.to_owned() };
            self.addresses = service.details.iter().flat_map(|it| it.ingress.clone()).collect();
            self.membership.shown(&nodes.members, nodes, now);
        }
    }

    /// Records that it is the turn of this load balancer to be looked at, for a provider without a
    /// list.
    pub(crate) fn take_turn(&mut self, period: Duration, now: At) {
        // A call in the meantime counts as a look as well.
        let is_old = self.read.is_none_or(|read| read + period / 2 <= now);
        self.state.needs_look |= is_old && (self.state.is_elsewhere() || self.state.id().is_some());
    }

    /// Applies what a full look has shown that began at `started`.
    pub(crate) fn read(&mut self, balancer: &LoadBalancer, nodes: &NodeSet, started: At, now: At) {
        if self.answered > started || self.state.pending.is_some() {
            return;
        }
        (self.read, self.awaited, self.state.unreadable) = (Some(started), false, None);
        if let Some(members) = &balancer.members {
            self.membership.shown(members, nodes, now);
        }
        let wants = !nodes.members.is_empty();
        self.state.saw_pools(balancer.pools.clone(), wants, false, started);
        // A full look compares the configuration with its digest.
        if balancer.digest.is_none() {
            self.state.configured = None;
        }
    }
}

/// Keeps of a load balancer what a list may not show: its addresses, annotations and remarks.
fn keep_unshown(balancer: &mut LoadBalancer, before: Option<&LoadBalancer>) {
    if let Some(before) = before.filter(|before| before.id == balancer.id)
        && balancer.ingress.is_empty()
    {
        balancer.ingress.clone_from(&before.ingress);
        balancer.annotations.clone_from(&before.annotations);
        balancer.notes.clone_from(&before.notes);
    }
}

#[cfg(test)]
mod tests;
