//! Polls of the load balancers on which the cloud works: all of them by one list.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use ccm_base::{At, message::line_about};
use ccm_cloud::{CloudError, LoadBalancer};
use ccm_controller::queue::Priority;
use ccm_objects::{Service, Shared as Name};

use super::{
    Machine, RETRY,
    effect::{Effect, Lane, LogLevel, Turn},
    entry::BalancerEntry,
    event::Polled,
    polled::LONGEST,
};

/// Load balancers that are due within this time are polled together.
const TOGETHER: Duration = Duration::from_secs(1);
/// The shortest time between two polls of up to [`CHEAP`] load balancers: a longer list costs the cloud more.
const PAUSE: Duration = Duration::from_secs(1);
const CHEAP: usize = 250;

impl Machine {
    /// Returns when to look at the first load balancer.
    pub(crate) fn next_poll(&self) -> Option<At> {
        let due = self.balancers.all().filter_map(|(_, entry)| entry.check_at()).min();
        due.map(|due| due.max(self.polls_from))
    }

    /// Polls, because it is time. What no list shows gets another call.
    pub(super) fn poll(&mut self, now: At) -> Vec<Effect> {
        let lists = self.traits().lists;
        let is_due =
            |entry: &BalancerEntry| entry.check_at().is_some_and(|due| due <= now + TOGETHER);
        let due = self.balancers.all().filter(|(_, entry)| is_due(entry));
        let (mut asked, mut called): (Vec<(String, Name)>, Vec<Name>) = Default::default();
        for (name, entry) in due {
            match entry.state.id().filter(|_| lists) {
                Some(id) => asked.push((id.to_owned(), Name::clone(name))),
                None => called.push(Name::clone(name)),
            }
        }
        let parts = u32::try_from(asked.len() / CHEAP).unwrap_or(u32::MAX).saturating_add(1);
        self.polls_from = now + PAUSE.saturating_mul(parts).min(LONGEST);
        let mut effects: Vec<Effect> =
            called.iter().map(|name| self.hand_over(name, now)).collect();
        effects.extend((!asked.is_empty()).then_some(Effect::Poll(asked)));
        effects
    }

    /// Handles the answers of a poll. A missing one does not exist any more, or is not visible: the
    /// next call finds out, unless the list has entries that could not be read.
    pub(super) fn polled(&mut self, polled: Polled, now: At) -> Vec<Effect> {
        let Polled { started, asked, list, services } = polled;
        let (mut open, services) = (by_id(asked), by_name(services));
        let (mut effects, mut ended) = (Vec::new(), Vec::new());
        for balancer in list.load_balancers {
            let Some(name) = open.remove(&balancer.id) else { continue };
            let has_ended =
                self.balancers.get(&name).is_some_and(|entry| entry.has_ended(&balancer));
            let service = services.get(&name);
            if !has_ended {
                effects.extend(service.and_then(|service| self.seen(service, balancer, now)));
            } else if balancer.pools.is_some() {
                // The provider has just created it, and knows its members.
                effects.extend(self.confirm(&name, service, balancer, (started, now)));
            } else {
                ended.push((balancer.id, name));
            }
        }
        for (id, name) in open {
            effects.extend(match list.malformed.is_empty() {
                true => Some(self.hand_over(&name, now)),
                false => self.not_seen(&name, line_about(&list.malformed, &id), now),
            });
        }
        effects.extend((!ended.is_empty()).then_some(Effect::Confirm(ended)));
        effects
    }

    /// Handles a failed poll.
    pub(super) fn not_polled(&mut self, error: &CloudError, now: At) -> Vec<Effect> {
        let pause = error.retry_after.unwrap_or_default().clamp(RETRY.first, LONGEST);
        self.polls_from = now + pause;
        let line = format!("cannot poll the load balancers that the cloud works on: {error}");
        vec![Effect::Log(LogLevel::Warn, None, line)]
    }

    /// Handles load balancers that have been read in full after the end of work on them, so that
    /// Services show what the cloud has. A load balancer that could not be read gets another call.
    pub(super) fn confirmed(&mut self, polled: Polled, now: At) -> Vec<Effect> {
        let Polled { started, asked, list, services } = polled;
        let (mut open, services) = (by_id(asked), by_name(services));
        let mut effects = Vec::new();
        for balancer in list.load_balancers {
            if let Some(name) = open.remove(&balancer.id) {
                let service = services.get(&name);
                effects.extend(self.confirm(&name, service, balancer, (started, now)));
            }
        }
        effects.extend(open.values().map(|name| self.hand_over(name, now)));
        effects
    }

    /// Applies a full read. A call that has not ended stays pending: the next call finds out what follows.
    fn confirm(
        &mut self,
        name: &Name,
        service: Option<&Arc<Service>>,
        balancer: LoadBalancer,
        (started, now): (At, At),
    ) -> Vec<Effect> {
        let nodes = Arc::clone(&self.nodes.set);
        let entry = self.balancers.named(name);
        let is_confirmed =
            entry.is_some_and(|entry| entry.confirmed(balancer, &nodes, started, now));
        self.learn(name);
        let service = service.filter(|_| is_confirmed);
        let mut effects = service.map(|service| self.completed(service, now)).unwrap_or_default();
        effects.push(self.hand_over(name, now));
        effects
    }

    /// Applies what a poll has shown of a load balancer. It is due if the cloud does not work on it any more.
    fn seen(&mut self, service: &Service, balancer: LoadBalancer, now: At) -> Option<Effect> {
        let entry = self.balancers.named(&service.key)?;
        let is_pending = entry.polled(service, balancer, now);
        self.learn(&service.key);
        (!is_pending).then(|| self.hand_over(&service.key, now))
    }

    /// Records that an incomplete poll lacks the load balancer; `line` may say why. The Service
    /// shows that.
    fn not_seen(&mut self, name: &Name, line: Option<&str>, now: At) -> Option<Effect> {
        let entry = self.balancers.named(name)?;
        entry.not_polled(line, now).then(|| Effect::routine(name))
    }

    /// Queues a load balancer for its next call.
    fn hand_over(&mut self, name: &Name, now: At) -> Effect {
        if let Some(entry) = self.balancers.named(name) {
            entry.hand_over(now);
        }
        Effect::Queue(Name::clone(name), Lane::Normal, Turn::Now(Priority::Urgent))
    }
}

fn by_id(asked: Vec<(String, Name)>) -> BTreeMap<String, Name> {
    asked.into_iter().collect()
}

fn by_name(services: Vec<Arc<Service>>) -> HashMap<Name, Arc<Service>> {
    services.into_iter().map(|service| (Name::clone(&service.key), service)).collect()
}
