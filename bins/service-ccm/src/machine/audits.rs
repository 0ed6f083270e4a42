//! Lists of the cluster's load balancers, compared with the Services: once when this replica begins
//! to lead, then once per period. Changes and deletions in the cloud are repaired, and load
//! balancers without a Service are reported.

use std::{
    collections::{BTreeMap, HashSet},
    mem,
    sync::Arc,
    time::Duration,
};

use ccm_base::{At, message::line_about};
use ccm_cloud::{CloudError, Cure, LoadBalancer, LoadBalancerList, Phase, Title};
use ccm_objects::{Service, Shared as Name};
use serde::{Deserialize, Serialize};

use super::{
    Machine,
    adoptable::{AllMade, made, without_load_balancer},
    effect::{Count, Effect, HealthLine, LogLevel, Task, TellOrphan},
    entry::BalancerEntry,
    event::{Listed, Polled},
    listed::Listing,
};
use crate::plan::{
    Known, List, by_provider, looks,
    losses::{self, LossSight},
    orphans,
    status::ID,
};

/// The longest time without a full look at a load balancer.
const FULL: Duration = Duration::from_mins(30);
/// How many lists may fail before Services are synced without a list: calls about each of them also
/// find the existing load balancers, at a higher price.
const FAILURES: u32 = 6;

/// The memory of lists.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Audits {
    /// How many lists have failed in a row.
    failures: u32,
    /// The error of the last list, if it failed, for explanations.
    #[serde(default)]
    pub(super) error: Option<CloudError>,
    /// The entries of the last list that could not be read.
    #[serde(default)]
    pub(super) malformed: Vec<String>,
    /// Until when turns of [`looks`] have been taken.
    looked: Option<At>,
    /// The work that waits until service-ccm knows how many load balancers are lost.
    waiting: Waiting,
}

/// The work that waits for the cloud's answer about an instance.
#[derive(Default, Serialize, Deserialize)]
struct Waiting {
    /// The state of the list from then on.
    list: Option<List>,
    /// Services that are due then.
    services: Vec<Name>,
    /// Load balancers that are read then.
    reads: Vec<(String, Name)>,
}

impl Machine {
    /// Returns true if the load balancers of all clusters are needed with this list: load balancers
    /// that others have made for Services without one in this list. They are needed once, and again
    /// as long as a Service waits to adopt one, or uses one of others.
    pub(crate) fn needs_all(&self, list: &LoadBalancerList, services: &[Arc<Service>]) -> bool {
        let is_first = self.is_first();
        let lacking = self.lacking(list, services);
        // A rebuilt cluster does not have load balancers or, so far, Services.
        !lacking.is_empty() || is_first && list.load_balancers.is_empty()
    }

    /// Returns true if no list has been compared yet.
    pub(crate) fn is_first(&self) -> bool {
        self.balancers.list != List::Compared
    }

    fn lacking(&self, list: &LoadBalancerList, services: &[Arc<Service>]) -> Vec<Arc<Service>> {
        let mut lacking = without_load_balancer(services.to_vec(), list);
        if !self.is_first() {
            let traits = self.traits();
            let is_of_others = |service: &Service| {
                let entry = self.balancers.get(&service.key);
                entry.is_some_and(|entry| entry.uid == service.uid && entry.state.is_of_others())
            };
            lacking
                .retain(|service| by_provider(service, &traits).is_some() || is_of_others(service));
        }
        lacking
    }

