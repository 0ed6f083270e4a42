//! Variants of the program without one protection. Each changes what the program asks of the cloud,
//! or what it learns from it, as if the protection were not there.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use ccm_cloud::{
    AbsenceProof, Answers, Call, CloudError, ClusterId, Depth, Digest, ErrorKind, LoadBalancer,
    LoadBalancerList, LoadBalancerTraits, LoadBalancers, Member, MemberChange, Members, MembersSet,
    NodeSelector, Owner, Progress, ProofMethod, Scope, Title, Unwanted, Waiting, Wanted,
};
use ccm_sim::apiserver::PatchKind;
use ccm_tests::variants::together;
use futures::StreamExt as _;
use parking_lot::Mutex;
use serde_json::json;

use crate::watched::Watched;

/// A protection that is taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Without {
    /// The last member of a load balancer leaves as well.
    LastMember,
    /// Members of which the program knows nothing leave if they are not eligible.
    UnknownMembersStay,
    /// The finalizer comes after the load balancer.
    FinalizerFirst,
    /// The finalizer goes when the deletion has begun.
    ProofOfAbsence,
    /// A load balancer belongs to the Service of the same name.
    OwnershipByUid,
    /// The digest of the last call stands for what the cloud has.
    LookAtConfiguration,
    /// The Services' own word stands for what the cloud has.
    Lists,
    /// Of the load balancers of one owner only the oldest is seen.
    Duplicates,
    /// Of two load balancers of one owner the wrong one goes.
    AddressOfDuplicates,
    /// What the cloud works on is not looked at again.
    Poll,
    /// Load balancers without a Service are not reported.
    Orphans,
    /// The program reports an orphan that does not exist.
    TrueOrphans,
    /// The versions in lists do not show changes of other clients.
    Versions,
    /// The first address of a Service is taken for the address of its load balancer.
    NewAddresses,
    /// A load balancer that existed once is taken to exist.
    Absence,
    /// The program does not see the end of a deletion.
    EndOfDeletion,
    /// Changes of members are confirmed and not made.
    MemberCalls,
}

/// The cloud as such a variant reaches it.
#[derive(Clone)]
pub(crate) struct Missing {
    without: Without,
    to: Watched,
    /// The digest of the last call, by the UID of the owner.
    digests: Arc<Mutex<HashMap<String, Digest>>>,
    /// The load balancers as first seen, by the UID of the owner.
    first: Arc<Mutex<HashMap<String, LoadBalancer>>>,
    /// The number of list calls.
    lists: Arc<AtomicUsize>,
}

impl Missing {
    pub(crate) fn new(without: Without, to: Watched) -> Self {
        Self { without, to, digests: Arc::default(), first: Arc::default(), lists: Arc::default() }
    }

    /// The load balancers of this owner, the oldest first.
    fn ids(&self, owner: &Owner) -> Vec<String> {
        let mut all = self.to.cloud.balancers().of(owner);
        all.sort_by_key(|one| one.created);
        all.into_iter().map(|one| one.id).collect()
    }

    fn wanted(&self, mut wanted: Wanted) -> Wanted {
        let owner = &wanted.front_end.owner;
        self.digests.lock().insert(owner.uid.clone(), wanted.front_end.digest);
        if self.without == Without::FinalizerFirst && self.ids(owner).is_empty() {
            let none = json!({"metadata": {"finalizers": null}});
            let key = owner.to_string();
            self.to.api.patch("services", &key, "", PatchKind::Merge, none).ok();
        }
        wanted.members = self.members(owner, wanted.members);
        wanted
    }

