//! The load balancers capability: layer-4 front ends with the cluster's nodes behind them.
//!
//! What a provider promises:
//!
//! * **It never waits for the cloud.** A call makes at most one change of each load balancer, then
//!   answers [`Progress::InProgress`] if the cloud is still working or more changes follow. The
//!   caller calls again. A provider does not keep a plan in memory: the remaining work follows from
//!   what the cloud shows, so another process can continue.
//! * **It finds before it creates.** Whatever a call creates carries its [`Owner`], and each call
//!   looks for it first. So a call may be repeated, by any process, from any state.
//! * **It changes only what belongs to its owner.** A load balancer is [`Title::Ours`] by the
//!   recorded owner, never by name.
//! * **It waits for its turn.** While the cloud works on a load balancer, a call about it changes
//!   nothing and answers [`Progress::InProgress`] or [`ErrorKind::Busy`](crate::ErrorKind::Busy).
//! * **It asks before it replaces.** A new load balancer has another address, and a wrong answer of
//!   the cloud would replace all of them. So without [`Wanted::may_replace`] a provider does not
//!   replace a load balancer that is gone or has failed, and answers [`Progress::Lost`].
//! * **Members and configuration are separate.** [`LoadBalancers::set_members`] changes nothing
//!   else, and works while the configuration is wrong.
//! * **The state decides, not the digest.** The actual and the wanted configuration are compared
//!   completely. A missing digest, or one of another version, does not cause a write; the new one
//!   is stored with the next change.
//! * **Two load balancers of one owner**: where the cloud cannot refuse the write of a former
//!   leader, two may be created. Lists show both; the caller decides which one stays.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{
    AbsenceProof, Answers, Call, CloudError, ClusterId, Digest, ErrorKind, FrontEnd,
    LoadBalancerTraits, Member, Members, MembersSet, NodeSelector, Owner, Pool, Protocol,
};

/// The ownership of a load balancer, according to its record in the cloud.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Title {
    /// It belongs to this cluster: [`LoadBalancer::owner`] is complete and names the cluster's UID.
    Ours,
    /// It was made for a cluster of this name by another controller, or before a cluster was
    /// rebuilt. It is changed only after it has been adopted.
    Adoptable {
        /// The evidence.
        why: String,
    },
    /// Several owners have ports on it. It is never deleted on behalf of one of them.
    Shared {
        /// The number of other owners.
        others: u32,
    },
    /// It belongs to another owner.
    Foreign,
}

/// The state that a load balancer must leave before it is as wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// The state that it waits for, in the cloud's words: `PENDING_UPDATE: pool 2 of 3`.
    pub what: String,
    /// How long to wait before looking again.
    pub check_after: Duration,
    /// The ID of the load balancer, once it has one.
    pub id: Option<String>,
    /// The cloud's ID of the last request.
    pub request_id: Option<String>,
    /// True if this call has made a change. If not, it waits for the cloud. Always false in a list.
    pub changed: bool,
}

/// How far a call has come with one load balancer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Progress<T> {
    /// It is as wanted. A load balancer is as read with [`Depth::Members`].
    Done(T),
    /// The cloud works on it, or more changes will follow: list it, and call again once it is
    /// [`Phase::Ready`].
    InProgress(Waiting),
    /// Another controller of this cloud is responsible for it, for this reason. The Service keeps
    /// its finalizer and its status.
    Elsewhere(String),
    /// The call has changed nothing because the provider could not see the members, for this
    /// reason: `pool 2 has no member that shows its port`. [`LoadBalancers::ensure`] finds out
    /// whether the load balancer is as wanted. Only [`LoadBalancers::set_members`] answers this.
    NotSeen(String),
    /// The call has changed nothing because only a new load balancer helps, and
    /// [`Wanted::may_replace`] is false. Only [`LoadBalancers::ensure`] answers this.
    Lost(Loss),
}

/// The reason why a load balancer cannot be used any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// The reason, one line: `GET /v2/lbaas/loadbalancers/1a2b: 404`.
    pub why: String,
    /// True if the cloud has answered a request for exactly the load balancer in [`Wanted::known`]
    /// with its own "not found", and shows no other one of this owner. False if it exists and has
    /// failed.
    pub is_gone: bool,
}

