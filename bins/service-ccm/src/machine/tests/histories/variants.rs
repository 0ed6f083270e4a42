//! Protections that are removed: the world changes the machine's requests or the answers, as if the
//! protection did not exist. Each variant must break the rule of its protection.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ccm_cloud::{
    AbsenceProof, Depth, LoadBalancer, LoadBalancerList, Member, Members, Owner, Progress,
    ProofMethod, Unwanted, Waiting,
};
use ccm_controller::brake::Limit;
use ccm_objects::{Service, Shared as Name};
use ccm_tests::seeds::{breaks, search_each};

use super::{
    play,
    world::{Kind, World},
};
use crate::{
    machine::event::{Due, Parameters},
    plan::RELEASE_APPROVED,
};

/// The most histories of one search.
const SEARCHED: u64 = 100;

/// A protection that is taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Without {
    /// Any number of members may leave.
    Brake,
    /// A new leader knows the departures of the last one.
    Memory,
    /// Members of which the machine knows nothing stay.
    UnknownMembersStay,
    /// The last member stays.
    LastMember,
    /// The finalizer comes before the load balancer.
    FinalizerFirst,
    /// The finalizer stays until the load balancer is gone.
    ProofOfAbsence,
    /// The machine sees the end of a deletion.
    EndOfDeletion,
    /// A load balancer belongs to the Service of its UID.
    OwnershipByUid,
    /// Services of other classes are left alone.
    Classes,
    /// The machine sees the configuration that the cloud has.
    LookAtConfiguration,
    /// Of the load balancers of one owner all are seen.
    Duplicates,
    /// Of two load balancers of one owner the one that clients use stays.
    AddressOfDuplicates,
    /// The machine polls load balancers on which the cloud works.
    Polls,
    /// Load balancers without a Service are seen.
    Orphans,
    /// Only those that exist are reported.
    TrueOrphans,
    /// Versions show what has not changed.
    Versions,
    /// Addresses that have changed are seen.
    NewAddresses,
    /// A load balancer that is gone is seen to be gone.
    Absence,
    /// Changes of members are made.
    MemberCalls,
    /// The digest that the cloud stores is seen.
    Digests,
    /// No more load balancers are replaced than the budget allows.
    Replacements,
    /// No namespace has more load balancers than its room.
    Room,
    /// No more load balancers without a Service are deleted than the budget allows, also over leaders.
    OrphanBudget,
    /// A call that the cloud has refused is tried again when something has changed.
    News,
    /// Load balancers stay that only the settings exclude.
    HeldReleases,
    /// The load balancer of a Service that has got another class goes.
    Releases,
    /// The labels by which Services select count.
    Labels,
    /// The oldest Service comes first.
    Turns,
    /// Marks of nodes that are gone count.
    Marks,
    /// A write that another client takes back is repeated seldom.
    Repeats,
    /// An approval on the Lease reaches what is held.
    Approvals,
    /// A part of the memory is lost when it is written and read.
    Checkpoint,
}

/// The load balancers of earlier lists, for variants that show them again.
#[derive(Default)]
pub(super) struct Shown {
    first: BTreeMap<String, LoadBalancer>,
    lists: u64,
}

/// Changes the settings of a variant.
pub(super) fn change(without: Option<Without>, parameters: &mut Parameters) {
    match without {
        Some(Without::Brake | Without::LastMember) => {
            parameters.budget.limit = Limit::Count(1000);
        }
        Some(Without::Room) => parameters.most_per_namespace = 0,
        Some(Without::Classes) => parameters.classes.served = vec!["theirs".to_owned()],
        _ => {}
    }
}

impl World {
    /// Changes a Service to what such a program sees of it.
    pub(super) fn lack(&self, due: &mut Due) {
        let Some(service) = &mut due.service else { return };
        let details = |service: &mut Arc<Service>| {
            let mut changed = Service::clone(service);
            let details = changed.details.take();
            details.map(|details| (changed, details))
        };
        match self.without {
            Some(Without::HeldReleases) => {
                if let Some((changed, mut details)) = details(service) {
                    details.annotations.insert(RELEASE_APPROVED.into(), "yes".into());
                    *service = Arc::new(Service { details: Some(details), ..changed });
                }
            }
            Some(Without::Turns) => {
                for service in due.neighbours.iter_mut().chain([service]) {
                    if let Some((changed, mut details)) = details(service) {
                        details.created = None;
                        *service = Arc::new(Service { details: Some(details), ..changed });
                    }
                }
            }
            _ => {}
        }
    }

