//! The cloud as the program reaches it: each call is checked before the cloud gets it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use async_trait::async_trait;
use ccm_cloud::{
    AbsenceProof, Answers, Call, CloudError, ClusterId, Depth, LoadBalancer, LoadBalancerList,
    LoadBalancerTraits, LoadBalancers, MemberChange, Members, MembersSet, NodeSelector, Owner,
    Progress, Scope, Unwanted, Wanted,
};
use ccm_objects::service_keys::CLEANUP;
use ccm_sim::{apiserver::ApiServer, cloud::SimCloud};
use parking_lot::Mutex;
use serde_json::Value;

use crate::{
    rules::{Broken, Rule},
    wanted::condition,
    world::{OURS, Persons},
};

/// The annotation with the ID of the load balancer that clients of a Service use.
pub(crate) const ID: &str = "quartet.dev/load-balancer-id";

#[derive(Clone)]
pub(crate) struct Watched {
    pub(crate) cloud: SimCloud,
    pub(crate) api: Arc<ApiServer>,
    pub(crate) broken: Broken,
    /// The UIDs of the Services for which the program has ever asked for a load balancer.
    pub(crate) served: Arc<Mutex<BTreeSet<String>>>,
    pub(crate) persons: Persons,
}

impl Watched {
    /// The Service of this owner.
    pub(crate) fn service(&self, owner: &Owner) -> Option<Value> {
        let is = |service: &Value| service["metadata"]["uid"] == owner.uid.as_str();
        self.api.list("services").into_iter().find(is)
    }

    /// What holds for every write: whose Service it is about, and whose load balancer.
    fn check(&self, owner: &Owner, ids: &[Option<&String>]) {
        let service = self.service(owner).unwrap_or_default();
        let class = service["spec"]["loadBalancerClass"].as_str();
        // The program finishes what it began before the Service got this class.
        let was_served = self.served.lock().contains(&owner.uid)
            || condition(&service, "LoadBalancerProvisioning").is_some();
        if class.is_some_and(|class| class != OURS) && !was_served {
            self.broken.add(Rule::OtherClass, format!("a call about {owner} of another class"));
        }
        for id in ids.iter().flatten() {
            let named = self.cloud.balancers().get(id);
            if named.is_some_and(|one| !one.owners.iter().any(|its| its.is(owner))) {
                self.broken.add(Rule::Foreign, format!("a call about {owner} names {id}"));
            }
        }
    }

    fn check_members(&self, owner: &Owner, members: &Members) {
        if members.present.is_empty() && !members.absent.is_empty() {
            self.broken.add(Rule::LastMember, format!("{owner} is to lose its last member"));
        }
    }

    fn check_ensure(&self, wanted: &Wanted) {
        let owner = &wanted.front_end.owner;
        let class = wanted.front_end.class.as_deref();
        if class.is_none_or(|class| class == OURS) {
            self.served.lock().insert(owner.uid.clone());
        }
        self.check(owner, &[wanted.known.as_ref(), wanted.adopt.as_ref()]);
        self.check_members(owner, &wanted.members);
        // A call to the cloud carries no version of the Service, so a leader whose watch is silent
        // may make it after a person has removed the finalizer. It did not create the load balancer
        // before the finalizer was there, and what the Service leaves is reported as an orphan.
        let is_unseen = self.persons.have_just_released(&owner.uid);
        if !is_unseen && !self.service(owner).is_some_and(|service| is_protected(&service)) {
            self.broken.add(Rule::Protected, format!("a call for {owner} without finalizer"));
        }
    }

    fn check_delete(&self, unwanted: &Unwanted) {
        let Unwanted { owner, known, duplicate, .. } = unwanted;
        self.check(owner, &[known.as_ref()]);
        let service = self.service(owner).unwrap_or_default();
        if *duplicate && service["metadata"]["annotations"][ID].as_str() == known.as_deref() {
            self.broken.add(Rule::Address, format!("{owner} is to lose what its clients use"));
        }
    }
}

/// Whether a Service has the finalizer.
pub(crate) fn is_protected(service: &Value) -> bool {
    let finalizers = service["metadata"]["finalizers"].as_array();
    finalizers.is_some_and(|all| all.iter().any(|one| one == CLEANUP))
}

#[async_trait]
impl LoadBalancers for Watched {
    fn traits(&self) -> LoadBalancerTraits {
        LoadBalancers::traits(&self.cloud)
    }

    fn selector(&self, settings: &BTreeMap<String, String>) -> NodeSelector {
        LoadBalancers::selector(&self.cloud, settings)
    }

    async fn list(
        &self,
        cluster: &ClusterId,
        scope: Scope,
        depth: Depth,
        call: Call,
    ) -> Result<LoadBalancerList, CloudError> {
        LoadBalancers::list(&self.cloud, cluster, scope, depth, call).await
    }

    fn ensure<'a>(&'a self, all: &'a [Wanted], call: Call) -> Answers<'a, Progress<LoadBalancer>> {
        for wanted in all {
            self.check_ensure(wanted);
        }
        self.cloud.ensure(all, call)
    }

    fn preview<'a>(&'a self, all: &'a [Wanted], call: Call) -> Answers<'a, Vec<String>> {
        self.cloud.preview(all, call)
    }

    fn set_members<'a>(
        &'a self,
        all: &'a [MemberChange],
        call: Call,
    ) -> Answers<'a, Progress<MembersSet>> {
        for change in all {
            self.check(&change.owner, &[Some(&change.id)]);
            self.check_members(&change.owner, &change.members);
        }
        self.cloud.set_members(all, call)
    }

    fn delete<'a>(
        &'a self,
        all: &'a [Unwanted],
        call: Call,
    ) -> Answers<'a, Progress<AbsenceProof>> {
        for unwanted in all {
            self.check_delete(unwanted);
        }
        self.cloud.delete(all, call)
    }
}