/// Who can repair a failed load balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cure {
    /// The next [`LoadBalancers::ensure`], which repairs or replaces it and keeps its addresses.
    Ensure,
    /// A person.
    Person,
}

/// The state of a load balancer in the cloud.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// It can be changed.
    Ready,
    /// The cloud works on it.
    Pending(Waiting),
    /// It has failed.
    Failed {
        /// The cloud's words.
        why: String,
        /// Who can repair it.
        cure: Cure,
    },
}

/// How traffic to an address arrives at the nodes: `status.loadBalancer.ingress[].ipMode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum IpMode {
    /// With the load balancer's address as its destination. The API server's default.
    #[default]
    #[serde(rename = "VIP")]
    Vip,
    /// With the node's address as its destination.
    Proxy,
}

/// Where clients reach a load balancer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IngressAddress {
    /// An address.
    Ip(IpAddr),
    /// A DNS name.
    Hostname(String),
}

/// One entry of `status.loadBalancer.ingress`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ingress {
    /// Where.
    pub address: IngressAddress,
    /// How traffic arrives. Ignored for a DNS name.
    pub ip_mode: IpMode,
    /// The ports that failed, with a reason in the form of a Kubernetes condition (`QuotaExceeded`,
    /// `example.com/NoListener`). Empty if no port failed.
    pub failed_ports: Vec<FailedPort>,
}

/// A port that does not work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedPort {
    /// The port.
    pub port: u16,
    /// Its protocol.
    pub protocol: Protocol,
    /// The reason.
    pub error: String,
}

/// A remark of the provider about a load balancer, for an event and a condition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Note {
    /// A reason in CamelCase.
    pub reason: String,
    /// One line.
    pub message: String,
    /// True if the user should act.
    pub warning: bool,
}

/// A load balancer as the cloud shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadBalancer {
    /// Its ID in the cloud.
    pub id: String,
    /// Its name there.
    pub name: String,
    /// The owner recorded with it. For a [`Title::Adoptable`] or [`Title::Shared`] load balancer
    /// that this program has not made, the Service that it was made for; the UIDs are empty if only
    /// the names are known.
    pub owner: Option<Owner>,
    /// Its ownership.
    pub title: Title,
    /// The digest of the configuration that was applied completely. `None` if the provider does not
    /// store it, or while the configuration is applied in part. During a creation the digest may
    /// exist before the last part: the caller trusts the digest of a load balancer that was
    /// complete once.
    pub digest: Option<Digest>,
    /// Its state.
    pub phase: Phase,
    /// Changes with every write to it, by any client. `None` if the cloud has no
    /// such value.
    pub version: Option<String>,
    /// Its members as far as the cloud knows them ([`Member::is_shown_as`]). `None` unless it was
    /// read with [`Depth::Members`]. Many load balancers with the same members share one list.
    pub members: Option<Arc<[Member]>>,
    /// The members by port: one entry for each port with a pool. A port without [`member_port`]
    /// should not have any. `None` unless it was read with [`Depth::Members`], or if the provider
    /// does not know them. After a creation that the cloud has confirmed, a provider may show what
    /// it has created in a [`Depth::Summary`] as well, until it changes the load balancer: this
    /// saves the caller a full look.
    ///
    /// [`member_port`]: crate::FrontEndPort::member_port
    pub pools: Option<Vec<Pool>>,
    /// Where clients reach it. In a list it may be empty because a list does not show it: only an
    /// answer of [`LoadBalancers::ensure`] proves that the load balancer has no address.
    pub ingress: Vec<Ingress>,
    /// Annotations to set on the Service, or with `None` to remove from it.
    pub annotations: BTreeMap<String, Option<String>>,
    /// Remarks. A list that does not show [`Self::ingress`] need not show them.
    pub notes: Vec<Note>,
    /// How long it has existed, if the cloud says so.
    pub age: Option<Duration>,
    /// The cost of keeping it, in the provider's words: `amphora with floating IP`.
    pub cost: Option<String>,
}

