//! Names the Service that an event, an effect or a part of the memory is about.

use std::{borrow::Cow, sync::Arc};

use ccm_cloud::{LoadBalancer, Owner};
use ccm_controller::record::Recorded;
use ccm_objects::Service;

use super::{
    Machine,
    effect::{Effect, PlanPage, TellOrphan},
    event::{Event, NodesWhy},
};

fn key(owner: &Owner) -> Cow<'_, str> {
    Cow::Owned(owner.to_string())
}

fn retain(services: &mut Vec<Arc<Service>>, name: &str) {
    services.retain(|service| *service.key == *name);
}

fn retain_balancers(balancers: &mut Vec<LoadBalancer>, name: &str) {
    balancers.retain(|one| one.owner.as_ref().is_none_or(|owner| key(owner) == name));
}

impl Recorded for Machine {
    const NAME: &'static str = "service-ccm";

    fn about(event: &Event) -> Option<Cow<'_, str>> {
        let name = match event {
            Event::Service(changed) => &changed.new.as_ref().or(changed.old.as_ref())?.key,
            Event::Due(due) => &due.name,
            Event::Written(written) => &written.service.key,
            Event::Answered(answered) => &answered.name,
            Event::OrphanLookedUp { due, .. } | Event::OrphanAnswered { due, .. } => {
                return Some(key(&due.orphan.owner));
            }
            _ => return None,
        };
        Some(Cow::Borrowed(name))
    }

    fn effect_about(effect: &Effect) -> Option<Cow<'_, str>> {
        let name = match effect {
            Effect::Queue(name, ..)
            | Effect::ForgetReports(name)
            | Effect::Look(_, name)
            | Effect::Show(PlanPage::NoService(name)) => name,
            Effect::Log(_, name, _) => name.as_ref()?,
            Effect::Tell(service, _)
            | Effect::Show(PlanPage::Service(service, _) | PlanPage::Blocked(service, _)) => {
                &service.key
            }
            Effect::Write(write) => &write.service.key,
            Effect::Ask(ask) => &ask.name,
            Effect::DeleteOrphan(due) => return Some(key(&due.orphan.owner)),
            Effect::TellOrphan(TellOrphan::Failed { owner, .. }) => owner,
            _ => return None,
        };
        Some(Cow::Borrowed(name))
    }

    fn only(mut self, name: &str) -> Self {
        self.balancers.retain(name);
        self
    }

    fn only_event(mut event: Event, name: &str) -> Option<Event> {
        match &mut event {
            Event::Settings { services, .. }
            | Event::Services(services)
            | Event::NoList(services)
            | Event::NotListed { services, .. } => retain(services, name),
            Event::Nodes(seen) => {
                if let NodesWhy::Due { services, .. } = &mut seen.why {
                    retain(services, name);
                }
            }
            Event::Listed(listed) => {
                retain(&mut listed.services, name);
                retain_balancers(&mut listed.list.load_balancers, name);
                listed.all.iter_mut().for_each(|all| retain_balancers(all, name));
            }
            Event::Polled(polled) | Event::Confirmed(polled) | Event::Read(polled) => {
                polled.asked.retain(|(_, service)| **service == *name);
                retain(&mut polled.services, name);
                retain_balancers(&mut polled.list.load_balancers, name);
            }
            event if Self::about(event).is_some_and(|service| service != name) => return None,
            _ => {}
        }
        Some(event)
    }

    /// Returns the fields of a note to the next leader, which are written as keys.
    fn words() -> &'static [&'static str] {
        &["charged", "drained", "labelled", "marks", "orphans", "replaced", "settled"]
    }
}
