//! Variants of the program without one protection. Each changes what the program asks of the cloud,
//! or what it learns from it, as if the protection were not there.

use std::{collections::HashMap, sync::Arc};

use async_trait::async_trait;
use ccm_cloud::{
    AbsenceProof, Answers, AppliedChange, Call, CloudError, ClusterId, ErrorKind, ProofMethod,
    Route, RouteChange, RouteTable, RouteTarget, RouteTraits, Routes, TargetState,
};
use ccm_tests::variants::together;
use futures::StreamExt as _;
use parking_lot::Mutex;
use tokio::task::JoinSet;

use crate::{truth, watched::Watched};

/// A protection that is taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Without {
    /// The owner that the cloud records says whose a route is.
    Owner,
    /// A target that is not ours is looked up.
    Look,
    /// It is looked up twice.
    SecondLook,
    /// Answers count only if targets of nodes are found.
    Witnesses,
    /// A destination waits for the answer to its change.
    InFlight,
    /// One call at a time where versions are compared.
    Versions,
    /// A target is replaced in one step.
    Replace,
    /// Where there may be two targets, the new one comes first.
    NewFirst,
    /// A deletion names the route that was seen.
    Seen,
    /// The table is listed again.
    Audit,
    /// A change that failed is known to have failed.
    Failures,
    /// Defects are seen.
    Defects,
    /// A second route to the same target is seen.
    Duplicates,
    /// A new leader plans nothing before its store is as new as its term: `takeover`.
    Freshness,
    /// The target in an answer is compared with the node as it is then.
    Target,
    /// Only a change that matters for its route voids the pause after a failure: `rival`.
    Pause,
}

/// The cloud as such a variant reaches it.
#[derive(Clone)]
pub(crate) struct Missing {
    without: Without,
    to: Watched,
    first: Arc<Mutex<Option<RouteTable>>>,
    looks: Arc<Mutex<HashMap<RouteTarget, TargetState>>>,
    /// Calls whose answer is not awaited.
    later: Arc<Mutex<JoinSet<()>>>,
}

impl Missing {
    pub(crate) fn new(without: Without, to: Watched) -> Self {
        Self { without, to, first: Arc::default(), looks: Arc::default(), later: Arc::default() }
    }

    fn shown(&self, route: &mut Route, cluster: &ClusterId) {
        match self.without {
            Without::Owner => {
                if let Some(owner) = &mut route.owner {
                    owner.cluster = cluster.clone();
                }
            }
            Without::Defects => route.defect = None,
            _ => {}
        }
    }

    fn table(&self, mut table: RouteTable, cluster: &ClusterId) -> RouteTable {
        table.routes.iter_mut().for_each(|route| self.shown(route, cluster));
        if self.without == Without::Duplicates {
            let mut seen = Vec::new();
            table.routes.retain(|route| {
                let key = (route.destination.trunc(), route.target.clone());
                let is_new = !seen.contains(&key);
                seen.push(key);
                is_new
            });
        }
        if self.without == Without::Audit {
            return self.first.lock().get_or_insert(table).clone();
        }
        table
    }

    /// The changes that such a program asks for, each with the place of the one it stands for.
    fn changes(&self, changes: &[RouteChange]) -> Vec<(usize, RouteChange)> {
        let mut asked = Vec::new();
        for (place, change) in changes.iter().cloned().enumerate() {
            match (self.without, change) {
                (Without::Replace, RouteChange::Replace { old, new }) => {
                    asked.push((place, RouteChange::Delete(old)));
                    asked.push((place, RouteChange::Create(new)));
                }
                (Without::NewFirst, RouteChange::Create(new)) => {
                    let old = self.to.cloud.router().to(new.destination);
                    let old = old.first().filter(|route| !self.to.truth.is_foreign(&route.id));
                    asked.extend(
                        old.map(|old| (place, RouteChange::Delete(Box::new(old.describe())))),
                    );
                    asked.push((place, RouteChange::Create(new)));
                }
                (Without::Seen, RouteChange::Delete(old)) => {
                    let now = self.to.cloud.router().to(old.destination);
                    let now = now.first().map_or(old, |route| Box::new(route.describe()));
                    asked.push((place, RouteChange::Delete(now)));
                }
                (_, change) => asked.push((place, change)),
            }
        }
        asked
    }

