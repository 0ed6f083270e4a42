//! The load balancers capability: Octavia, and Neutron's floating IPs.
//!
//! | module | what it is |
//! |---|---|
//! | `names`, `ownership` | names, descriptions and tags; the owner of a load balancer |
//! | `annotations`, `job` | the request of a Service: annotations and options, typed, each value with its `Source` |
//! | `features` | the features of this Octavia and its driver |
//! | `spec` | listeners, pools and monitors as a Service wants them |
//! | `current`, `pools` | the state of the cloud: one load balancer as it was read; the pool of each port |
//! | `merge`, `diff`, `floating`, `local` | the steps from the state to the request: members, the tree, the floating IP, health monitors for local traffic |
//! | `steps` | a step: the request, and one line about it |
//! | `differences` | differences that are not changed, one note each |
//! | `view` | the controller's view: state, addresses, and what the provider waits for |
//! | `error_source` | which annotation or option an error is about |
//! | `memory`, `pace`, `failures` | a cache that saves requests, a rate limit, and the attempts to repair load balancers in `ERROR`: locks and times |
//! | `find`, `read`, `place`, `quotas` | requests that read |
//! | `apply` | makes one step |
//! | `list`, `ensure`, `create`, `repair`, `members`, `delete` | the calls of the contract |
//!
//! All but the last four rows and `view` are pure. Each call first reads the state, then decides on
//! the changes, and makes the first one. Octavia accepts the next one only after seconds.

mod annotations;
mod apply;
mod create;
mod current;
mod delete;
mod diff;
mod differences;
mod ensure;
mod error_source;
mod failures;
mod features;
mod find;
mod floating;
mod job;
mod list;
mod local;
mod members;
mod memory;
mod merge;
mod names;
mod ownership;
mod pace;
mod place;
mod pools;
mod quotas;
mod read;
mod repair;
mod spec;
mod steps;
mod view;

use std::{collections::BTreeMap, ops::Deref, sync::Arc};

use async_trait::async_trait;
use ccm_cloud::{
    AbsenceProof, Answers, Call, CloudError, ClusterId, Depth, ErrorKind, LoadBalancer,
    LoadBalancerList, LoadBalancerTraits, LoadBalancers, MemberChange, MembersSet, NodeSelector,
    Progress, Scope, Unwanted, Wanted, repeated,
};
use ccm_openstack_client::{
    api::{AT_ONCE, Api},
    lbaas::{ApiVersion, Octavia},
    network::Neutron,
};
use futures::{FutureExt as _, StreamExt as _, stream};
use parking_lot::Mutex;

#[cfg(any(test, feature = "fuzz"))]
pub use self::annotations::lines_about;
use self::{
    failures::Failures,
    features::{Features, TAGS},
    find::{BalancerQuery, Rows},
    memory::Memory,
    pace::Pace,
};
use crate::config::Config;

/// [`LoadBalancers`] with Octavia.
pub struct OctaviaBalancers {
    octavia: Octavia,
    neutron: Neutron,
    config: Arc<Config>,
    /// The version, or `None` if the cloud has no Octavia; an error until the version is known.
    version: Mutex<Result<Option<ApiVersion>, CloudError>>,
    memory: Memory,
    failures: Failures,
    /// Limits how many existing load balancers get health monitors at a time.
    pace: Pace,
    /// The external network that was found out.
    external: place::External,
}

impl OctaviaBalancers {
    /// Makes no request.
    pub fn new(api: &Arc<dyn Api>, config: impl Into<Arc<Config>>) -> Self {
        let unknown = "Octavia's versions have not been requested yet";
        Self {
            octavia: Octavia::new(Arc::clone(api)),
            neutron: Neutron::new(Arc::clone(api)),
            config: config.into(),
            version: Mutex::new(Err(CloudError::new(ErrorKind::Unavailable, unknown))),
            memory: Memory::default(),
            failures: Failures::default(),
            pace: Pace::default(),
            external: place::External::default(),
        }
    }

    /// Returns true if the cloud has load balancers that can be owned. Fails while this is not
    /// known.
    pub fn offered(&self) -> Result<bool, CloudError> {
        match &*self.version.lock() {
            Ok(Some(version)) if *version < TAGS => Err(too_old(*version)),
            Ok(version) => Ok(version.is_some()),
            Err(error) => Err(error.clone()),
        }
    }

    /// Requests the version of Octavia, if the cloud has it.
    pub async fn learn(&self, call: Call) -> Result<(), CloudError> {
        let asked = async {
            match self.octavia.offered(call).await? {
                true => self.octavia.version(call).await.map(Some),
                false => Ok(None),
            }
        };
        let answer = asked.await;
        let mut known = self.version.lock();
        // An error never replaces a known version.
        if answer.is_ok() || known.is_err() {
            known.clone_from(&answer);
        }
        drop(known);
        answer?;
        self.offered().map(drop)
    }

    /// Returns the features of this Octavia with a driver.
    async fn features(&self, driver: &str, call: Call) -> Result<Features, CloudError> {
        let version = self.octavia.version(call).await?;
        *self.version.lock() = Ok(Some(version));
        if version < TAGS { Err(too_old(version)) } else { Ok(Features::new(version, driver)) }
    }

    const fn context(&self, call: Call) -> Context<'_> {
        Context { balancers: self, call }
    }
}

