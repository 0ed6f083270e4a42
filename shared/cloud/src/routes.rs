//! The routes capability: routes of the cloud's network to the pods of each node.
//!
//! What a provider promises:
//!
//! * **It decides nothing.** A list shows every route of the tables that it manages, also the
//!   routes of other clusters and of people. The caller decides which of them are its own, and
//!   [`Routes::apply`] changes exactly the routes that it is given.
//! * **It changes only what the caller saw.** A deletion or a replacement names the whole route. If
//!   the route now has another target or recorded owner, the change fails with [`ErrorKind::Busy`]
//!   and the route stays.
//! * **Each change is idempotent.** A route that is already as wanted, or already gone, is a
//!   success. So a call may be repeated, by any process.
//! * **One change per route, one answer per change.** A failed change does not affect the others,
//!   unless the cloud can only write the table as a whole.
//! * **It never waits for the cloud.** A change that the cloud is still making is answered with
//!   [`ErrorKind::Pending`]; the caller lists the table and sends the change again if it is still needed.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
    sync::Arc,
};

use async_trait::async_trait;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::{
    AbsenceProof, Answers, Call, CloudError, ClusterId, ErrorKind, IpFamily, NodeAddress,
    NodeIdentity, Owner, ProviderId,
};

/// The specifics of a provider's routes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteTraits {
    /// The families of destinations that the tables take.
    pub families: Vec<IpFamily>,
    /// True if a destination may have several targets. Then a new target is added before the old
    /// one is removed.
    pub several_targets: bool,
    /// True if [`RouteChange::Replace`] is one step of the cloud. If not, the destination has no
    /// route for a moment.
    pub replaces: bool,
    /// True if the cloud compares [`RouteTable::version`] when it writes.
    pub compares_version: bool,
    /// True if a node needs a provider ID before it can be a target.
    pub target_ids: bool,
    /// True if a node needs an address of the destination's family before it can be a target.
    pub target_addresses: bool,
    /// The largest number of changes in one call; at least 1. Targets may be looked up in any
    /// number.
    pub max_batch: usize,
}

impl Default for RouteTraits {
    fn default() -> Self {
        Self {
            families: vec![IpFamily::V4, IpFamily::V6],
            several_targets: false,
            replaces: false,
            compares_version: false,
            target_ids: true,
            target_addresses: false,
            max_batch: 100,
        }
    }
}

/// Where a route sends its traffic, as the cloud says it. The caller finds the node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RouteTarget {
    /// The address of the next hop.
    Address(IpAddr),
    /// An instance.
    Instance(ProviderId),
    /// The node of this name.
    Node(String),
    /// A target that the cloud itself shows as gone ("blackhole"), with a text that names it.
    Blackhole(String),
}

impl fmt::Display for RouteTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Instance(id) => id.fmt(f),
            Self::Node(name) => f.write_str(name),
            Self::Blackhole(name) => write!(f, "a blackhole ({name})"),
        }
    }
}

/// A route as the cloud shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Its ID in the cloud, if routes have one there.
    pub id: Option<String>,
    /// The packets that it takes. Host bits have no meaning.
    pub destination: IpNet,
    /// Where it sends the packets. `None` for a route that drops them.
    pub target: Option<RouteTarget>,
    /// The owner recorded with it: the Node, without a namespace. `None` if the cloud does not
    /// record owners, and for a route that was made by others.
    pub owner: Option<Owner>,
    /// The reason why it exists but does not carry traffic, in the cloud's words: `the port of
    /// 10.0.0.4 does not allow 10.244.3.0/24`. The next [`RouteChange::Create`] of the same route
    /// repairs it if the cloud lets it.
    pub defect: Option<String>,
}

impl Route {
    /// Creates a route without ID, owner and defect.
    pub fn new(destination: IpNet, target: RouteTarget) -> Self {
        Self { id: None, destination, target: Some(target), owner: None, defect: None }
    }
}

/// The routes of all tables that the provider manages, read at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteTable {
    /// The routes that could be read, also foreign ones.
    pub routes: Vec<Route>,
    /// Entries that could not be parsed, one line each. They never invalidate the rest.
    pub malformed: Vec<String>,
    /// Changes with every write. `None` if the cloud has no such value.
    pub version: Option<String>,
    /// How many routes can be added before a quota is reached, if the cloud says so.
    pub room: Option<u32>,
}

