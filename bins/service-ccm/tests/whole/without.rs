//! The simulated cloud with other load balancers than its own, for instance load balancers of a
//! provider that does not offer lists.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use ccm_cloud::{
    AbsenceProof, Answers, Call, Cloud, CloudError, ClusterId, Depth, Instances, LoadBalancer,
    LoadBalancerList, LoadBalancerTraits, LoadBalancers, MemberChange, MembersSet, NodeSelector,
    Progress, Scope, Unwanted, Wanted,
};
use ccm_sim::cloud::SimCloud;

/// A variant of the world: the provider does not offer lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lists;

/// The cloud as such a provider shows it.
#[derive(Clone)]
pub(crate) struct Unlisted(pub(crate) SimCloud);

#[async_trait]
impl LoadBalancers for Unlisted {
    fn traits(&self) -> LoadBalancerTraits {
        LoadBalancerTraits { lists: false, ..LoadBalancers::traits(&self.0) }
    }

    fn selector(&self, settings: &BTreeMap<String, String>) -> NodeSelector {
        LoadBalancers::selector(&self.0, settings)
    }

    async fn list(
        &self,
        cluster: &ClusterId,
        scope: Scope,
        depth: Depth,
        call: Call,
    ) -> Result<LoadBalancerList, CloudError> {
        LoadBalancers::list(&self.0, cluster, scope, depth, call).await
    }

    fn ensure<'a>(&'a self, all: &'a [Wanted], call: Call) -> Answers<'a, Progress<LoadBalancer>> {
        self.0.ensure(all, call)
    }

    fn preview<'a>(&'a self, all: &'a [Wanted], call: Call) -> Answers<'a, Vec<String>> {
        self.0.preview(all, call)
    }

    fn set_members<'a>(
        &'a self,
        all: &'a [MemberChange],
        call: Call,
    ) -> Answers<'a, Progress<MembersSet>> {
        self.0.set_members(all, call)
    }

    fn delete<'a>(
        &'a self,
        all: &'a [Unwanted],
        call: Call,
    ) -> Answers<'a, Progress<AbsenceProof>> {
        self.0.delete(all, call)
    }
}

/// The simulated cloud with these load balancers.
pub(crate) struct Layered {
    pub(crate) cloud: SimCloud,
    pub(crate) balancers: Arc<dyn LoadBalancers>,
}

#[async_trait]
impl Cloud for Layered {
    fn name(&self) -> &str {
        self.cloud.name()
    }

    fn schemes(&self) -> Vec<String> {
        self.cloud.schemes()
    }

    fn identity(&self) -> Option<String> {
        self.cloud.identity()
    }

    fn instances(&self) -> Result<Option<Arc<dyn Instances>>, CloudError> {
        self.cloud.instances()
    }

    fn load_balancers(&self) -> Result<Option<Arc<dyn LoadBalancers>>, CloudError> {
        Ok(self.cloud.load_balancers()?.map(|_| Arc::clone(&self.balancers)))
    }

    async fn health(&self, call: Call) -> Result<(), CloudError> {
        self.cloud.health(call).await
    }

    async fn changed(&self) {
        self.cloud.changed().await;
    }
}