    async fn applied(
        &self,
        cluster: &ClusterId,
        changes: &[RouteChange],
        base: Option<&str>,
        call: Call,
    ) -> Vec<(usize, Result<AppliedChange, CloudError>)> {
        let mut answers: HashMap<usize, Result<AppliedChange, CloudError>> = HashMap::new();
        for (place, change) in self.changes(changes) {
            // One after the other: a destination may have two.
            let one = [change];
            let mut answer = self.to.apply(cluster, &one, base, call);
            while let Some((_, mut answer)) = answer.next().await {
                match &mut answer {
                    Ok(applied) => {
                        applied.route.iter_mut().for_each(|route| self.shown(route, cluster));
                        if let (Without::Target, Some(route)) = (self.without, &mut applied.route) {
                            route.target = as_wanted(&one[0]).and_then(|route| route.target);
                        }
                    }
                    Err(_) if self.without == Without::Failures => {
                        answer = Ok(AppliedChange { route: as_wanted(&one[0]), version: None });
                    }
                    Err(_) => {}
                }
                answers.insert(place, answer);
            }
        }
        answers.into_iter().collect()
    }
}

/// The route after a change, if all went well.
fn as_wanted(change: &RouteChange) -> Option<Route> {
    let (RouteChange::Create(new) | RouteChange::Replace { new, .. }) = change else { return None };
    let target = RouteTarget::Node(new.node.name.clone());
    Some(Route { owner: Some(new.owner.clone()), ..Route::new(new.destination, target) })
}

fn gone(target: &RouteTarget) -> TargetState {
    let evidence = format!("{target} was not looked for");
    TargetState::Gone(AbsenceProof { method: ProofMethod::ById, evidence, request_id: None })
}

#[async_trait]
impl Routes for Missing {
    fn traits(&self) -> RouteTraits {
        let traits = Routes::traits(&self.to);
        match self.without {
            Without::Versions => RouteTraits { compares_version: false, ..traits },
            _ => traits,
        }
    }

    async fn list(&self, cluster: &ClusterId, call: Call) -> Result<RouteTable, CloudError> {
        let table = Routes::list(&self.to, cluster, call).await?;
        Ok(self.table(table, cluster))
    }

    fn apply<'a>(
        &'a self,
        cluster: &'a ClusterId,
        changes: &'a [RouteChange],
        base: Option<&'a str>,
        call: Call,
    ) -> Answers<'a, AppliedChange> {
        match self.without {
            Without::InFlight => together(async move {
                let (to, all, cluster) = (self.to.clone(), changes.to_vec(), cluster.clone());
                let base = base.map(str::to_owned);
                self.later.lock().spawn(async move {
                    let answers = to.apply(&cluster, &all, base.as_deref(), call);
                    answers.for_each(|_| async {}).await;
                });
                let early = || CloudError::new(ErrorKind::Unavailable, "not awaited");
                (0..changes.len()).map(|place| (place, Err(early()))).collect()
            }),
            Without::Replace
            | Without::NewFirst
            | Without::Seen
            | Without::Failures
            | Without::Defects
            | Without::Target
            | Without::Owner => {
                together(async move { self.applied(cluster, changes, base, call).await })
            }
            _ => self.to.apply(cluster, changes, base, call),
        }
    }

    fn find_targets<'a>(
        &'a self,
        targets: &'a [RouteTarget],
        call: Call,
    ) -> Answers<'a, TargetState> {
        let nodes = truth::nodes(&self.to.api);
        let answer = move |(place, answer): (usize, Result<TargetState, CloudError>)| {
            let target = &targets[place];
            let is_node = nodes.iter().any(|node| node.has(target));
            let answer = match self.without {
                Without::Look if !is_node => Ok(gone(target)),
                Without::Witnesses if is_node => Ok(TargetState::Exists),
                Without::SecondLook if !is_node => answer
                    .map(|state| self.looks.lock().entry(target.clone()).or_insert(state).clone()),
                _ => answer,
            };
            (place, answer)
        };
        self.to.find_targets(targets, call).map(answer).boxed()
    }
}