    fn members(&self, owner: &Owner, members: Members) -> Members {
        let mut absent: Vec<Member> = members.absent.to_vec();
        let has_node = |one: &Member| self.to.api.get("nodes", &one.node).is_some();
        match self.without {
            Without::LastMember if !members.present.iter().any(has_node) => {
                absent.extend(members.present.iter().cloned());
                Members { present: Arc::default(), absent: absent.into() }
            }
            Without::UnknownMembersStay => {
                let named: BTreeSet<&str> =
                    members.present.iter().map(|one| one.node.as_str()).collect();
                let now = self.to.cloud.balancers().of(owner);
                let there = now.into_iter().flat_map(|one| one.members);
                absent = there.filter(|one| !named.contains(one.node.as_str())).collect();
                Members { absent: absent.into(), ..members }
            }
            _ => members,
        }
    }

    /// The members that a load balancer has, instead of the members that it should have.
    fn members_now(&self, owner: &Owner) -> Members {
        let now = self.to.cloud.balancers().of(owner);
        let there = now.into_iter().flat_map(|one| one.members);
        Members { present: there.collect(), absent: Arc::default() }
    }

    fn unwanted(&self, mut unwanted: Unwanted) -> Unwanted {
        if self.without == Without::AddressOfDuplicates && unwanted.duplicate {
            let mut others = self.ids(&unwanted.owner);
            others.retain(|id| Some(id) != unwanted.known.as_ref());
            unwanted.known = others.pop().or(unwanted.known);
        }
        unwanted
    }

    fn deleted(
        &self,
        answer: Result<Progress<AbsenceProof>, CloudError>,
    ) -> Result<Progress<AbsenceProof>, CloudError> {
        match answer {
            Ok(Progress::InProgress(waiting)) if self.without == Without::ProofOfAbsence => {
                Ok(Progress::Done(AbsenceProof {
                    method: ProofMethod::ById,
                    evidence: waiting.what,
                    request_id: None,
                }))
            }
            Ok(Progress::Done(proof)) if self.without == Without::EndOfDeletion => {
                Ok(Progress::InProgress(Waiting {
                    what: proof.evidence,
                    check_after: Duration::from_secs(10),
                    id: None,
                    request_id: None,
                    changed: true,
                }))
            }
            answer => answer,
        }
    }

    /// Gives the load balancer the address that its Service had first.
    fn with_first_address(&self, balancer: &mut LoadBalancer) {
        let Some(owner) = &balancer.owner else { return };
        if balancer.ingress.is_empty() {
            return;
        }
        let mut first = self.first.lock();
        let first = first.entry(owner.uid.clone()).or_insert_with(|| balancer.clone());
        balancer.ingress.clone_from(&first.ingress);
    }

    /// Adds the load balancers of earlier lists.
    fn add_absent(&self, list: &mut Vec<LoadBalancer>) {
        let mut first = self.first.lock();
        for one in &*list {
            if let Some(owner) = &one.owner {
                first.insert(owner.uid.clone(), one.clone());
            }
        }
        let has = |uid: &String| {
            let mut owners = list.iter().filter_map(|one| one.owner.as_ref());
            owners.any(|owner| owner.uid == *uid)
        };
        let absent: Vec<_> = first.iter().filter(|(uid, _)| !has(uid)).collect();
        list.extend(absent.into_iter().map(|(_, one)| one.clone()));
    }

    fn shown(&self, list: &mut Vec<LoadBalancer>, cluster: &ClusterId) {
        match self.without {
            Without::OwnershipByUid => list.iter_mut().for_each(|one| self.claim(one, cluster)),
            Without::LookAtConfiguration => {
                for one in list {
                    let owner = one.owner.as_ref().map(|owner| owner.uid.as_str());
                    one.digest = owner.and_then(|uid| self.digests.lock().get(uid).copied());
                    one.version = None;
                }
            }
            Without::Duplicates => {
                list.sort_by_key(|one| std::cmp::Reverse(one.age));
                let mut seen = BTreeSet::new();
                list.retain(|one| one.owner.as_ref().is_none_or(|it| seen.insert(it.uid.clone())));
            }
            Without::Versions => {
                let number = self.lists.fetch_add(1, Ordering::Relaxed);
                for one in list {
                    one.version = Some(number.to_string());
                }
            }
            Without::NewAddresses => list.iter_mut().for_each(|one| self.with_first_address(one)),
            Without::TrueOrphans => {
                let uid = "phantom".to_owned();
                let (namespace, name) = ("default".to_owned(), "phantom".to_owned());
                let owner = Owner { cluster: cluster.clone(), uid, namespace, name };
                let phantom = LoadBalancer::new("lb-phantom", "phantom", Some(owner));
                list.push(LoadBalancer { title: Title::Ours, ..phantom });
            }
            Without::Orphans => {
                let has_service = |owner: &Owner| self.to.service(owner).is_some();
                list.retain(|one| one.owner.as_ref().is_none_or(has_service));
            }
            _ => {}
        }
    }