/// A route to create. The provider selects the target among the node's IDs and addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantedRoute {
    /// The owner to record: the Node, without a namespace.
    pub owner: Owner,
    /// The node's pod CIDR, without host bits.
    pub destination: IpNet,
    /// The node.
    pub node: NodeIdentity,
    /// The node's addresses.
    pub addresses: Vec<NodeAddress>,
}

/// One change of the table. A change that creates a route is cheap to clone, because a burst of
/// nodes causes thousands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RouteChange {
    /// Adds a route, or repairs its defect. An existing route keeps its recorded owner. If the
    /// destination has another target, and may have only one, this fails with
    /// [`ErrorKind::Conflict`] and changes nothing.
    Create(Arc<WantedRoute>),
    /// Gives a destination another target. Only for clouds where a destination has one target. If
    /// the old route is gone, the new one is created.
    Replace {
        /// The route as it was listed.
        old: Box<Route>,
        /// The route to be, of the same destination. Otherwise this fails with
        /// [`ErrorKind::Invalid`].
        new: Arc<WantedRoute>,
    },
    /// Removes a route.
    Delete(Box<Route>),
}

impl RouteChange {
    /// Returns the destination that it changes.
    pub fn destination(&self) -> IpNet {
        match self {
            Self::Create(new) | Self::Replace { new, .. } => new.destination.trunc(),
            Self::Delete(old) => old.destination.trunc(),
        }
    }
}

/// The outcome of one change that succeeded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppliedChange {
    /// The route after the change. `None` after a deletion.
    pub route: Option<Route>,
    /// The version of the table after the change, so that the caller does not mistake its own write
    /// for another client's. Of the answers of one call, the last one has the newest version.
    pub version: Option<String>,
}

/// The existence of a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TargetState {
    /// An instance or port with this ID, address or name exists, in any project.
    Exists,
    /// It does not exist, with the proof.
    Gone(AbsenceProof),
}

/// Returns the answers to those changes of one call whose destination an earlier change has
/// already, by their places. Each answer is [`ErrorKind::Invalid`].
pub fn repeated_destinations(changes: &[RouteChange]) -> BTreeMap<usize, CloudError> {
    let mut seen = BTreeSet::new();
    let places = changes.iter().map(RouteChange::destination).enumerate();
    places
        .filter(|(_, destination)| !seen.insert(*destination))
        .map(|(place, destination)| {
            let what = "an earlier change of this call has the same destination";
            let error = CloudError::new(ErrorKind::Invalid, what);
            (place, error.about(destination.to_string()))
        })
        .collect()
}

/// Routes to the nodes' pod CIDRs.
///
/// In one call of [`apply`](Self::apply) a destination has one change. The others of the same
/// destination change nothing and get [`ErrorKind::Invalid`] ([`repeated_destinations`]), because
/// their order would decide.
#[async_trait]
pub trait Routes: Send + Sync {
    /// Returns the specifics of these routes. Cheap, makes no request, and may change with the
    /// provider's configuration.
    fn traits(&self) -> RouteTraits;

    /// Reads all routes, page by page as the cloud requires.
    async fn list(&self, cluster: &ClusterId, call: Call) -> Result<RouteTable, CloudError>;

    /// Changes routes, with as few requests as the cloud allows. `base` is the version of the
    /// table that the changes were decided on: where [`RouteTraits::compares_version`] is set and
    /// the table has another one, each change fails with [`ErrorKind::Busy`], and nothing is
    /// changed. A table without room fails with [`ErrorKind::QuotaExceeded`] for the routes that
    /// do not fit.
    fn apply<'a>(
        &'a self,
        cluster: &'a ClusterId,
        changes: &'a [RouteChange],
        base: Option<&'a str>,
        call: Call,
    ) -> Answers<'a, AppliedChange>;

    /// Finds out whether targets exist, anywhere in the networks of the tables: a route to a target
    /// that exists may belong to another owner. An answer of the cloud that is empty for all of
    /// them is an error, not a proof.
    fn find_targets<'a>(
        &'a self,
        targets: &'a [RouteTarget],
        call: Call,
    ) -> Answers<'a, TargetState>;
}