    /// Returns the members that such a program asks for.
    pub(super) fn members(&self, uid: &str, members: &Members) -> Members {
        let own = self.cloud.of(uid);
        let there = own.iter().filter_map(|id| self.cloud.balancers.get(id));
        let there = there.flat_map(|one| one.members.values().cloned());
        let has_node = |one: &Member| self.nodes.contains_key(&*one.node);
        match self.without {
            Some(Without::UnknownMembersStay) => {
                let stays = |one: &Member| members.present.iter().any(|it| it.node == one.node);
                let absent: Vec<Member> = there.filter(|one| !stays(one)).collect();
                Members { absent: absent.into(), ..members.clone() }
            }
            Some(Without::LastMember) if !members.present.iter().any(has_node) => {
                Members { present: Arc::default(), absent: there.collect() }
            }
            Some(Without::MemberCalls) if !own.is_empty() => {
                Members { present: there.collect(), absent: Arc::default() }
            }
            _ => members.clone(),
        }
    }

    /// Returns the load balancer that such a program asks to delete.
    pub(super) fn unwanted(&self, unwanted: &Unwanted) -> Unwanted {
        let mut unwanted = unwanted.clone();
        if self.without == Some(Without::AddressOfDuplicates) && unwanted.duplicate {
            let mut others = self.cloud.of(&unwanted.owner.uid);
            others.retain(|id| Some(id) != unwanted.known.as_ref());
            unwanted.known = others.pop().or(unwanted.known);
        }
        unwanted
    }

    /// Returns true if such a program does not delete the load balancer of a Service of this name.
    pub(super) fn keeps(&self, name: &Name) -> bool {
        let is_deleted = |service: &Arc<Service>| service.deleting;
        self.without == Some(Without::Releases) && !self.api.get(name).is_some_and(is_deleted)
    }

    /// Returns the answer to a deletion as such a program understands it.
    pub(super) fn deleted(&self, answer: Progress<AbsenceProof>) -> Progress<AbsenceProof> {
        match (self.without, answer) {
            (Some(Without::ProofOfAbsence), Progress::InProgress(waiting)) => {
                Progress::Done(AbsenceProof {
                    method: ProofMethod::ById,
                    evidence: waiting.what,
                    request_id: None,
                    kept: None,
                })
            }
            (Some(Without::EndOfDeletion), Progress::Done(proof)) => {
                Progress::InProgress(Waiting {
                    what: proof.evidence,
                    check_after: std::time::Duration::from_secs(10),
                    id: None,
                    request_id: None,
                    changed: true,
                })
            }
            (_, answer) => answer,
        }
    }

    /// Returns a list as such a program sees it.
    pub(super) fn list(&mut self, ids: Option<&[String]>, depth: Depth) -> LoadBalancerList {
        let mut list = self.cloud.list(ids, depth, self.now);
        let all = &mut list.load_balancers;
        match self.without {
            Some(Without::OwnershipByUid) => all.iter_mut().for_each(|one| self.claim(one)),
            Some(Without::LookAtConfiguration) => {
                for one in all {
                    one.digest = self.asked.get(&one.id).copied();
                    one.version = None;
                }
            }
            Some(Without::Digests) => {
                for one in all {
                    one.digest = None;
                }
            }
            Some(Without::Duplicates) => {
                all.sort_by_key(|one| std::cmp::Reverse(one.age));
                let mut seen = BTreeSet::new();
                let uid = |one: &LoadBalancer| one.owner.as_ref().map(|owner| owner.uid.clone());
                all.retain(|one| seen.insert(uid(one)));
            }
            Some(Without::Versions) => {
                self.shown.lists += 1;
                let version = self.shown.lists.to_string();
                for one in all {
                    one.version = Some(version.clone());
                }
            }
            Some(Without::Orphans) => {
                let has = |owner: &Owner| self.api.contains_key(&*owner.to_string());
                all.retain(|one| one.owner.as_ref().is_none_or(has));
            }
            Some(Without::TrueOrphans) if ids.is_none() => {
                let owner = all.first().and_then(|one| one.owner.clone());
                let owner = owner.map(|owner| Owner { uid: "phantom".to_owned(), ..owner });
                all.push(LoadBalancer::new("lb-phantom", "phantom", owner));
            }
            Some(Without::NewAddresses) => {
                for one in all {
                    self.shown.put_first_address(one);
                }
            }
            Some(Without::Absence) if ids.is_none() => self.shown.add_absent(all),
            _ => {}
        }
        list
    }

