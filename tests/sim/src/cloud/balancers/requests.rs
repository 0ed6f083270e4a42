//! The provider's requests about one load balancer each, except deletions.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ccm_cloud::{
    CloudError, Cure, Depth, ErrorKind, IpFamily, LoadBalancer, Loss, MemberChange, Members,
    MembersSet, Owner, Pool, Progress, Title, Waiting, Wanted,
};

use super::{
    ELSEWHERE, SimBalancer, State,
    changes::{Change, Needs, changes, created, members, selector, why_none},
    check::check,
    describe::{about, missing},
    store::{Context, Store},
};
use crate::faults::Trouble;

impl Store {
    /// Makes the next change of a load balancer, if there is one.
    pub(super) fn ensure(
        &mut self,
        wanted: &Wanted,
        context: &Context,
    ) -> Result<Progress<LoadBalancer>, CloudError> {
        let owner = &wanted.front_end.owner;
        self.fence(owner, context.term)?;
        if let Some(reason) = elsewhere(wanted) {
            return Ok(Progress::Elsewhere(reason));
        }
        let (target, changes) = self.plan(wanted, context)?;
        if let Some(id) = target.as_ref().filter(|id| self.is_pending(id)) {
            return Ok(Progress::InProgress(self.waiting(id)));
        }
        if let Some(loss) = self.loss(target.as_deref(), wanted) {
            return Ok(Progress::Lost(loss));
        }
        let id = self.make(target, &changes, wanted, context);
        let ready = self.balancers.get(&id).is_some_and(|it| it.state == State::Ready);
        if changes.len() > 1 || !ready {
            return Ok(Progress::InProgress(Waiting { changed: true, ..self.waiting(&id) }));
        }
        let mut shown = self.describe(&id, &owner.cluster, Depth::Members, context.now)?;
        shown.pools = self.pools(&id, &wanted.members);
        Ok(Progress::Done(shown))
    }

    /// Returns why only a new load balancer helps, if the request must not make one. A repair
    /// counts as a new one.
    fn loss(&self, target: Option<&str>, wanted: &Wanted) -> Option<Loss> {
        let known = wanted.known.as_deref();
        let known = known.filter(|_| self.settings.traits.asks_before_replacing)?;
        if wanted.may_replace || wanted.adopt.is_some() {
            return None;
        }
        let Some(target) = target else {
            return Some(Loss { why: format!("load balancer {known}: 404"), is_gone: true });
        };
        match &self.balancers.get(target)?.state {
            State::Failed { why, .. } => Some(Loss {
                why: format!("load balancer {target} has failed: {why}"),
                is_gone: false,
            }),
            _ => None,
        }
    }

    /// Returns the changes that are left, as text.
    pub(super) fn preview(
        &mut self,
        wanted: &Wanted,
        context: &Context,
    ) -> Result<Vec<String>, CloudError> {
        if elsewhere(wanted).is_some() {
            return Ok(Vec::new());
        }
        let (target, changes) = self.plan(wanted, context)?;
        if self.loss(target.as_deref(), wanted).is_some() {
            return Ok(Vec::new());
        }
        Ok(changes.iter().map(ToString::to_string).collect())
    }

    /// Changes members.
    pub(super) fn set_members(
        &mut self,
        change: &MemberChange,
        context: &Context,
    ) -> Result<Progress<MembersSet>, CloudError> {
        let MemberChange { owner, id, members: wanted, front_end, settings } = change;
        self.fence(owner, context.term)?;
        let traits = &self.settings.traits;
        if traits.wants_service && front_end.as_ref().is_none_or(|it| it.service.is_none()) {
            let what = "a change of members needs the Service";
            return Err(CloudError::new(ErrorKind::Invalid, what));
        }
        let balancer = self.balancers.get(id).ok_or_else(|| missing(id))?;
        if !balancer.owners.iter().any(|it| it.is(owner)) {
            return Err(not_of(owner, balancer));
        }
        match &balancer.state {
            State::Ready => {}
            State::Pending { what, .. } => {
                let why = format!("load balancer {id} is immutable: {what}");
                return Err(CloudError::new(ErrorKind::Busy, why).about(about(id)));
            }
            State::Failed { why, .. } => {
                let why = format!("load balancer {id} has failed: {why}");
                return Err(CloudError::new(ErrorKind::Conflict, why).about(about(id)));
            }
        }
        let families = balancer.families();
        let selector = selector(settings, &self.settings);
        let needs = Needs { families: &families, traits, selector: &selector };
        let Some((add, remove)) = members(&balancer.members, wanted, needs) else {
            return Ok(Progress::Done(self.members_set(id, wanted, false)));
        };
        if balancer.members.is_empty() && !self.settings.shows_empty {
            let what = format!("load balancer {id} has no member that shows their port");
            return Ok(Progress::NotSeen(what));
        }
        self.apply(id, &Change::Members { add, remove }, None, None, context);
        let ready = self.balancers.get(id).is_some_and(|it| it.state == State::Ready);
        Ok(match ready {
            true => Progress::Done(self.members_set(id, wanted, true)),
            false => Progress::InProgress(Waiting { changed: true, ..self.waiting(id) }),
        })
    }

    /// Returns the answer to a change of members.
    fn members_set(&self, id: &str, wanted: &Members, changed: bool) -> MembersSet {
        MembersSet { version: self.version(id), changed, pools: self.pools(id, wanted) }
    }

