//! Compares the cluster's load balancers with the Services: once when this replica begins to
//! lead, then once per period. What was changed or deleted in the cloud is repaired; load
//! balancers without a Service are reported.

use std::{collections::HashMap, sync::Arc, time::Duration};

use ccm_base::At;
use ccm_cloud::{
    CloudError, Depth, LoadBalancer, LoadBalancerList, LoadBalancers, Phase, Scope, Title, Waiting,
};
use ccm_controller::{
    passes::{Next, Pass},
    queue::Priority,
};
use ccm_objects::{Service, Shared as Name};
use ccm_runtime::health::Condition;

use super::{
    Handles,
    adoptable::{AllMade, Made, made, without_load_balancer},
    balancers::Entry,
    losses::see_losses,
};
use crate::{
    plan::{
        CallKind, Known, List, Pending, by_provider,
        eligible::NodeSet,
        looks,
        orphans::Sight,
        status::{DIGEST, ID},
    },
    report,
};

/// The longest time without a full look at a load balancer.
const FULL: Duration = Duration::from_mins(30);
/// The most members that one list shows, so that an answer stays small.
const MEMBERS: usize = 20_000;
/// How many lists may fail before Services are synced without: calls about each of them find
/// what is there as well, at a higher price.
const FAILURES: u32 = 6;

/// The comparison.
pub(crate) struct Audit {
    handles: Handles,
    health: Condition,
    failures: u32,
    /// Until when turns of [`looks`] have been taken.
    looked: Option<At>,
}

impl Pass for Audit {
    async fn pass(&mut self) -> Next {
        match self.audit().await {
            Ok(line) => {
                self.failures = 0;
                self.health.pass(line);
                Next::Period
            }
            Err(error) => {
                self.failures += 1;
                self.handles.metrics.audited(Err(&error));
                self.health.fail(format!("cannot list the load balancers: {error}"));
                tracing::warn!(%error, "cannot list the load balancers");
                if self.failures == FAILURES && self.handles.balancers.list() == List::Awaited {
                    tracing::warn!("Services are synced one by one until a list succeeds");
                    self.go_on(List::Failing);
                }
                Next::Failed(error.class())
            }
        }
    }

    fn period(&self) -> Duration {
        self.handles.settings.borrow().load_balancer_audit_period
    }
}

impl Audit {
    pub(crate) fn new(handles: &Handles, health: Condition) -> Self {
        Self { handles: handles.clone(), health, failures: 0, looked: None }
    }

    async fn audit(&mut self) -> Result<String, CloudError> {
        let balancers = self.handles.load_balancers()?;
        // What a provider needs of members is known now, and may have changed.
        self.handles.nodes_changed.notify_one();
        if !balancers.traits().lists {
            self.assume();
            self.look();
            // Only a call shows a load balancer, so none counts as shown now.
            see_losses(&self.handles, false).await;
            return Ok("the provider has no list of load balancers".to_owned());
        }
        let started = self.handles.timeline.now();
        let is_first = self.handles.balancers.list() != List::Compared;
        let list = self.list(&*balancers, Scope::Cluster, Depth::Summary).await?;
        let count = list.load_balancers.len();
        // No Service may go on before this is known: it would get a second load balancer.
        let made = self.made(&*balancers, &list, is_first).await?;
        let is_complete = list.malformed.is_empty();
        let (orphans, changed) = self.compare(list, made, started);
        if is_complete {
            see_losses(&self.handles, true).await;
        }
        // No plan is made before it is known how many are lost.
        for name in changed {
            self.handles.queue.add(name, Priority::Routine);
        }
        self.handles.metrics.audited(Ok(orphans));
        if is_first {
            self.go_on(List::Compared);
            self.looked = Some(started);
            if self.handles.balancers.await_members() {
                // The nodes have changed while no replica led.
                self.handles.audit.wake();
            }
            tracing::info!("{count} load balancers of this cluster, {orphans} without a Service");
        } else {
            self.read_members(&*balancers).await?;
        }
        Ok(format!("{count} load balancers listed, {orphans} without a Service"))
    }

    async fn list(
        &self,
        balancers: &dyn LoadBalancers,
        scope: Scope,
        depth: Depth,
    ) -> Result<LoadBalancerList, CloudError> {
        balancers.list(&self.handles.cluster, scope, depth, self.handles.call(false)).await
    }

    /// Lets the Services go on that waited for the first list.
    fn go_on(&self, list: List) {
        self.handles.balancers.set_list(list);
        for service in self.concerned() {
            self.handles.queue.add(Name::clone(&service.key), Priority::Routine);
        }
    }

