//! Compares the cluster's load balancers with the Services: once when this replica begins to
//! lead, then once per period. What was changed or deleted in the cloud is repaired; load
//! balancers without a Service are reported.

use std::{collections::HashMap, sync::Arc, time::Duration};

use ccm_base::At;
use ccm_cloud::{CloudError, Depth, LoadBalancer, LoadBalancerList, LoadBalancers, Scope, Title};
use ccm_controller::{
    passes::{Next, Pass},
    queue::Priority,
};
use ccm_objects::{Service, Shared as Name};
use ccm_runtime::health::Condition;

use super::{
    Handles,
    adoptable::{AllMade, made, without_load_balancer},
    losses::see_losses,
};
use crate::{
    machine::{Entry, Listing},
    plan::{Known, List, by_provider, eligible::NodeSet, looks, orphans::Sight, status::ID},
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
                if self.failures == FAILURES
                    && self.handles.balancers.machine().list() == List::Awaited
                {
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
        let is_first = self.handles.balancers.machine().list() != List::Compared;
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
            if self.handles.balancers.machine().await_members() {
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
        self.handles.balancers.machine().set_list(list);
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
            self.handles.balancers.with(service, |entry| entry.assume(service, id, &nodes, now));
        }
        if self.handles.balancers.machine().list() == List::Awaited {
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
            self.handles.balancers.with(&service, |entry| entry.has_turn(period, now));
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
            let made = made.remove(&*service.uid).unwrap_or_default();
            let listing = Listing {
                service: &service,
                found,
                is_complete,
                stores_digest: traits.stores_digest,
                started,
                seen: self.handles.timeline.now(),
            };
            let compared = |entry: &mut Entry| entry.compared(made, listing, &nodes);
            let changed = self.handles.balancers.with(&service, compared);
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
                    || self.handles.balancers.with(service, |entry| entry.state().is_of_others())
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
            if matches!(entry.state().known, Known::Elsewhere(_))
                && looks::is_due(entry.uid(), rarely, from, now)
            {
                // A list does not show if another controller is still responsible: a call has to.
                entry.look();
                self.handles.queue.add(Name::clone(name), Priority::Routine);
            }
            let Known::There(balancer) = &entry.state().known else { return };
            let has_turn = looks::is_due(entry.uid(), FULL, from, now);
            if entry.state().pending.is_none() && (has_turn || entry.is_awaited()) {
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
        let now = self.handles.timeline.now();
        self.handles.balancers.with_name(name, |entry| entry.read(balancer, &nodes, started, now));
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

#[cfg(test)]
mod tests;
