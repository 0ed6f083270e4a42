//! Calls to the cloud: the questions.

use std::{net::IpAddr, sync::Arc};

use ccm_base::At;
use ccm_cloud::{Digest, FrontEnd, MemberChange, Members, Unwanted, Wanted};
use ccm_objects::Service;

use super::{
    Machine,
    due::tell,
    effect::{Ask, Effect, Lane, Question, Tell},
    entry::Asked,
    planned::Planned,
};
use crate::plan::{
    BalancerState, CallKind, Step,
    front_end::{owner, settings, spec_front_end},
    losses::recorded,
    reason::Reason,
    status::{has_address, shows},
    to_adopt,
};

impl Machine {
    /// Makes a call about a Service.
    pub(super) fn ask(
        &mut self,
        lane: Lane,
        service: &Arc<Service>,
        step: Step,
        planned: &Planned,
        now: At,
    ) -> Vec<Effect> {
        let question = self.question(service, &step, planned);
        let call = step.call();
        let mut effects = self.announce(service, &question, planned);
        let entry = self.balancers.entry(service);
        if let Some(call) = call {
            let asked = Asked {
                service: Arc::clone(service),
                call,
                step,
                members: planned.members.clone(),
                inputs: planned.inputs,
                may_replace: planned.may_replace,
                began: now,
            };
            entry.asked.insert(lane, Box::new(asked));
        }
        let is_ensured = call == Some(CallKind::Ensure);
        effects.push(Effect::Ask(Box::new(Ask {
            lane,
            name: service.key.clone(),
            uid: service.uid.clone(),
            question,
            is_urgent: is_ensured && !has_address(service),
            is_charged: is_ensured && planned.may_replace && recorded(service).is_some(),
        })));
        effects
    }

    /// Returns the question of a step.
    fn question(&self, service: &Service, step: &Step, planned: &Planned) -> Question {
        match step {
            Step::Ensure(front_end) => {
                Question::Ensure(self.wanted(service, Arc::clone(front_end), planned))
            }
            Step::Preview(front_end) => {
                let mut wanted = self.wanted(service, Arc::clone(front_end), planned);
                wanted.adopt = wanted.adopt.or_else(|| self.adoptable(service));
                Question::Preview(wanted)
            }
            Step::SetMembers(id) => {
                let members = planned.members.members.clone();
                Question::Members(self.member_change(service, id, members))
            }
            Step::DeleteDuplicate(id) => {
                Question::Delete(self.unwanted(service, Some(id.clone()), true))
            }
            _ => {
                let known = self.to_look_for(service, CallKind::Delete);
                Question::Delete(self.unwanted(service, known, false))
            }
        }
    }

    /// Reports a call that begins, if it is news.
    fn announce(
        &mut self,
        service: &Arc<Service>,
        question: &Question,
        planned: &Planned,
    ) -> Vec<Effect> {
        let mut effects = Vec::new();
        match question {
            Question::Ensure(wanted) => {
                let digest = wanted.front_end.digest;
                let is_news = self.is_news(service, digest);
                let entry = self.balancers.entry(service);
                // From now on a load balancer may exist, even if the answer is an error.
                (entry.state.proved_absent, entry.state.was_marked) = (false, false);
                if is_news {
                    entry.is_announced = true;
                    effects.push(tell(service, Tell::Ensuring(digest)));
                    if wanted.members.present.is_empty() {
                        let why = planned.members.why_none.clone();
                        effects.push(tell(service, Tell::NoMembers(why)));
                    }
                }
            }
            Question::Delete(unwanted) if !unwanted.duplicate && unwanted.known.is_some() => {
                effects.push(tell(service, Tell::Deleting));
            }
            _ => {}
        }
        effects
    }

    fn wanted(&self, service: &Service, front_end: Arc<FrontEnd>, planned: &Planned) -> Wanted {
        Wanted {
            known: self.to_look_for(service, CallKind::Ensure),
            adopt: self.to_adopt(service),
            shown: shown(service),
            members: planned.members.members.clone(),
            front_end,
            may_replace: planned.may_replace,
        }
    }

    fn to_look_for(&self, service: &Service, call: CallKind) -> Option<String> {
        let traits = self.traits();
        let state = &self.balancers.get(&service.key)?.state;
        state.to_look_for(service, &traits, call).map(str::to_owned)
    }

    /// Returns the load balancer that this Service should adopt.
    fn to_adopt(&self, service: &Service) -> Option<String> {
        let requested = to_adopt(service).map(str::to_owned);
        let adopts = self.parameters.adopts;
        requested.or_else(|| self.adoptable(service).filter(|_| adopts))
    }

    /// Returns the load balancer of another controller that this Service may adopt.
    fn adoptable(&self, service: &Service) -> Option<String> {
        let state = self.balancers.get(&service.key).map(|entry| &entry.state)?;
        state.adoptable.as_ref().map(|(id, _)| id.clone())
    }

    /// Returns true if a call with this configuration is worth an event: most calls of a restart or an
    /// audit change nothing.
    fn is_news(&self, service: &Service, digest: Digest) -> bool {
        let state = self.balancers.get(&service.key).map(|entry| &entry.state);
        let configured = state.and_then(|state| state.configured);
        if state.is_some_and(BalancerState::is_elsewhere) && configured == Some(digest) {
            // service-ccm only asks whether another controller is still responsible.
            return false;
        }
        let provisioned = [Reason::Provisioned, Reason::PartlyProvisioned];
        let shows_provisioned = provisioned.iter().any(|reason| shows(service, *reason));
        !shows_provisioned || configured.is_some_and(|configured| configured != digest)
    }

    fn member_change(&self, service: &Service, id: &str, members: Members) -> MemberChange {
        let traits = self.traits();
        let front_end = traits
            .wants_service
            .then(|| spec_front_end(service, &self.cluster, &traits).front_end)
            .flatten();
        let details = service.details.as_deref();
        MemberChange {
            owner: owner(service, &self.cluster),
            id: id.to_owned(),
            members,
            front_end,
            settings: details.map(|details| settings(details, &traits)).unwrap_or_default(),
        }
    }

    fn unwanted(&self, service: &Service, known: Option<String>, duplicate: bool) -> Unwanted {
        let traits = self.traits();
        // A Service with a mistake has no front end, but its annotations still count.
        let details = service.details.as_deref();
        // They are not known for a Service that is too large, and the provider keeps what it may
        // keep.
        let known_settings = details.filter(|details| details.too_large.is_none());
        let settings = known_settings.map(|details| settings(details, &traits));
        let address = details.and_then(|it| it.load_balancer_ip.as_deref()?.parse().ok());
        let owner = owner(service, &self.cluster);
        let service = traits.wants_service.then(|| service.json.clone()).flatten();
        Unwanted { owner, known, duplicate, settings, address, service }
    }
}

/// Returns the addresses in the status of a Service.
fn shown(service: &Service) -> Vec<IpAddr> {
    let ingress = service.details.iter().flat_map(|details| &details.ingress);
    ingress.filter_map(|entry| entry.ip.as_deref()?.parse().ok()).collect()
}
