//! Calls to the cloud: what is asked, and what a completed call says about a load balancer.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use ccm_base::At;
use ccm_cloud::{
    AbsenceProof, Digest, FrontEnd, LoadBalancer, LoadBalancers, MemberChange, Members, MembersSet,
    Owner, Unwanted, Wanted,
};
use ccm_objects::{Service, Shared as Name};
use tokio::time::Instant;

use super::{Due, Lane, Lanes};
use crate::{
    machine::{Call, Entry},
    observe::lease,
    plan::{
        CallKind, Known, Step,
        front_end::{desired, settings},
        losses::recorded,
        reason::{PROVISIONING, Reason},
        status::shows,
        to_adopt,
    },
};

/// The addresses in the status of a Service.
fn shown(service: &Service) -> Vec<IpAddr> {
    let ingress = service.details.iter().flat_map(|details| &details.ingress);
    ingress.filter_map(|entry| entry.ip.as_deref()?.parse().ok()).collect()
}

/// One Service in a call, and what is asked.
pub(super) struct Asked<Q> {
    pub(super) due: Due,
    pub(super) call: CallKind,
    pub(super) question: Q,
    pub(super) digest: Option<Digest>,
    pub(super) members: Option<Members>,
    /// When the call began.
    pub(super) began: At,
}

impl<Q> Asked<Q> {
    /// The call, as the memory sees it.
    pub(super) fn about(&self) -> Call<'_> {
        Call {
            service: &self.due.service,
            kind: self.call,
            digest: self.digest,
            members: self.members.as_ref(),
            inputs: self.due.inputs,
        }
    }
}

impl Lanes {
    /// Makes the calls about these Services, at most one of each kind.
    pub(super) async fn call(&self, lane: Lane, all: Vec<Due>) {
        if all.is_empty() {
            return;
        }
        let balancers = match self.handles.load_balancers() {
            Ok(balancers) => balancers,
            Err(error) => {
                for due in all {
                    self.queue(lane).retry_as(Name::clone(&due.service.key), error.class());
                    self.queue(lane).done(&due.service.key);
                }
                return;
            }
        };
        let (mut ensure, mut members, mut delete) = (Vec::new(), Vec::new(), Vec::new());
        let mut preview = Vec::new();
        for due in all {
            match due.step.clone() {
                Step::Ensure(front_end) => ensure.push(self.wanted(due, front_end)),
                Step::Preview(front_end) => preview.push(self.to_preview(due, front_end)),
                Step::SetMembers(id) => members.push(self.member_change(due, id)),
                Step::DeleteDuplicate(id) => {
                    delete.push(self.unwanted(due, Some(id), CallKind::DeleteDuplicate));
                }
                _ => {
                    let known = self.to_look_for(&due.service, CallKind::Delete);
                    delete.push(self.unwanted(due, known, CallKind::Delete));
                }
            }
        }
        tokio::join!(
            self.ensure(lane, &*balancers, ensure),
            self.set_members(lane, &*balancers, members),
            self.delete(lane, &*balancers, delete),
            self.preview(lane, &*balancers, preview),
        );
    }

