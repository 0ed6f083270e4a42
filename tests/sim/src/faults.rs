//! Fault injection for the simulated cloud.
//!
//! A [`Fault`] defines an effect, the calls it hits, and its duration. Several may be active
//! at once: delays add up, then the first other effect that applies decides.
//!
//! ```
//! use std::time::Duration;
//!
//! use ccm_sim::{cloud::Operation, faults::{FaultEffect, Fault, FaultPlan}};
//!
//! let plan = FaultPlan::seeded(7);
//! plan.add(Fault::new(FaultEffect::Throttle { retry_after: Some(Duration::from_secs(2)) }).on(Operation::Lookup).times(3));
//! plan.add(Fault::new(FaultEffect::Latency(Duration::from_millis(80))).lasting(Duration::from_secs(60)));
//! plan.add(Fault::new(FaultEffect::Unavailable).with_probability(0.05));
//! ```

mod plan;

use std::time::Duration;

use ccm_cloud::{CloudError, Cure, ErrorKind};
use rand::{Rng, rngs::StdRng};

pub use plan::{FaultId, FaultPlan};

/// The kinds of call that the simulated cloud answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// A lookup of up to 500 nodes.
    Lookup,
    /// One page of a list.
    List,
    /// A health check.
    Health,
    /// One page of a list of load balancers.
    ListLoadBalancers,
    /// A batch of load balancers to create or to bring up to date.
    EnsureLoadBalancers,
    /// A batch of load balancers whose changes are previewed.
    PreviewLoadBalancers,
    /// A batch of changes of members.
    SetMembers,
    /// A batch of load balancers to delete.
    DeleteLoadBalancers,
    /// One page of a list of routes.
    ListRoutes,
    /// A batch of changes of routes.
    ApplyRoutes,
    /// A lookup of up to 500 targets of routes.
    FindTargets,
}

impl Operation {
    /// Every operation.
    pub const ALL: [Self; 11] = [
        Self::Lookup,
        Self::List,
        Self::Health,
        Self::ListLoadBalancers,
        Self::EnsureLoadBalancers,
        Self::PreviewLoadBalancers,
        Self::SetMembers,
        Self::DeleteLoadBalancers,
        Self::ListRoutes,
        Self::ApplyRoutes,
        Self::FindTargets,
    ];

    /// Returns the name in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Lookup => "lookup_instances",
            Self::List => "list_instances",
            Self::Health => "health",
            Self::ListLoadBalancers => "list_load_balancers",
            Self::EnsureLoadBalancers => "ensure_load_balancers",
            Self::PreviewLoadBalancers => "preview_load_balancers",
            Self::SetMembers => "set_members",
            Self::DeleteLoadBalancers => "delete_load_balancers",
            Self::ListRoutes => "list_routes",
            Self::ApplyRoutes => "apply_routes",
            Self::FindTargets => "find_route_targets",
        }
    }

    /// Returns true if it changes anything in the cloud.
    pub const fn writes(self) -> bool {
        matches!(
            self,
            Self::EnsureLoadBalancers
                | Self::SetMembers
                | Self::DeleteLoadBalancers
                | Self::ApplyRoutes
        )
    }

    /// Returns true if it is about routes.
    pub const fn is_about_routes(self) -> bool {
        matches!(self, Self::ListRoutes | Self::ApplyRoutes | Self::FindTargets)
    }
}

/// The effect of a fault on a call.
#[derive(Clone, Debug, PartialEq)]
pub enum FaultEffect {
    /// It takes this much longer.
    Latency(Duration),
    /// It takes longer by a random time between the two.
    LatencyBetween(Duration, Duration),
    /// A lookup takes this long for each node: the cloud looks up the nodes of all calls one after
    /// another.
    OneByOne {
        /// The time for one node.
        each: Duration,
        /// True if each answer is returned when it is known, and not all at the end of the call.
        streams: bool,
    },
    /// It is refused: too many calls.
    Throttle {
        /// The wait that the cloud asks for, if it names one.
        retry_after: Option<Duration>,
    },
    /// It is refused: bad credentials.
    Unauthorized,
    /// The cloud is down.
    Unavailable,
    /// It fails with this error.
    Error(CloudError),
    /// It is never answered. The caller's deadline ends it.
    Hang,
    /// A list is empty, although the call succeeds.
    EmptyList,
    /// A list ends after this many entries, although the call succeeds.
    TruncatedList(usize),
    /// The cloud's data about the instances with these names is malformed. Without names, all
    /// instances are affected.
    MalformedInstances(Vec<String>),
    /// A lookup of a node with one of these names fails with this error.
    FailNodes(Vec<String>, CloudError),
    /// A lookup fails as a whole with this error if one of its nodes has one of these names.
    FailCalls(Vec<String>, CloudError),
    /// A lookup returns fewer (negative) or more results than requested.
    AnswerCount(isize),
    /// A lookup reports every node as gone, as with the credentials of the wrong project. Lists are
    /// empty, and the cloud does not find load balancers that should be deleted.
    WrongProject,
    /// The trouble hits single load balancers of a call: those with these names or owners
    /// (`namespace/name`). Without names it hits all. [`Fault::times`] counts load balancers here.
    LoadBalancers(Vec<String>, Trouble),
    /// The trouble hits single routes of a call: those with these destinations, or to these nodes.
    /// In a lookup it hits these targets. Without names it hits all. [`Fault::times`] counts routes
    /// here.
    Routes(Vec<String>, Trouble),
}

