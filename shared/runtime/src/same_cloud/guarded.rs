//! A cloud whose calls are made only while it is still the recorded one.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use ccm_cloud::{
    AbsenceProof, Answers, AppliedChange, Call, Capability, Claim, Cloud, CloudError, ClusterId,
    Depth, Detail, Fleet, InstanceTraits, Instances, LoadBalancer, LoadBalancerList,
    LoadBalancerTraits, LoadBalancers, Lookup, LookupResult, MemberChange, MembersSet,
    NodeIdentity, NodeSelector, Progress, RouteChange, RouteTable, RouteTarget, RouteTraits,
    Routes, Scope, Shortfall, TargetState, Unwanted, Wanted,
};
use futures::{StreamExt as _, stream};

use super::SameCloud;

/// The cloud and its capabilities.
pub(super) struct Guarded<T: ?Sized> {
    same: SameCloud,
    inner: Arc<T>,
}

impl Guarded<dyn Cloud> {
    pub(super) fn new(same: SameCloud) -> Self {
        Self { inner: Arc::clone(&same.0.cloud), same }
    }

    fn capability<T: ?Sized>(
        &self,
        offered: Result<Option<Arc<T>>, CloudError>,
    ) -> Result<Option<Arc<Guarded<T>>>, CloudError> {
        let guard = |inner| Arc::new(Guarded { same: self.same.clone(), inner });
        Ok(offered?.map(guard))
    }
}

impl<T: ?Sized + Send + Sync> Guarded<T> {
    /// Returns the answer of a call, if the cloud is still the recorded one when the call begins
    /// and when it ends.
    async fn ask<A>(
        &self,
        call: Call,
        answer: impl Future<Output = Result<A, CloudError>> + Send,
    ) -> Result<A, CloudError> {
        self.same.check(call).await?;
        let answer = answer.await?;
        self.same.check(call).await?;
        Ok(answer)
    }

    /// Returns the answers of a call about this many items, each under the same condition. If the
    /// answer about a change is not used, it does not say that nothing was changed.
    fn each<'a, A: Send + 'a>(
        &'a self,
        items: usize,
        call: Call,
        begin: impl FnOnce(&'a T) -> Answers<'a, A> + Send + 'a,
    ) -> Answers<'a, A> {
        let answers = async move {
            if let Err(error) = self.same.check(call).await {
                return stream::iter((0..items).map(move |place| (place, Err(error.clone()))))
                    .boxed();
            }
            let checked = move |(place, answer): (usize, Result<A, CloudError>)| async move {
                let checked = self.same.check(call).await.map_err(CloudError::that_may_be_done);
                (place, checked.and(answer))
            };
            begin(&self.inner).then(checked).boxed()
        };
        stream::once(answers).flatten().boxed()
    }
}

#[async_trait]
impl Cloud for Guarded<dyn Cloud> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn schemes(&self) -> Vec<String> {
        self.inner.schemes()
    }

    fn claim(&self, provider_id: Option<&str>) -> Claim {
        self.inner.claim(provider_id)
    }

    fn why_foreign(&self, provider_id: &str) -> String {
        self.inner.why_foreign(provider_id)
    }

    fn why_not_offered(&self, capability: Capability) -> Option<String> {
        self.inner.why_not_offered(capability)
    }

    fn shortfalls(&self) -> Vec<Shortfall> {
        self.inner.shortfalls()
    }

    fn in_clear(&self) -> Option<String> {
        self.inner.in_clear()
    }

    fn canonical_id<'a>(&self, provider_id: &'a str) -> Cow<'a, str> {
        self.inner.canonical_id(provider_id)
    }

    fn identity(&self) -> Option<String> {
        self.inner.identity()
    }

    fn instances(&self) -> Result<Option<Arc<dyn Instances>>, CloudError> {
        Ok(self.capability(self.inner.instances())?.map(|offered| offered as _))
    }

    fn load_balancers(&self) -> Result<Option<Arc<dyn LoadBalancers>>, CloudError> {
        Ok(self.capability(self.inner.load_balancers())?.map(|offered| offered as _))
    }

    fn routes(&self) -> Result<Option<Arc<dyn Routes>>, CloudError> {
        Ok(self.capability(self.inner.routes())?.map(|offered| offered as _))
    }

    /// The call changes nothing, and shows whether the other cloud answers.
    async fn health(&self, call: Call) -> Result<(), CloudError> {
        self.inner.health(call).await
    }

    async fn outdated(&self) -> String {
        self.inner.outdated().await
    }

    async fn changed(&self) {
        self.inner.changed().await;
    }
}