    pub(super) fn owner(&self, service: &Service) -> Owner {
        let (namespace, name) = service.names();
        Owner {
            cluster: self.handles.cluster.clone(),
            uid: service.uid.to_string(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    fn wanted(&self, due: Due, front_end: Arc<FrontEnd>) -> Asked<Wanted> {
        let (service, members) = (&due.service, due.members.members.clone());
        let question = self.question(&due, Arc::clone(&front_end));
        let digest = Some(front_end.digest);
        // From now on there may be a load balancer, whatever the answer is.
        self.handles.balancers.with(service, Entry::begin_to_ensure);
        if self.is_news(service, front_end.digest) {
            self.handles.balancers.with(service, Entry::announce);
            self.handles.reports.ensuring(service, &front_end.digest.to_string());
            if members.present.is_empty() {
                self.handles.reports.no_members(service, due.members.why_none.as_deref());
            }
        }
        let (call, began) = (CallKind::Ensure, self.handles.timeline.now());
        Asked { due, call, question, digest, members: Some(members), began }
    }

    pub(super) fn question(&self, due: &Due, front_end: Arc<FrontEnd>) -> Wanted {
        let service = &due.service;
        Wanted {
            known: self.to_look_for(service, CallKind::Ensure),
            adopt: self.to_adopt(service),
            shown: shown(service),
            members: due.members.members.clone(),
            front_end,
            may_replace: due.may_replace,
        }
    }

    fn to_look_for(&self, service: &Service, call: CallKind) -> Option<String> {
        let traits = self.handles.load_balancers().map(|one| one.traits()).unwrap_or_default();
        self.handles.balancers.with(service, |entry| {
            entry.state().to_look_for(service, &traits, call).map(str::to_owned)
        })
    }

    /// The load balancer that this Service is to adopt.
    fn to_adopt(&self, service: &Service) -> Option<String> {
        let requested = to_adopt(service).map(str::to_owned);
        requested.or_else(|| {
            let adopts = self.handles.settings.borrow().adopt_load_balancers;
            let found =
                || self.handles.balancers.with(service, |entry| entry.state().adoptable.clone());
            adopts.then(found).flatten().map(|(id, _)| id)
        })
    }

    /// Whether a call with this configuration is worth an event: most calls of a restart or an
    /// audit change nothing.
    fn is_news(&self, service: &Service, digest: Digest) -> bool {
        let (configured, is_elsewhere) = self.handles.balancers.with(service, |entry| {
            (entry.state().configured, matches!(entry.state().known, Known::Elsewhere(_)))
        });
        if is_elsewhere && configured == Some(digest) {
            // service-ccm only asks whether another controller is still responsible.
            return false;
        }
        let provisioned = [Reason::Provisioned, Reason::PartlyProvisioned];
        let condition = service.condition(PROVISIONING);
        let shows_provisioned = provisioned.iter().any(|reason| shows(condition, *reason));
        !shows_provisioned || configured.is_some_and(|configured| configured != digest)
    }

    fn member_change(&self, due: Due, id: String) -> Asked<MemberChange> {
        let members = due.members.members.clone();
        let traits = self.handles.load_balancers().map(|one| one.traits()).unwrap_or_default();
        let front_end = traits
            .wants_service
            .then(|| desired(&due.service, &self.handles.cluster, &traits).front_end)
            .flatten();
        let details = due.service.details.as_deref();
        let question = MemberChange {
            owner: self.owner(&due.service),
            id,
            members: members.clone(),
            front_end,
            settings: details.map(|details| settings(details, &traits)).unwrap_or_default(),
        };
        let (call, began) = (CallKind::Members, self.handles.timeline.now());
        Asked { due, call, question, digest: None, members: Some(members), began }
    }

    fn unwanted(&self, due: Due, known: Option<String>, call: CallKind) -> Asked<Unwanted> {
        let duplicate = call == CallKind::DeleteDuplicate;
        let traits = self.handles.load_balancers().map(|one| one.traits()).unwrap_or_default();
        // A Service with a mistake has no front end, but its annotations still count.
        let details = due.service.details.as_deref();
        // Of a Service that is too large they are not known, and the provider keeps what it may keep.
        let known_settings = details.filter(|details| details.too_large.is_none());
        let settings = known_settings.map(|details| settings(details, &traits));
        let address = details.and_then(|it| it.load_balancer_ip.as_deref()?.parse().ok());
        let owner = self.owner(&due.service);
        let service = traits.wants_service.then(|| due.service.json.clone()).flatten();
        let question = Unwanted { owner, known, duplicate, settings, address, service };
        if !duplicate && question.known.is_some() {
            self.handles.reports.deleting(&due.service);
        }
        let began = self.handles.timeline.now();
        Asked { due, call, question, digest: None, members: None, began }
    }

    async fn ensure(&self, lane: Lane, balancers: &dyn LoadBalancers, asked: Vec<Asked<Wanted>>) {
        let is_urgent = asked.iter().any(|one| {
            one.due.service.details.as_ref().is_some_and(|details| details.ingress.is_empty())
        });
        let questions: Vec<Wanted> = asked.iter().map(|one| one.question.clone()).collect();
        let replaces =
            |one: &Asked<Wanted>| one.due.may_replace && recorded(&one.due.service).is_some();
        if asked.iter().any(replaces) {
            lease::store(&self.handles, &self.lease).await;
        }
        let answers = balancers.ensure(&questions, self.handles.call(is_urgent));
        let done = |asked: &Asked<Wanted>, entry: &mut Entry, balancer: LoadBalancer| {
            self.ensured(asked, entry, balancer);
        };
        self.answers(lane, asked, answers, done).await;
    }

    fn ensured(&self, asked: &Asked<Wanted>, entry: &mut Entry, balancer: LoadBalancer) {
        let (nodes, now) = (self.handles.node_set.borrow().clone(), self.handles.timeline.now());
        let id = balancer.id.clone();
        if let Some(gone) = entry.ensured(asked.about(), balancer, &nodes, now) {
            self.handles.gone(&asked.due.service, &gone, Some(&id));
        }
    }

    async fn set_members(
        &self,
        lane: Lane,
        balancers: &dyn LoadBalancers,
        asked: Vec<Asked<MemberChange>>,
    ) {
        if asked.is_empty() {
            return;
        }
        let started = Instant::now();
        let questions: Vec<MemberChange> = asked.iter().map(|one| one.question.clone()).collect();
        let answers = balancers.set_members(&questions, self.handles.call(false));
        let answers = self.or_given_up(lane, &asked, answers);
        let any_done = AtomicBool::new(false);
        let done = |asked: &Asked<MemberChange>, entry: &mut Entry, set: MembersSet| {
            any_done.store(true, Ordering::Relaxed);
            entry.members_set(asked.members.as_ref(), set, self.handles.timeline.now());
        };
        self.answers(lane, asked, answers, done).await;
        self.handles.metrics.members_changed(started.elapsed());
        if any_done.into_inner() {
            self.handles.metrics.nodes_synced(self.handles.published.lock().elapsed());
        }
    }

    async fn delete(&self, lane: Lane, balancers: &dyn LoadBalancers, asked: Vec<Asked<Unwanted>>) {
        let questions: Vec<Unwanted> = asked.iter().map(|one| one.question.clone()).collect();
        let answers = balancers.delete(&questions, self.handles.call(false));
        let done = |asked: &Asked<Unwanted>, entry: &mut Entry, _: AbsenceProof| match asked
            .question
            .duplicate
        {
            true => entry.duplicate_deleted(),
            false => entry.deleted(),
        };
        self.answers(lane, asked, answers, done).await;
    }
}