impl LoadBalancer {
    /// Creates a load balancer with ID, name and owner, ready and without anything else.
    pub fn new(id: impl Into<String>, name: impl Into<String>, owner: Option<Owner>) -> Self {
        Self {
            id: id.into(),
            name: name.into(),
            title: if owner.is_some() { Title::Ours } else { Title::Foreign },
            owner,
            digest: None,
            phase: Phase::Ready,
            version: None,
            members: None,
            pools: None,
            ingress: Vec::new(),
            annotations: BTreeMap::new(),
            notes: Vec::new(),
            age: None,
            cost: None,
        }
    }
}

/// The load balancers to list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scope {
    /// All load balancers that the credentials can see. For orphans and adoption.
    All,
    /// The load balancers with an owner in this cluster.
    Cluster,
    /// The load balancers with these IDs. One that is missing in the answer does not exist or is
    /// not visible.
    Ids(Vec<String>),
}

/// How much of each load balancer to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Depth {
    /// The fields that the cloud's list shows.
    #[default]
    Summary,
    /// Also reads the members, and whether listeners and pools are as the digest says. May cost a
    /// request for each load balancer.
    Members,
}

/// The answer of a list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadBalancerList {
    /// The load balancers that could be read.
    pub load_balancers: Vec<LoadBalancer>,
    /// Entries that could not be parsed, one line each. A list with such entries does not prove
    /// that any load balancer is missing.
    pub malformed: Vec<String>,
}

/// One load balancer to create or to bring up to date.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Wanted {
    /// The configuration.
    pub front_end: Arc<FrontEnd>,
    /// The members. A new load balancer is created with them.
    pub members: Members,
    /// The ID of the load balancer as the Service has it. It says where to look, but does not prove
    /// ownership: if it exists and does not belong to the owner, the call fails with
    /// [`ErrorKind::Conflict`](crate::ErrorKind::Conflict) and does not create another one. Of two
    /// load balancers of one owner, this one is brought up to date, otherwise the oldest.
    pub known: Option<String>,
    /// The ID of a load balancer to adopt, if it is [`Title::Adoptable`] and the owner does not
    /// have one. This call only records its owner. If it already belongs to the owner, this is an
    /// ordinary call.
    pub adopt: Option<String>,
    /// The addresses that the Service shows to clients. A load balancer that is created again keeps
    /// them where the cloud can assign them.
    pub shown: Vec<IpAddr>,
    /// True if the provider may replace the load balancer in `known`: if that one does not exist,
    /// or has failed and nothing else repairs it. If false, the provider answers [`Progress::Lost`]
    /// in these cases. Ignored if `known` is `None`, and by a provider without
    /// [`LoadBalancerTraits::asks_before_replacing`].
    pub may_replace: bool,
}

/// The members of one existing load balancer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemberChange {
    /// The owner. The provider refuses to change a load balancer that belongs to another one.
    pub owner: Owner,
    /// The ID of the load balancer.
    pub id: String,
    /// The change.
    pub members: Members,
    /// The configuration that is applied, for providers whose interface needs it
    /// ([`LoadBalancerTraits::wants_service`]).
    pub front_end: Option<Arc<FrontEnd>>,
    /// The same as [`FrontEnd::settings`], also while the configuration is wrong: a setting may say
    /// which nodes may be members.
    pub settings: BTreeMap<String, String>,
}

/// A load balancer to delete.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Unwanted {
    /// The owner. The provider deletes only what belongs to it.
    pub owner: Owner,
    /// The ID of the load balancer, if it is known. It says where to look: if it exists and does
    /// not belong to the owner alone, the call fails with
    /// [`ErrorKind::Conflict`](crate::ErrorKind::Conflict) and deletes nothing.
    pub known: Option<String>,
    /// True if the load balancer in `known` is a second one of the same owner: only this one is
    /// deleted, and nothing that the other one uses. Refused if it is the only one.
    pub duplicate: bool,
    /// The same as [`FrontEnd::settings`]: a setting may say that an address should be kept. `None`
    /// if the Service is not known any more: the provider then keeps each address that can outlive
    /// its load balancer.
    pub settings: Option<BTreeMap<String, String>>,
    /// The same as [`FrontEnd::address`], if it is known: the provider keeps this address.
    pub address: Option<IpAddr>,
    /// The same as [`FrontEnd::service`].
    pub service: Option<Arc<str>>,
}