    /// Returns the members by port. An empty pool says why none of the wanted members can be one.
    fn pools(&self, id: &str, wanted: &Members) -> Option<Vec<Pool>> {
        let balancer = self.balancers.get(id)?;
        let mut pools = balancer.pools();
        let (families, traits) = (balancer.families(), &self.settings.traits);
        let selector = selector(&balancer.configuration.settings, &self.settings);
        let needs = Needs { families: &families, traits, selector: &selector };
        let why = why_none(wanted, needs);
        for pool in pools.iter_mut().filter(|pool| pool.members == 0) {
            pool.why_empty.clone_from(&why);
        }
        Some(pools)
    }

    /// Returns the load balancer that a request is about, and the remaining changes.
    fn plan(
        &self,
        wanted: &Wanted,
        context: &Context,
    ) -> Result<(Option<String>, Vec<Change>), CloudError> {
        let target = self.target(wanted, context)?;
        let now = target.as_ref().and_then(|id| self.balancers.get(id));
        check(self, &wanted.front_end, now)?;
        let settings = &self.settings;
        let Some(now) = now else {
            let addresses = wanted.front_end.families.iter().map(|family| any(*family)).collect();
            let fresh = created(wanted, String::new(), addresses, settings);
            let create = Change::Create {
                name: fresh.name.clone(),
                listeners: fresh.configuration.listeners.len(),
                members: fresh.members.len(),
            };
            let mut all = vec![create];
            all.extend(changes(&fresh, None, wanted, settings));
            return Ok((None, all));
        };
        if let State::Failed { why, cure: Cure::Person } = &now.state {
            let what = format!("load balancer {} needs a person: {why}", now.id);
            return Err(CloudError::new(ErrorKind::Conflict, what).about(about(&now.id)));
        }
        let floating = self.floating_of(&now.id);
        let changes = changes(now, floating, wanted, settings);
        Ok((target, changes))
    }

    /// Returns the load balancer that a request is about, if there is one.
    fn target(&self, wanted: &Wanted, context: &Context) -> Result<Option<String>, CloudError> {
        let Wanted { front_end, known, adopt, .. } = wanted;
        let owner = &front_end.owner;
        let existing: Vec<_> = self.owned(owner).collect();
        if let Some(id) = adopt.as_ref().filter(|id| existing.iter().all(|it| it.id != **id)) {
            return self.adoptable(id, owner, &existing).map(Some);
        }
        // A cloud with fences would refuse a second load balancer, so it finds the first.
        if let Some(Trouble::Overlook { by_id }) = context.trouble
            && !self.settings.fences
        {
            let mut found = existing.iter().filter(|it| !by_id && Some(&it.id) == known.as_ref());
            return Ok(found.next().map(|balancer| balancer.id.clone()));
        }
        let named = known.as_ref().and_then(|id| self.balancers.get(id));
        let strange = named.filter(|balancer| !balancer.is_of(owner));
        let shared = || {
            let has_it = |it: &&SimBalancer| it.owners.iter().any(|one| one.is(owner));
            self.balancers.values().filter(has_it).find(|it| it.owners.len() > 1)
        };
        if let Some(balancer) = strange.or_else(shared) {
            return Err(not_of(owner, balancer));
        }
        // This creation was decided on before another process created a load balancer.
        if !context.found && !self.settings.fences {
            return Ok(None);
        }
        let chosen = existing.iter().find(|balancer| Some(&balancer.id) == known.as_ref());
        Ok(chosen.or(existing.first()).map(|balancer| balancer.id.clone()))
    }

    /// Returns the ID again, if the owner may adopt this load balancer.
    fn adoptable(
        &self,
        id: &str,
        owner: &Owner,
        existing: &[&SimBalancer],
    ) -> Result<String, CloudError> {
        let balancer = self.balancers.get(id).ok_or_else(|| missing(id))?;
        if let Some(other) = existing.first() {
            let what = format!("{owner} has load balancer {} already", other.id);
            return Err(CloudError::new(ErrorKind::Conflict, what).about(about(id)));
        }
        match balancer.title(&owner.cluster) {
            Title::Adoptable { .. } => Ok(id.to_owned()),
            _ => Err(not_of(owner, balancer)),
        }
    }

    fn version(&self, id: &str) -> Option<String> {
        self.balancers.get(id).map(SimBalancer::shown_version)
    }
}

/// Returns the refusal to change a load balancer that does not belong, or not only, to this owner.
pub(super) fn not_of(owner: &Owner, balancer: &SimBalancer) -> CloudError {
    let id = &balancer.id;
    let others: Vec<_> = balancer.owners.iter().filter(|one| !one.is(owner)).collect();
    let what = match others.as_slice() {
        [] => format!("load balancer {id} has no owner, so it does not belong to {owner}"),
        [one] => format!("load balancer {id} belongs to {one}, not to {owner}"),
        many => format!("load balancer {id} is shared by {} others than {owner}", many.len()),
    };
    CloudError::new(ErrorKind::Conflict, what).about(about(id))
}

fn elsewhere(wanted: &Wanted) -> Option<String> {
    wanted.front_end.settings.get(ELSEWHERE).filter(|reason| !reason.is_empty()).cloned()
}

fn any(family: IpFamily) -> IpAddr {
    match family {
        IpFamily::V4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpFamily::V6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    }
}