    fn concerned(&self) -> Vec<Arc<Service>> {
        let mut services = self.handles.services.list();
        services.retain(|service| service.concerns_load_balancers());
        services
    }

    /// Takes the Services' own word, for a provider that has no list.
    fn assume(&self) {
        let (nodes, now) = (self.handles.node_set.borrow().clone(), self.handles.timeline.now());
        // An annotation without an address is the copy of another Service's.
        let is_written = |service: &&Arc<Service>| {
            service.has_finalizer
                && service.details.as_ref().is_some_and(|details| !details.ingress.is_empty())
        };
        for service in self.concerned().iter().filter(is_written) {
            let Some(id) = service.annotation(ID) else { continue };
            self.handles.balancers.with(service, |entry| {
                if entry.state.known == Known::Nothing {
                    entry.state.known = Known::Recorded { id: id.to_owned() };
                    entry.addresses =
                        service.details.iter().flat_map(|it| it.ingress.clone()).collect();
                    entry.membership.shown(&nodes.members, &nodes, now);
                }
            });
        }
        if self.handles.balancers.list() == List::Awaited {
            self.go_on(List::Compared);
        }
    }

    /// Looks at the load balancers whose turn it is, for a provider that has no list.
    fn look(&mut self) {
        let now = self.handles.timeline.now();
        let from = self.looked.replace(now).unwrap_or(now);
        let period = self.handles.settings.borrow().load_balancer_look_period;
        let mut services = self.concerned();
        services.retain(|service| {
            let is_served = service.is_load_balancer && !service.deleting;
            is_served && looks::is_due(&service.uid, period, from, now)
        });
        for service in services {
            self.handles.balancers.with(&service, |entry| {
                // A call in the meantime was a look as well.
                let is_old = entry.read.is_none_or(|read| read + period / 2 <= now);
                let is_elsewhere = matches!(entry.state.known, Known::Elsewhere(_));
                entry.state.look |= is_old && (is_elsewhere || entry.state.id().is_some());
            });
            self.handles.queue.add(Name::clone(&service.key), Priority::Routine);
        }
    }

    /// Compares a list with all Services. Returns the number of load balancers without one, and the
    /// Services whose load balancers have changed.
    fn compare(
        &self,
        list: LoadBalancerList,
        mut made: AllMade,
        started: At,
    ) -> (usize, Vec<Name>) {
        let is_complete = list.malformed.is_empty();
        for line in &list.malformed {
            tracing::warn!("the list of load balancers has an entry that cannot be parsed: {line}");
        }
        let nodes = self.handles.node_set.borrow().clone();
        let mut of_owner = by_owner(list.load_balancers, &self.handles.cluster.uid);
        let all = of_owner.values().map(Vec::len).sum();
        let traits = self.handles.load_balancers().map(|one| one.traits()).unwrap_or_default();
        let mut all_changed = Vec::new();
        for service in self.concerned() {
            let found = of_owner.remove(&*service.uid).unwrap_or_default();
            let Made { adoptable, foreign } = made.remove(&*service.uid).unwrap_or_default();
            let changed = self.handles.balancers.with(&service, |entry| {
                let state = &mut entry.state;
                let changed = state.adoptable != adoptable || state.foreign != foreign;
                (state.adoptable, state.foreign) = (adoptable, foreign);
                if changed {
                    // What was refused before may be right now.
                    state.failed.retain(|failed| failed.call != CallKind::Ensure);
                }
                if entry.answered > started {
                    return false;
                }
                let listing = Listing {
                    service: &service,
                    found,
                    is_complete,
                    stores_digest: traits.stores_digest,
                    seen: self.handles.timeline.now(),
                };
                listed(entry, listing, &nodes, started) || changed
            });
            if changed {
                all_changed.push(Name::clone(&service.key));
            }
        }
        // The cloud may work on some of them.
        self.handles.poll.notify_one();
        let orphans: Vec<LoadBalancer> = of_owner.into_values().flatten().collect();
        self.handles.reports.orphans(&orphans);
        let count = orphans.len();
        self.see(&orphans, Listed { all, is_complete, started });
        (count, all_changed)
    }