    /// Handles a list of the cluster's load balancers. No Service may continue before it is known
    /// what others have made: it would get a second load balancer.
    pub(super) fn listed(&mut self, listed: Listed, now: At) -> Vec<Effect> {
        let Listed { started, list, all, services, count } = listed;
        (self.audits.failures, self.audits.error) = (0, None);
        let (is_first, traits) = (self.is_first(), self.traits());
        let made = match &all {
            Some(all) => made(&self.lacking(&list, &services), all, &traits),
            None => AllMade::new(),
        };
        let (length, is_complete) = (list.load_balancers.len(), list.malformed.is_empty());
        self.audits.malformed.clone_from(&list.malformed);
        let mut effects =
            malformed("the list of load balancers has an entry that cannot be parsed", &list);
        let (orphans, changed) = self.compare(list, made, (&services, started, now));
        let orphan_count = orphans.len();
        effects.push(Effect::Wake(Task::Poll));
        effects.extend(self.see_orphans(orphans, (length, count, is_complete), started));
        self.audits.waiting.services = changed;
        let asks = is_complete && self.see_losses(&services, true, now);
        effects.push(Effect::Count(Count::Audited(Ok(orphan_count))));
        if let Some(all) = all.filter(|_| is_first) {
            effects.push(Effect::TellOrphan(TellOrphan::OfOthers(all)));
        }
        if is_first {
            self.go_on(List::Compared, &services);
            self.audits.looked = Some(started);
            // The nodes have changed while no replica was the leader.
            effects.extend(self.balancers.await_members().then_some(Effect::Wake(Task::Audit)));
            let line = format!(
                "{length} load balancers of this cluster, {orphan_count} without a Service"
            );
            effects.push(Effect::Log(LogLevel::Info, None, line));
        } else {
            self.audits.waiting.reads = self.reads(now, &mut effects);
        }
        let line = format!("{length} load balancers listed, {orphan_count} without a Service");
        let line = match &*self.audits.malformed {
            [] => Ok(line),
            [first, ..] => {
                let count = self.audits.malformed.len();
                Err(format!("{line}; {count} more cannot be read: {first}"))
            }
        };
        effects.push(Effect::Health(HealthLine::LoadBalancers, line));
        effects.extend(self.after_losses(asks));
        effects
    }

    /// Waits with plans until the number of lost load balancers is known.
    fn after_losses(&mut self, asks: bool) -> Vec<Effect> {
        if asks {
            return vec![Effect::AskInstance];
        }
        let Waiting { list, mut services, reads } = mem::take(&mut self.audits.waiting);
        if let Some(list) = list {
            self.balancers.list = list;
            // Services that came after the list have also waited for it.
            let known: HashSet<Name> = services.iter().cloned().collect();
            let all = self.balancers.all_mut().map(|(name, _)| name);
            services.extend(all.filter(|name| !known.contains(*name)).cloned());
        }
        let mut effects: Vec<Effect> = services.iter().map(Effect::routine).collect();
        effects.extend((!reads.is_empty()).then_some(Effect::Read(reads)));
        effects
    }

    /// Handles the cloud's answer whether it shows the instance of a node.
    pub(super) fn instance_seen(&mut self, is_shown: bool, now: At) -> Vec<Effect> {
        self.losses.see_instance(now, is_shown);
        self.after_losses(false)
    }

    /// Handles a failed list of the load balancers.
    pub(super) fn not_listed(
        &mut self,
        error: CloudError,
        services: &[Arc<Service>],
    ) -> Vec<Effect> {
        self.audits.failures = self.audits.failures.saturating_add(1);
        let line = format!("cannot list the load balancers: {error}");
        self.audits.error = Some(error.clone());
        let mut effects = vec![
            Effect::Count(Count::Audited(Err(error))),
            Effect::Health(HealthLine::LoadBalancers, Err(line.clone())),
            Effect::Log(LogLevel::Warn, None, line),
        ];
        if self.audits.failures == FAILURES && self.balancers.list == List::Awaited {
            let line = "Services are synced one by one until a list succeeds".to_owned();
            effects.push(Effect::Log(LogLevel::Warn, None, line));
            self.go_on(List::Failing, services);
            effects.extend(self.after_losses(false));
        }
        effects
    }

    /// Lets the Services continue that waited for the first list.
    fn go_on(&mut self, list: List, services: &[Arc<Service>]) {
        let names = services.iter().map(|service| Name::clone(&service.key));
        self.audits.waiting.services.extend(names);
        self.audits.waiting.list = Some(list);
    }

