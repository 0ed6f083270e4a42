//! Deletions, step by step.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use ccm_cloud::{
    AbsenceProof, CloudError, ErrorKind, Owner, Progress, ProofMethod, Unwanted, Waiting,
};

use super::{
    KEEP_ADDRESS, State, WriteKind,
    describe::about,
    requests::not_of,
    store::{Context, Store},
};

/// The addresses that outlive their load balancer.
#[derive(Clone, Copy)]
struct Keep {
    all: bool,
    this: Option<IpAddr>,
}

impl Keep {
    fn holds(self, address: IpAddr) -> bool {
        self.all || self.this == Some(address)
    }
}

impl Store {
    /// Returns true if the cloud works on this load balancer.
    pub(super) fn is_pending(&self, id: &str) -> bool {
        let state = self.balancers.get(id).map(|balancer| &balancer.state);
        matches!(state, Some(State::Pending { .. }))
    }

    /// Makes the next step of a deletion.
    pub(super) fn delete(
        &mut self,
        unwanted: &Unwanted,
        context: &Context,
    ) -> Result<Progress<AbsenceProof>, CloudError> {
        let Unwanted { owner, known, duplicate, settings, address, .. } = unwanted;
        self.fence(owner, context.term)?;
        if context.wrong_project {
            return Ok(Progress::Done(self.proof(unwanted)));
        }
        let named = known.as_ref().and_then(|id| self.balancers.get(id));
        if let Some(balancer) = named.filter(|balancer| !balancer.is_of(owner)) {
            return Err(not_of(owner, balancer));
        }
        if *duplicate {
            self.check_duplicate(owner, known.as_deref())?;
        }
        let asks = |all: &BTreeMap<String, String>| {
            all.get(KEEP_ADDRESS).is_some_and(|value| value == "true")
        };
        // A deleted address cannot be restored: if the settings are unknown, it stays.
        let keep = Keep { all: settings.as_ref().is_none_or(asks), this: *address };
        let ids = self.doomed(unwanted);
        if let Some(id) = ids.iter().find(|id| !self.is_pending(id)) {
            self.end(id, keep, context);
        } else if ids.is_empty() && !duplicate {
            self.release_rest(owner, keep, context);
        }
        if let Some(id) = self.doomed(unwanted).first() {
            return Ok(Progress::InProgress(self.waiting(id)));
        }
        if let Some(address) = self.unattached(owner).filter(|_| !duplicate) {
            return Ok(Progress::InProgress(Waiting {
                what: format!("floating address {address} is left"),
                check_after: Duration::ZERO,
                id: None,
                request_id: Some(self.request_id()),
                changed: true,
            }));
        }
        Ok(Progress::Done(self.proof(unwanted)))
    }

    /// Returns the load balancers that must be deleted.
    fn doomed(&self, unwanted: &Unwanted) -> Vec<String> {
        let Unwanted { owner, known, duplicate, .. } = unwanted;
        let mut ids: Vec<_> = self.owned(owner).map(|balancer| balancer.id.clone()).collect();
        ids.retain(|id| !duplicate || Some(id) == known.as_ref());
        ids
    }

    /// Refuses to delete a load balancer as a duplicate if it is not one.
    fn check_duplicate(&self, owner: &Owner, known: Option<&str>) -> Result<(), CloudError> {
        let Some(id) = known else {
            let what = "a duplicate without an ID";
            return Err(CloudError::new(ErrorKind::Invalid, what));
        };
        let mut existing = self.owned(owner).map(|balancer| balancer.id.as_str());
        if let (Some(only), None) = (existing.next(), existing.next())
            && only == id
            && !self.is_pending(id)
        {
            let what = format!("load balancer {id} is the only one of {owner}, not a second one");
            return Err(CloudError::new(ErrorKind::Conflict, what).about(about(id)));
        }
        Ok(())
    }

    /// Makes one step: first the floating address, then the load balancer.
    fn end(&mut self, id: &str, keep: Keep, context: &Context) {
        if let Some(address) = self.floating_of(id) {
            let line = self.release(address, keep.holds(address));
            self.record(id, WriteKind::Configure, line, context);
        } else {
            self.record(id, WriteKind::Delete, "delete".to_owned(), context);
        }
    }

    /// Releases a remaining floating address of this owner.
    fn release_rest(&mut self, owner: &Owner, keep: Keep, context: &Context) {
        if let Some(address) = self.unattached(owner) {
            let line = self.release(address, keep.holds(address));
            self.record(&address.to_string(), WriteKind::Delete, line, context);
        }
    }

    /// Detaches a floating address. Deletes it unless `keep` is set or a Service has asked for it.
    pub(super) fn release(&mut self, address: IpAddr, keep: bool) -> String {
        match self.floating.get_mut(&address).filter(|floating| keep || floating.is_asked_for) {
            Some(floating) => {
                (floating.is_kept, floating.to) = (true, None);
                format!("keep the floating address {address}")
            }
            None => {
                self.floating.remove(&address);
                format!("release the floating address {address}")
            }
        }
    }

    /// Returns a floating address of this owner that leads nowhere.
    pub(super) fn unattached(&self, owner: &Owner) -> Option<IpAddr> {
        let mut all = self.floating.iter();
        all.find_map(|(address, floating)| {
            let its = floating.owner.is(owner) && !floating.is_kept;
            (its && floating.to.is_none()).then_some(*address)
        })
    }

    /// Returns the proof that nothing is left.
    fn proof(&self, unwanted: &Unwanted) -> AbsenceProof {
        let Unwanted { owner, known, .. } = unwanted;
        let (method, evidence) = match known {
            Some(id) => (ProofMethod::ById, format!("load balancer {id} not found")),
            None => {
                let evidence = format!("no load balancer with the owner {owner} ({})", owner.uid);
                (ProofMethod::ByOwner, evidence)
            }
        };
        AbsenceProof { method, evidence, request_id: Some(self.request_id()), kept: None }
    }
}