    /// Records the load balancers without a Service. A Service of another type without the
    /// finalizer does not count: a client may have removed both in one update.
    fn see(&self, orphans: &[LoadBalancer], listed: Listed) {
        let services = &self.handles.services;
        let sight = Sight {
            cluster: &self.handles.cluster,
            orphans,
            all: listed.all,
            services: if services.is_synced() { services.len() } else { 0 },
            is_complete: listed.is_complete,
        };
        self.handles.orphans.lock().listed(listed.started, sight);
        self.handles.deletions.wake();
    }

    /// What another controller has made for the Services that have no load balancer in this list:
    /// once, and again as long as a Service waits to adopt it, or is on one of others.
    async fn made(
        &self,
        balancers: &dyn LoadBalancers,
        list: &LoadBalancerList,
        is_first: bool,
    ) -> Result<AllMade, CloudError> {
        let traits = balancers.traits();
        let mut lacking = without_load_balancer(self.concerned(), list);
        if !is_first {
            lacking.retain(|service| {
                by_provider(service, &traits).is_some()
                    || self.handles.balancers.with(service, |entry| entry.state.is_of_others())
            });
        }
        // A cluster that was rebuilt has no load balancer and, so far, no Service.
        if lacking.is_empty() && !(is_first && list.load_balancers.is_empty()) {
            return Ok(AllMade::new());
        }
        let all = self.list(balancers, Scope::All, Depth::Summary).await?;
        if is_first {
            report::adoptable(&all.load_balancers);
            report::rebuilt(&all.load_balancers, &self.handles.cluster);
        }
        Ok(made(&lacking, &all.load_balancers, &traits))
    }

    /// Reads load balancers in full: at once those that another client has changed and those whose
    /// members are to change and are not known, the others in their turn of [`FULL`]. So a restart
    /// reads no more at once than any other time.
    async fn read_members(&mut self, balancers: &dyn LoadBalancers) -> Result<(), CloudError> {
        let now = self.handles.timeline.now();
        let from = self.looked.replace(now).unwrap_or(now);
        let mut due: Vec<(String, Name)> = Vec::new();
        let rarely = self.handles.settings.borrow().load_balancer_look_period;
        self.handles.balancers.each(|name, entry| {
            if matches!(entry.state.known, Known::Elsewhere(_))
                && looks::is_due(entry.uid(), rarely, from, now)
            {
                // A list does not show if another controller is still responsible: a call has to.
                entry.state.look = true;
                self.handles.queue.add(Name::clone(name), Priority::Routine);
            }
            let Known::There(balancer) = &entry.state.known else { return };
            let has_turn = looks::is_due(entry.uid(), FULL, from, now);
            if entry.state.pending.is_none() && (has_turn || entry.is_awaited()) {
                due.push((balancer.id.clone(), Name::clone(name)));
            }
        });
        let nodes = self.handles.node_set.borrow().clone();
        for chunk in due.chunks(at_once(&nodes)) {
            let started = self.handles.timeline.now();
            let ids = chunk.iter().map(|(id, _)| id.clone()).collect();
            let list = self.list(balancers, Scope::Ids(ids), Depth::Members).await?;
            for line in &list.malformed {
                tracing::warn!("a load balancer cannot be read in full: {line}");
            }
            let by_id: HashMap<&str, &Name> =
                chunk.iter().map(|(id, name)| (id.as_str(), name)).collect();
            for balancer in list.load_balancers {
                if let Some(name) = by_id.get(balancer.id.as_str()) {
                    self.read(name, &balancer, started);
                }
            }
        }
        Ok(())
    }

    /// Applies what a full look has shown.
    fn read(&self, name: &Name, balancer: &LoadBalancer, started: At) {
        let nodes = self.handles.node_set.borrow().clone();
        self.handles.balancers.with_name(name, |entry| {
            if entry.answered > started || entry.state.pending.is_some() {
                return;
            }
            (entry.read, entry.awaited) = (Some(started), false);
            if let Some(members) = &balancer.members {
                entry.membership.shown(members, &nodes, self.handles.timeline.now());
            }
            let wants = !nodes.members.is_empty();
            entry.state.saw_pools(balancer.pools.clone(), wants, false, started);
            // A full look compares the configuration with its digest.
            if balancer.digest.is_none() {
                entry.state.configured = None;
            }
        });
        self.handles.queue.add(Name::clone(name), Priority::Routine);
    }
}

/// The number of load balancers with these nodes that one list reads in full.
pub(super) fn at_once(nodes: &NodeSet) -> usize {
    (MEMBERS / nodes.members.len().max(1)).clamp(1, 100)
}