    /// Takes a load balancer for the load balancer of the Service of the same name.
    fn claim(&self, balancer: &mut LoadBalancer) {
        let Some(owner) = &mut balancer.owner else { return };
        if let Some(service) = self.api.get(&*owner.to_string()) {
            owner.uid = service.uid.to_string();
        }
    }
}

impl Shown {
    fn put_first_address(&mut self, balancer: &mut LoadBalancer) {
        let Some(owner) = &balancer.owner else { return };
        let first = self.first.entry(owner.uid.clone()).or_insert_with(|| balancer.clone());
        balancer.ingress.clone_from(&first.ingress);
    }

    fn add_absent(&mut self, all: &mut Vec<LoadBalancer>) {
        for one in &*all {
            self.first.insert(one.id.clone(), one.clone());
        }
        let absent = self.first.values().filter(|first| !all.iter().any(|one| one.id == first.id));
        let absent: Vec<_> = absent.cloned().collect();
        all.extend(absent);
    }
}

/// Returns the first history of a search. Few histories need some of the protections: the search
/// begins at one that does.
const fn first(without: Without) -> u64 {
    match without {
        Without::Memory => 45,
        Without::UnknownMembersStay => 73,
        Without::LookAtConfiguration => 129,
        Without::OrphanBudget => 26,
        Without::LastMember | Without::Turns => 10,
        Without::Duplicates => 11,
        Without::Room => 7,
        Without::MemberCalls | Without::Labels => 5,
        Without::Orphans | Without::Absence => 3,
        Without::Brake | Without::Polls => 2,
        Without::Versions | Without::Replacements => 2,
        Without::OwnershipByUid | Without::Marks | Without::Approvals => 1,
        _ => 0,
    }
}

/// A rule that no variant breaks finds nothing.
#[test]
fn each_variant_breaks_its_rule() {
    let variants = [
        (Without::Brake, Kind::Nodes, "Loss"),
        (Without::Memory, Kind::Nodes, "Loss"),
        (Without::UnknownMembersStay, Kind::Nodes, "Loss"),
        (Without::LastMember, Kind::Nodes, "LastMember"),
        (Without::FinalizerFirst, Kind::Faults, "Protected"),
        (Without::ProofOfAbsence, Kind::Faults, "Released"),
        (Without::ProofOfAbsence, Kind::Nodes, "Events"),
        (Without::EndOfDeletion, Kind::Faults, "Calls"),
        (Without::OwnershipByUid, Kind::Others, "Foreign"),
        (Without::Classes, Kind::Faults, "OtherClass"),
        (Without::LookAtConfiguration, Kind::Others, "Converges"),
        (Without::Duplicates, Kind::Others, "Converges"),
        (Without::AddressOfDuplicates, Kind::Others, "Address"),
        (Without::Polls, Kind::Faults, "Soon"),
        (Without::Orphans, Kind::Others, "Reported"),
        (Without::TrueOrphans, Kind::Others, "Reported"),
        (Without::Versions, Kind::Others, "Quiet"),
        (Without::Digests, Kind::Nodes, "Quiet"),
        (Without::NewAddresses, Kind::Others, "Shown"),
        (Without::Absence, Kind::Others, "Claims"),
        (Without::MemberCalls, Kind::Nodes, "Leaves"),
        (Without::Replacements, Kind::Lies, "Replaced"),
        (Without::Room, Kind::Nodes, "Room"),
        (Without::OrphanBudget, Kind::Others, "Orphans"),
        (Without::Checkpoint, Kind::Faults, "Plain"),
        (Without::News, Kind::Refusals, "Soon"),
        (Without::Releases, Kind::Settings, "Class"),
        (Without::HeldReleases, Kind::Settings, "Excluded"),
        (Without::Labels, Kind::Labels, "Converges"),
        (Without::Turns, Kind::Nodes, "Turn"),
        (Without::Marks, Kind::Nodes, "Marked"),
        (Without::Repeats, Kind::Others, "Writes"),
        (Without::Approvals, Kind::Lies, "Approved"),
    ];
    search_each(&variants, SEARCHED, first, |without, kind, rule, seed| {
        breaks(rule, || play(kind, Some(without), seed))
    });
}