    /// Handles a provider without a list: takes the Services' own word, and looks at the load
    /// balancers whose turn it is.
    pub(super) fn no_list(&mut self, services: &[Arc<Service>], now: At) -> Vec<Effect> {
        (self.audits.failures, self.audits.error) = (0, None);
        self.assume(services, now);
        let due = self.look(services, now);
        self.audits.waiting.services = due;
        if self.balancers.list == List::Awaited {
            self.go_on(List::Compared, services);
        }
        // Only a call shows a load balancer, so no load balancer counts as shown now.
        let asks = self.see_losses(services, false, now);
        let line = "the provider has no list of load balancers".to_owned();
        let mut effects = vec![Effect::Health(HealthLine::LoadBalancers, Ok(line))];
        effects.extend(self.after_losses(asks));
        effects
    }

    /// Takes the Services' own word.
    fn assume(&mut self, services: &[Arc<Service>], now: At) {
        let nodes = Arc::clone(&self.nodes.set);
        // An annotation without an address is the copy of another Service's.
        for service in services.iter().filter(|service| losses::is_shown(service)) {
            let Some(id) = service.annotation(ID) else { continue };
            self.balancers.entry(service).assume(service, id, &nodes, now);
        }
    }

    /// Returns the Services whose load balancers have their turn to be looked at.
    fn look(&mut self, services: &[Arc<Service>], now: At) -> Vec<Name> {
        let from = self.audits.looked.replace(now).unwrap_or(now);
        let period = self.parameters.look_period;
        let due = services.iter().filter(|service| {
            let is_served = service.is_load_balancer && !service.deleting;
            is_served && looks::is_due(&service.uid, period, from, now)
        });
        due.map(|service| {
            self.balancers.entry(service).take_turn(period, now);
            Name::clone(&service.key)
        })
        .collect()
    }

    /// Compares a list with all Services. Returns the load balancers without one, and the
    /// Services whose load balancers have changed.
    fn compare(
        &mut self,
        list: LoadBalancerList,
        mut made: AllMade,
        (services, started, seen): (&[Arc<Service>], At, At),
    ) -> (Vec<LoadBalancer>, Vec<Name>) {
        let malformed = &*list.malformed;
        let (nodes, stores_digest) = (Arc::clone(&self.nodes.set), self.traits().stores_digest);
        let mut of_owner = by_owner(list.load_balancers, &self.cluster.uid);
        let mut changed = Vec::new();
        for service in services {
            let found = of_owner.remove(&*service.uid).unwrap_or_default();
            let made = made.remove(&*service.uid).unwrap_or_default();
            let listing = Listing { service, found, malformed, stores_digest, started, seen };
            if self.balancers.entry(service).compared(made, listing, &nodes) {
                changed.push(Name::clone(&service.key));
            }
            self.learn(&service.key);
        }
        (of_owner.into_values().flatten().collect(), changed)
    }

    /// Records the load balancers without a Service. A Service of another type without the
    /// finalizer does not count: a client may have removed both in one update.
    fn see_orphans(
        &mut self,
        found: Vec<LoadBalancer>,
        (all, services, is_complete): (usize, usize, bool),
        started: At,
    ) -> [Effect; 2] {
        let (cluster, orphans) = (&self.cluster, &found);
        let sight = orphans::OrphanSight { cluster, orphans, all, services, is_complete };
        self.orphans.listed(started, sight);
        [Effect::TellOrphan(TellOrphan::Found(found)), Effect::Wake(Task::Orphans)]
    }

    /// Returns the load balancers that are read in full now: at once those that another client has
    /// changed and those with unknown members and a pending change first, the rest in the rotation
    /// of [`FULL`]. So a restart reads no more at once than any other time.
    fn reads(&mut self, now: At, effects: &mut Vec<Effect>) -> Vec<(String, Name)> {
        let from = self.audits.looked.replace(now).unwrap_or(now);
        let rarely = self.parameters.look_period;
        let mut due = Vec::new();
        for (name, entry) in self.balancers.all_mut() {
            if entry.state.is_elsewhere() && looks::is_due(&entry.uid, rarely, from, now) {
                // A list does not show if another controller is still responsible, so a call must.
                entry.state.needs_look = true;
                effects.push(Effect::routine(name));
            }
            let Some(balancer) = entry.state.balancer() else { continue };
            let has_turn = looks::is_due(&entry.uid, FULL, from, now);
            if entry.state.pending.is_none() && (has_turn || entry.is_awaited()) {
                due.push((balancer.id.clone(), Name::clone(name)));
            }
        }
        due
    }