/// The effect of a fault on one load balancer or route. All others in the same call are as usual.
#[derive(Clone, Debug, PartialEq)]
pub enum Trouble {
    /// It fails with this error, and nothing is changed.
    Fail(CloudError),
    /// It is never answered, and nothing is changed.
    Hang,
    /// The change is made, but its answer is lost.
    LoseAnswer,
    /// The answer is lost, and the change is made this much later, as by a frozen process.
    Late(Duration),
    /// The change is accepted, but the cloud fails to carry it out. A route exists with a defect.
    Break(Cure),
    /// The change is made, and the cloud never ends carrying it out.
    Stick,
    /// An entry of a list that cannot be read.
    Malformed,
    /// The cloud does not find an existing load balancer by its owner, and creates another one unless
    /// the call names it. Only for the creation and update of load balancers.
    Overlook {
        /// True if the cloud does not find it by its ID either, as with another project's credentials.
        by_id: bool,
    },
    /// Just before the change, a person gives the route another target, or creates a route of the
    /// same destination. For routes only.
    Overtake,
}

/// One fault.
#[derive(Clone, Debug)]
pub struct Fault {
    effect: FaultEffect,
    operation: Option<Operation>,
    skip: u64,
    times: Option<u64>,
    lasting: Option<Duration>,
    probability: f64,
}

impl Fault {
    /// Creates a fault that hits every call until it is removed.
    pub fn new(effect: FaultEffect) -> Self {
        Self { effect, operation: None, skip: 0, times: None, lasting: None, probability: 1.0 }
    }

    /// Restricts it to calls of this operation.
    #[must_use]
    pub fn on(mut self, operation: Operation) -> Self {
        self.operation = Some(operation);
        self
    }

    /// Restricts it to the next `calls` matching calls.
    #[must_use]
    pub fn times(mut self, calls: u64) -> Self {
        self.times = Some(calls);
        self
    }

    /// Skips the first `calls` matching calls.
    #[must_use]
    pub fn after(mut self, calls: u64) -> Self {
        self.skip = calls;
        self
    }

    /// Restricts it to this time after the fault is added to a plan.
    #[must_use]
    pub fn lasting(mut self, time: Duration) -> Self {
        self.lasting = Some(time);
        self
    }

    /// Hits a call with this probability, from 0 to 1.
    #[must_use]
    pub fn with_probability(mut self, probability: f64) -> Self {
        self.probability = probability.clamp(0.0, 1.0);
        self
    }
}

impl Fault {
    fn applies_to(&self, operation: Operation) -> bool {
        self.operation.is_none_or(|only| only == operation) && self.effect.concerns(operation)
    }

    /// Returns true if this call is hit; if so, counts it.
    fn hits(&mut self, random: &mut StdRng) -> bool {
        if self.probability < 1.0 && !random.random_bool(self.probability) {
            return false;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        if let Some(times) = &mut self.times {
            *times = times.saturating_sub(1);
        }
        true
    }
}

impl FaultEffect {
    /// Returns true if the effect applies to this operation. Some effects apply to one operation
    /// only.
    fn concerns(&self, operation: Operation) -> bool {
        use Operation::{
            ApplyRoutes, DeleteLoadBalancers, EnsureLoadBalancers, FindTargets, Health, List,
            ListLoadBalancers, ListRoutes, Lookup, SetMembers,
        };
        match self {
            Self::EmptyList => {
                matches!(operation, List | ListLoadBalancers | ListRoutes | FindTargets)
            }
            Self::TruncatedList(_) => matches!(operation, List | ListLoadBalancers | ListRoutes),
            Self::FailNodes(..)
            | Self::FailCalls(..)
            | Self::AnswerCount(_)
            | Self::OneByOne { .. } => operation == Lookup,
            Self::MalformedInstances(_) => matches!(operation, Lookup | List),
            Self::WrongProject => matches!(
                operation,
                Lookup | List | ListLoadBalancers | DeleteLoadBalancers | ListRoutes | FindTargets
            ),
            Self::LoadBalancers(..) if operation.is_about_routes() => false,
            Self::LoadBalancers(_, Trouble::Overtake) => false,
            Self::LoadBalancers(_, Trouble::Malformed) => operation == ListLoadBalancers,
            Self::LoadBalancers(_, Trouble::Overlook { .. }) => operation == EnsureLoadBalancers,
            Self::LoadBalancers(_, Trouble::Fail(_) | Trouble::Hang) => {
                !matches!(operation, Lookup | List | Health | ListLoadBalancers)
            }
            Self::LoadBalancers(..) => {
                matches!(operation, EnsureLoadBalancers | SetMembers | DeleteLoadBalancers)
            }
            Self::Routes(_, Trouble::Malformed) => operation == ListRoutes,
            Self::Routes(_, Trouble::Overlook { .. }) => false,
            Self::Routes(_, Trouble::Fail(_) | Trouble::Hang) => {
                matches!(operation, ApplyRoutes | FindTargets)
            }
            Self::Routes(..) => operation == ApplyRoutes,
            _ => true,
        }
    }

    /// Returns the error of the whole call, if it fails.
    pub(crate) fn error(&self) -> Option<CloudError> {
        let error = match self {
            Self::Throttle { retry_after } => {
                let error = CloudError::new(ErrorKind::Throttled, "too many requests");
                retry_after.iter().fold(error, |error, after| error.with_retry_after(*after))
            }
            Self::Unauthorized => {
                CloudError::new(ErrorKind::Unauthorized, "the credentials are not valid")
            }
            Self::Unavailable => {
                CloudError::new(ErrorKind::Unavailable, "the cloud is down for maintenance")
            }
            Self::Error(error) => error.clone(),
            _ => return None,
        };
        Some(error)
    }
}

#[cfg(test)]
mod tests;
