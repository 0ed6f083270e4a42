//! Wraps the cloud of the world: on demand it empties pools, does not see the members, or does not
//! offer lists.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use ccm_cloud::{
    AbsenceProof, Answers, Call, Cloud, CloudError, ClusterId, Depth, Instances, LoadBalancer,
    LoadBalancerList, LoadBalancerTraits, LoadBalancers, MemberChange, Members, MembersSet,
    NodeSelector, Pool, Progress, Scope, Unwanted, Wanted,
};
use ccm_sim::cloud::SimCloud;
use futures::StreamExt as _;
use parking_lot::Mutex;
use tokio::time::sleep;

/// The faults of the cloud.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lies {
    /// True if the provider does not offer lists.
    pub(crate) no_lists: bool,
    /// True if calls do not change members.
    pub(crate) no_members: bool,
    /// Why each pool is empty, in the provider's words.
    pub(crate) why_empty: Option<String>,
    /// True if a change of members does not see the members.
    pub(crate) not_seen: bool,
    /// True if the provider alone knows by which labels it selects members.
    pub(crate) is_opaque: bool,
    /// How long the answer to a list takes.
    pub(crate) late_lists: Duration,
    /// The load balancers that no list shows.
    pub(crate) hidden: Vec<String>,
}

/// A cloud with these faults, which a test may change.
#[derive(Clone)]
pub(crate) struct Lying {
    pub(crate) of: Arc<dyn LoadBalancers>,
    pub(crate) lies: Arc<Mutex<Lies>>,
}

impl Lying {
    fn explain(lies: &Lies, pools: &mut Option<Vec<Pool>>) {
        for pool in pools.iter_mut().flatten().filter(|pool| pool.members == 0) {
            pool.why_empty.clone_from(&lies.why_empty);
        }
    }
}

#[async_trait]
impl LoadBalancers for Lying {
    fn traits(&self) -> LoadBalancerTraits {
        let traits = self.of.traits();
        LoadBalancerTraits { lists: traits.lists && !self.lies.lock().no_lists, ..traits }
    }

    fn selector(&self, settings: &BTreeMap<String, String>) -> NodeSelector {
        match self.lies.lock().is_opaque {
            true => NodeSelector::opaque(),
            false => self.of.selector(settings),
        }
    }

    async fn list(
        &self,
        cluster: &ClusterId,
        scope: Scope,
        depth: Depth,
        call: Call,
    ) -> Result<LoadBalancerList, CloudError> {
        let mut list = self.of.list(cluster, scope, depth, call).await?;
        let lies = self.lies.lock().clone();
        sleep(lies.late_lists).await;
        list.load_balancers.retain(|one| !lies.hidden.contains(&one.id));
        for balancer in &mut list.load_balancers {
            Self::explain(&lies, &mut balancer.pools);
        }
        Ok(list)
    }

    fn ensure<'a>(&'a self, all: &'a [Wanted], call: Call) -> Answers<'a, Progress<LoadBalancer>> {
        let lies = self.lies.lock().clone();
        if !lies.no_members && lies.why_empty.is_none() {
            return self.of.ensure(all, call);
        }
        let mut asked = all.to_vec();
        for wanted in asked.iter_mut().filter(|_| lies.no_members) {
            wanted.members = Members::default();
        }
        let of = Arc::clone(&self.of);
        let answers = async move {
            let mut answers: Vec<_> = of.ensure(&asked, call).collect().await;
            for (_, answer) in &mut answers {
                if let Ok(Progress::Done(balancer)) = answer {
                    Self::explain(&lies, &mut balancer.pools);
                }
            }
            futures::stream::iter(answers)
        };
        futures::stream::once(answers).flatten().boxed()
    }

    fn preview<'a>(&'a self, all: &'a [Wanted], call: Call) -> Answers<'a, Vec<String>> {
        self.of.preview(all, call)
    }

    fn set_members<'a>(
        &'a self,
        all: &'a [MemberChange],
        call: Call,
    ) -> Answers<'a, Progress<MembersSet>> {
        let lies = self.lies.lock().clone();
        if lies.not_seen {
            let blind = || Ok(Progress::NotSeen("pool 1 shows no port".to_owned()));
            return futures::stream::iter((0..all.len()).map(move |place| (place, blind())))
                .boxed();
        }
        if !lies.no_members && lies.why_empty.is_none() {
            return self.of.set_members(all, call);
        }
        let mut asked = all.to_vec();
        for change in asked.iter_mut().filter(|_| lies.no_members) {
            change.members = Members::default();
        }
        let of = Arc::clone(&self.of);
        let answers = async move {
            let mut answers: Vec<_> = of.set_members(&asked, call).collect().await;
            for (_, answer) in &mut answers {
                if let Ok(Progress::Done(set)) = answer {
                    Self::explain(&lies, &mut set.pools);
                }
            }
            futures::stream::iter(answers)
        };
        futures::stream::once(answers).flatten().boxed()
    }

    fn delete<'a>(
        &'a self,
        all: &'a [Unwanted],
        call: Call,
    ) -> Answers<'a, Progress<AbsenceProof>> {
        self.of.delete(all, call)
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