    /// Takes a load balancer for that of the Service of the same name.
    fn claim(&self, balancer: &mut LoadBalancer, cluster: &ClusterId) {
        let Some(owner) = &mut balancer.owner else { return };
        if let Some(service) = self.to.api.get("services", &owner.to_string()) {
            owner.cluster = cluster.clone();
            owner.uid = service["metadata"]["uid"].as_str().unwrap().to_owned();
            balancer.title = Title::Ours;
        }
    }
}

#[async_trait]
impl LoadBalancers for Missing {
    fn traits(&self) -> LoadBalancerTraits {
        let traits = LoadBalancers::traits(&self.to);
        LoadBalancerTraits { lists: self.without != Without::Lists, ..traits }
    }

    fn selector(&self, settings: &BTreeMap<String, String>) -> NodeSelector {
        LoadBalancers::selector(&self.to, settings)
    }

    async fn list(
        &self,
        cluster: &ClusterId,
        scope: Scope,
        depth: Depth,
        call: Call,
    ) -> Result<LoadBalancerList, CloudError> {
        let scope = match (self.without, scope) {
            (Without::Poll, Scope::Ids(_)) if depth == Depth::Summary => {
                return Err(CloudError::new(ErrorKind::Unavailable, "there is no poll"));
            }
            (Without::OwnershipByUid, Scope::Cluster) => Scope::All,
            (_, scope) => scope,
        };
        let is_whole = scope == Scope::Cluster;
        let mut list = LoadBalancers::list(&self.to, cluster, scope, depth, call).await?;
        if self.without == Without::Absence && is_whole {
            self.add_absent(&mut list.load_balancers);
        }
        self.shown(&mut list.load_balancers, cluster);
        Ok(list)
    }

    fn ensure<'a>(&'a self, all: &'a [Wanted], call: Call) -> Answers<'a, Progress<LoadBalancer>> {
        together(async move {
            let all: Vec<Wanted> = all.iter().map(|one| self.wanted(one.clone())).collect();
            let mut answers: Vec<_> = self.to.ensure(&all, call).collect().await;
            for (_, answer) in &mut answers {
                if let (Without::NewAddresses, Ok(Progress::Done(one))) = (self.without, answer) {
                    self.with_first_address(one);
                }
            }
            answers
        })
    }

    fn preview<'a>(&'a self, all: &'a [Wanted], call: Call) -> Answers<'a, Vec<String>> {
        self.to.preview(all, call)
    }

    fn set_members<'a>(
        &'a self,
        all: &'a [MemberChange],
        call: Call,
    ) -> Answers<'a, Progress<MembersSet>> {
        together(async move {
            let mut all = all.to_vec();
            for change in &mut all {
                change.members = match self.without {
                    Without::MemberCalls => self.members_now(&change.owner),
                    _ => self.members(&change.owner, change.members.clone()),
                };
            }
            self.to.set_members(&all, call).collect().await
        })
    }

    fn delete<'a>(
        &'a self,
        all: &'a [Unwanted],
        call: Call,
    ) -> Answers<'a, Progress<AbsenceProof>> {
        together(async move {
            let all: Vec<Unwanted> = all.iter().map(|one| self.unwanted(one.clone())).collect();
            let answers = self.to.delete(&all, call);
            answers.map(|(at, answer)| (at, self.deleted(answer))).collect().await
        })
    }
}