    /// Handles load balancers that were read in full. A Service shows if its own one cannot be
    /// read.
    pub(super) fn read(&mut self, polled: Polled, now: At) -> Vec<Effect> {
        let Polled { started, asked, list, .. } = polled;
        let nodes = Arc::clone(&self.nodes.set);
        let mut effects = malformed("a load balancer cannot be read in full", &list);
        for (id, name) in asked {
            let found = list.load_balancers.iter().find(|one| one.id == id);
            let line = line_about(&list.malformed, &id);
            let Some(entry) = self.balancers.named(&name) else { continue };
            match (found, line) {
                (Some(balancer), _) => entry.read(balancer, &nodes, started, now),
                (None, Some(line)) => entry.state.unreadable = Some(line.to_owned()),
                (None, None) => continue,
            }
            effects.push(Effect::routine(&name));
        }
        effects
    }

    /// Records which load balancers are gone or have failed. Returns true if the cloud should show if it still has
    /// anything of this cluster: no load balancer in the list shows that. `has_list`: the list shows it.
    fn see_losses(&mut self, services: &[Arc<Service>], has_list: bool, now: At) -> bool {
        let mut sight = LossSight::default();
        for service in services {
            if !self.parameters.classes.cover(service) || service.deleting {
                continue;
            }
            sight.all.insert(service.uid.clone());
            if losses::is_shown(service) {
                see_loss(self.balancers.entry(service), service, has_list, &mut sight);
            }
        }
        self.losses.listed(now, sight);
        let asks = self.losses.are_any() && !self.losses.show_others();
        if !asks {
            self.losses.see_instance(now, false);
        }
        asks
    }
}

/// Adds the load balancer that this Service shows to clients.
fn see_loss(entry: &BalancerEntry, service: &Service, has_list: bool, sight: &mut LossSight) {
    // Another controller may have made the load balancer that a Service without a record shows.
    let is_others = entry.state.is_new || entry.state.is_of_others();
    if losses::recorded(service).is_none() && is_others {
        return;
    }
    sight.recorded += 1;
    let is_as = match &entry.state.known {
        Known::Absent => &mut sight.missing,
        Known::There(balancer) => match &balancer.phase {
            Phase::Failed { cure: Cure::Ensure, .. }
                if entry.state.was_complete(service, &balancer.id) =>
            {
                &mut sight.failed
            }
            // Without a list, this is what an earlier call has shown.
            Phase::Ready if has_list => &mut sight.ready,
            _ => return,
        },
        Known::Nothing | Known::Recorded { .. } | Known::Elsewhere(_) => return,
    };
    is_as.insert(service.uid.clone());
}

/// Returns the entries of a list that could not be parsed, as lines of the log.
pub(super) fn malformed(what: &str, list: &LoadBalancerList) -> Vec<Effect> {
    let line = |line| Effect::Log(LogLevel::Warn, None, format!("{what}: {line}"));
    list.malformed.iter().map(line).collect()
}

/// Returns the load balancers of the cluster with this UID, by the UID of the Service.
fn by_owner(all: Vec<LoadBalancer>, cluster: &str) -> BTreeMap<String, Vec<LoadBalancer>> {
    let mut of_owner: BTreeMap<String, Vec<LoadBalancer>> = BTreeMap::new();
    for balancer in all {
        let Some(owner) = &balancer.owner else { continue };
        if balancer.title == Title::Ours && owner.cluster.uid == cluster {
            of_owner.entry(owner.uid.clone()).or_default().push(balancer);
        }
    }
    of_owner
}

#[cfg(test)]
mod tests;