/// One call of the contract: the provider, and the time that the call has.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    balancers: &'a OctaviaBalancers,
    call: Call,
}

impl Deref for Context<'_> {
    type Target = OctaviaBalancers;

    fn deref(&self) -> &OctaviaBalancers {
        self.balancers
    }
}

/// Answers each item separately, after one look at all of them.
fn each<'a, Q: Sync, T: Send + 'a, F>(
    cx: Context<'a>,
    items: &'a [Q],
    refused: BTreeMap<usize, CloudError>,
    look: BalancerQuery<'a>,
    work: impl Fn(&'a Q, Arc<Rows>) -> F + Send + 'a,
) -> Answers<'a, T>
where
    F: Future<Output = Result<T, CloudError>> + Send + 'a,
{
    let answers = async move {
        let rows = find::rows(cx, &look).await.map(Arc::new);
        let work = items.iter().enumerate().map(move |(at, item)| {
            let early = refused.get(&at).cloned().map_or_else(|| rows.clone(), Err);
            match early {
                Err(error) => std::future::ready((at, Err(error))).left_future(),
                Ok(rows) => work(item, rows).map(move |answer| (at, answer)).right_future(),
            }
        });
        stream::iter(work).buffer_unordered(AT_ONCE)
    };
    stream::once(answers).flatten().boxed()
}

fn too_old(version: ApiVersion) -> CloudError {
    let what = format!(
        "Octavia's API has version {version}; load balancers need {TAGS}, which has the tags that \
         say to whom one belongs"
    );
    CloudError::new(ErrorKind::Unsupported, what)
}

/// Returns an error about a load balancer.
fn balancer_error(kind: ErrorKind, id: &str, what: impl Into<String>) -> CloudError {
    CloudError::new(kind, what).about(format!("load balancer {id}"))
}

#[async_trait]
impl LoadBalancers for OctaviaBalancers {
    fn traits(&self) -> LoadBalancerTraits {
        let version = self.version.lock().as_ref().ok().copied().flatten();
        Features::new(version.unwrap_or(TAGS), &self.config.load_balancer.provider).traits()
    }

    fn selector(&self, settings: &BTreeMap<String, String>) -> NodeSelector {
        annotations::selector(settings, &self.config)
    }

    async fn list(
        &self,
        cluster: &ClusterId,
        scope: Scope,
        depth: Depth,
        call: Call,
    ) -> Result<LoadBalancerList, CloudError> {
        list::list(self.context(call), cluster, scope, depth).await
    }

    fn ensure<'a>(
        &'a self,
        wanted: &'a [Wanted],
        call: Call,
    ) -> Answers<'a, Progress<LoadBalancer>> {
        let cx = self.context(call);
        let refused = repeated(wanted.iter().map(|one| &one.front_end.owner));
        each(cx, wanted, refused, looked_for(wanted), move |one, rows| async move {
            ensure::ensure(cx, one, &rows).await
        })
    }

    fn preview<'a>(&'a self, wanted: &'a [Wanted], call: Call) -> Answers<'a, Vec<String>> {
        let cx = self.context(call);
        each(cx, wanted, BTreeMap::new(), looked_for(wanted), move |one, rows| async move {
            ensure::preview(cx, one, &rows).await
        })
    }

    fn set_members<'a>(
        &'a self,
        changes: &'a [MemberChange],
        call: Call,
    ) -> Answers<'a, Progress<MembersSet>> {
        let cx = self.context(call);
        let refused = repeated(changes.iter().map(|one| &one.owner));
        let ids = changes.iter().map(|one| one.id.clone()).collect();
        let look = BalancerQuery { ids, ..BalancerQuery::default() };
        each(cx, changes, refused, look, move |one, rows| async move {
            members::set_members(cx, one, &rows).await
        })
    }

    fn delete<'a>(
        &'a self,
        unwanted: &'a [Unwanted],
        call: Call,
    ) -> Answers<'a, Progress<AbsenceProof>> {
        let cx = self.context(call);
        let refused = repeated(unwanted.iter().map(|one| &one.owner));
        let ids = unwanted.iter().filter_map(|one| one.known.clone());
        let ids: Vec<String> = ids.filter(|id| names::is_id(id)).collect();
        // Before a deletion ends, the provider also looks for a second load balancer of the owner.
        // The list of the project, in which several IDs are looked up anyway, shows it.
        let whole = ids.len() > 1 || ids.iter().any(|id| self.memory.is_deleted(id));
        let owners = unwanted.iter().map(|one| &one.owner).filter(|_| whole).collect();
        let look = BalancerQuery { ids, owners, whole };
        each(cx, unwanted, refused, look, move |one, rows| async move {
            delete::delete(cx, one, &rows).await
        })
    }
}

/// Returns the load balancers that are named, and the owners of those that are not.
fn looked_for(wanted: &[Wanted]) -> BalancerQuery<'_> {
    let ids = wanted.iter().flat_map(|one| [&one.known, &one.adopt]).flatten().cloned();
    let ids: std::collections::BTreeSet<String> = ids.collect();
    let unnamed = wanted.iter().filter(|one| one.known.is_none());
    let owners = unnamed.map(|one| &one.front_end.owner).collect();
    BalancerQuery { ids: ids.into_iter().collect(), owners, whole: false }
}

#[cfg(test)]
mod tests;