#[async_trait]
impl Instances for Guarded<dyn Instances> {
    fn traits(&self) -> InstanceTraits {
        self.inner.traits()
    }

    async fn lookup(
        &self,
        nodes: &[NodeIdentity],
        detail: Detail,
        call: Call,
    ) -> Vec<LookupResult> {
        let answer = async { Ok(self.inner.lookup(nodes, detail, call).await) };
        self.ask(call, answer).await.unwrap_or_else(|error| vec![Err(error); nodes.len()])
    }

    fn lookup_each<'a>(
        &'a self,
        nodes: &'a [NodeIdentity],
        detail: Detail,
        call: Call,
    ) -> Answers<'a, Lookup> {
        self.each(nodes.len(), call, move |inner| inner.lookup_each(nodes, detail, call))
    }

    async fn list(&self, call: Call) -> Result<Fleet, CloudError> {
        self.ask(call, self.inner.list(call)).await
    }
}

#[async_trait]
impl LoadBalancers for Guarded<dyn LoadBalancers> {
    fn traits(&self) -> LoadBalancerTraits {
        self.inner.traits()
    }

    fn selector(&self, settings: &BTreeMap<String, String>) -> NodeSelector {
        self.inner.selector(settings)
    }

    async fn list(
        &self,
        cluster: &ClusterId,
        scope: Scope,
        depth: Depth,
        call: Call,
    ) -> Result<LoadBalancerList, CloudError> {
        self.ask(call, self.inner.list(cluster, scope, depth, call)).await
    }

    fn ensure<'a>(
        &'a self,
        wanted: &'a [Wanted],
        call: Call,
    ) -> Answers<'a, Progress<LoadBalancer>> {
        self.each(wanted.len(), call, move |inner| inner.ensure(wanted, call))
    }

    fn preview<'a>(&'a self, wanted: &'a [Wanted], call: Call) -> Answers<'a, Vec<String>> {
        self.each(wanted.len(), call, move |inner| inner.preview(wanted, call))
    }

    fn set_members<'a>(
        &'a self,
        changes: &'a [MemberChange],
        call: Call,
    ) -> Answers<'a, Progress<MembersSet>> {
        self.each(changes.len(), call, move |inner| inner.set_members(changes, call))
    }

    fn delete<'a>(
        &'a self,
        unwanted: &'a [Unwanted],
        call: Call,
    ) -> Answers<'a, Progress<AbsenceProof>> {
        self.each(unwanted.len(), call, move |inner| inner.delete(unwanted, call))
    }
}

#[async_trait]
impl Routes for Guarded<dyn Routes> {
    fn traits(&self) -> RouteTraits {
        self.inner.traits()
    }

    async fn list(&self, cluster: &ClusterId, call: Call) -> Result<RouteTable, CloudError> {
        self.ask(call, self.inner.list(cluster, call)).await
    }

    fn apply<'a>(
        &'a self,
        cluster: &'a ClusterId,
        changes: &'a [RouteChange],
        base: Option<&'a str>,
        call: Call,
    ) -> Answers<'a, AppliedChange> {
        self.each(changes.len(), call, move |inner| inner.apply(cluster, changes, base, call))
    }

    fn find_targets<'a>(
        &'a self,
        targets: &'a [RouteTarget],
        call: Call,
    ) -> Answers<'a, TargetState> {
        self.each(targets.len(), call, move |inner| inner.find_targets(targets, call))
    }
}