/// The load balancers of the cluster with this UID, by the UID of the Service.
fn by_owner(all: Vec<LoadBalancer>, cluster: &str) -> HashMap<String, Vec<LoadBalancer>> {
    let mut of_owner: HashMap<String, Vec<LoadBalancer>> = HashMap::new();
    for balancer in all {
        let Some(owner) = &balancer.owner else { continue };
        if balancer.title == Title::Ours && owner.cluster.uid == cluster {
            of_owner.entry(owner.uid.clone()).or_default().push(balancer);
        }
    }
    of_owner
}

/// What a list has shown of this cluster.
struct Listed {
    all: usize,
    is_complete: bool,
    started: At,
}

/// What a list has shown of one Service.
struct Listing<'a> {
    service: &'a Service,
    found: Vec<LoadBalancer>,
    is_complete: bool,
    stores_digest: bool,
    /// When the list had arrived.
    seen: At,
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

fn has_address(service: &Service) -> bool {
    service.details.as_deref().is_some_and(|details| !details.ingress.is_empty())
}

/// Forgets the members if the list shows another load balancer than before.
fn forget_others(entry: &mut Entry, balancer: &LoadBalancer) {
    if matches!(&entry.state.known, Known::There(before) if before.id != balancer.id) {
        entry.forget_members();
        entry.awaited = true;
    }
}

/// Applies a list. Returns whether the Service needs a look.
fn listed(entry: &mut Entry, listing: Listing<'_>, nodes: &NodeSet, now: At) -> bool {
    let Listing { service, mut found, is_complete, stores_digest, seen } = listing;
    // The one that the Service names stays, else the oldest.
    let named = service.annotation(ID);
    found.sort_by_key(|one| (named != Some(&*one.id), std::cmp::Reverse(one.age), one.id.clone()));
    let mut found = found.into_iter();
    let Some(mut balancer) = found.next() else {
        // The list does not contain the load balancers of another controller (`Elsewhere`).
        let is_none = matches!(entry.state.known, Known::Absent | Known::Elsewhere(_));
        if !is_complete || entry.state.pending.is_some() || is_none {
            return false;
        }
        entry.state.known = Known::Absent;
        entry.state.configured = None;
        entry.forget_members();
        return true;
    };
    entry.state.duplicate = found.next().map(|other| other.id);
    if entry.state.duplicate.is_none() {
        entry.state.failed.retain(|failed| failed.call != CallKind::DeleteDuplicate);
    }
    // A call was answered with `Elsewhere`: only the answer to another call changes that.
    if matches!(entry.state.known, Known::Elsewhere(_)) {
        return entry.state.duplicate.is_some();
    }
    // Only a full look counts.
    balancer.pools = None;
    forget_others(entry, &balancer);
    if let Some(members) = balancer.members.take() {
        entry.membership.shown(&members, nodes, seen);
    }
    let before = match &entry.state.known {
        Known::There(before) => Some(&**before),
        _ => None,
    };
    keep_unshown(&mut balancer, before);
    let is_foreign_write = before.is_some_and(|before| {
        before.version.is_some() && balancer.version.is_some() && before.version != balancer.version
    });
    if entry.state.pending.is_none() {
        if is_foreign_write {
            // The digest does not say what has changed, neither now nor when the cloud is ready.
            (entry.state.configured, entry.state.look) = (None, true);
            (entry.awaited, entry.state.pools) = (true, None);
            entry.membership.forget();
        } else if !entry.state.was_complete(service, &balancer.id) {
            // Its digest may have been stored before its last part was made.
            entry.state.configured = None;
        } else if stores_digest {
            entry.state.configured = balancer.digest;
        } else if entry.state.configured.is_none() {
            entry.state.configured = service.annotation(DIGEST).and_then(|text| text.parse().ok());
        }
        // Only a call shows the address that the Service lacks.
        if balancer.ingress.is_empty() && !has_address(service) {
            entry.state.configured = None;
        }
        if let Phase::Pending(waiting) = &balancer.phase {
            entry.state.pending = Some(unknown_work(waiting, now));
        }
    }
    let changed = before.is_none_or(|before| *before != balancer)
        || entry.state.duplicate.is_some()
        || entry.state.configured.is_none();
    entry.state.known = Known::There(Box::new(balancer));
    changed
}

/// The state of a load balancer on which the cloud works for another process.
fn unknown_work(waiting: &Waiting, now: At) -> Pending {
    Pending {
        call: None,
        digest: None,
        members: None,
        what: waiting.what.clone(),
        check_at: now + waiting.check_after,
        since: now,
    }
}

#[cfg(test)]
mod tests;