/// Returns the answers to those items of one call whose owner an earlier item has already, by their
/// places. Each answer is [`ErrorKind::Invalid`]. Owners are compared as by [`Owner::is`].
pub fn repeated<'a>(owners: impl IntoIterator<Item = &'a Owner>) -> BTreeMap<usize, CloudError> {
    let mut seen = BTreeSet::new();
    let second = |owner: &Owner| {
        let what = format!("an earlier load balancer of this call has the owner {owner}, too");
        CloudError::new(ErrorKind::Invalid, what).about("owner")
    };
    let places = owners.into_iter().enumerate();
    places
        .filter(|(_, owner)| !seen.insert((&owner.cluster.uid, &owner.uid)))
        .map(|(place, owner)| (place, second(owner)))
        .collect()
}

/// Layer-4 load balancers with the cluster's nodes as members.
///
/// In one call of [`ensure`](Self::ensure), [`set_members`](Self::set_members) or
/// [`delete`](Self::delete) an owner has one item. The others of the same owner change nothing and
/// get [`ErrorKind::Invalid`] ([`repeated`]), because their order would decide.
#[async_trait]
pub trait LoadBalancers: Send + Sync {
    /// Returns the specifics of these load balancers. Cheap, makes no request, and may change with
    /// the provider's configuration.
    fn traits(&self) -> LoadBalancerTraits;

    /// Selects the nodes that may be members of a load balancer with these settings
    /// ([`FrontEnd::settings`]). Cheap, makes no request. The controller sends a label change of a
    /// node only if a selector asks for that label. Without this function each label counts, if
    /// [`LoadBalancerTraits::member_labels`] is set.
    fn selector(&self, _settings: &BTreeMap<String, String>) -> NodeSelector {
        match self.traits().member_labels {
            true => NodeSelector::opaque(),
            false => NodeSelector::default(),
        }
    }

    /// Reads load balancers, page by page as the cloud requires. Called only if
    /// [`LoadBalancerTraits::lists`] is set.
    async fn list(
        &self,
        cluster: &ClusterId,
        scope: Scope,
        depth: Depth,
        call: Call,
    ) -> Result<LoadBalancerList, CloudError>;

    /// Creates load balancers, or brings them up to date, by at most one change of each. A failed
    /// load balancer is repaired ([`Cure::Ensure`]), or its item fails with
    /// [`ErrorKind::Conflict`](crate::ErrorKind::Conflict) ([`Cure::Person`]).
    fn ensure<'a>(
        &'a self,
        wanted: &'a [Wanted],
        call: Call,
    ) -> Answers<'a, Progress<LoadBalancer>>;

    /// Returns the changes that [`LoadBalancers::ensure`] would make until each load balancer is as
    /// wanted, one line each. Changes nothing. The answer is `None` if another controller is
    /// responsible.
    fn preview<'a>(&'a self, wanted: &'a [Wanted], call: Call) -> Answers<'a, Vec<String>>;

    /// Changes members, and nothing else. `Done` contains the state after this write, so that the
    /// caller does not mistake its own write for another client's.
    fn set_members<'a>(
        &'a self,
        changes: &'a [MemberChange],
        call: Call,
    ) -> Answers<'a, Progress<MembersSet>>;

    /// Deletes load balancers and everything that was created for them, also the remains of a
    /// partial deletion. The proof says that nothing of this owner exists any more: the cloud's own
    /// answer about the ID, or an empty list by owner. For a duplicate it says that this one does
    /// not.
    fn delete<'a>(
        &'a self,
        unwanted: &'a [Unwanted],
        call: Call,
    ) -> Answers<'a, Progress<AbsenceProof>>;
}
