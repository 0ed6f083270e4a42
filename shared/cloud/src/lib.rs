//! The provider contract: the interface of a cloud for Quartet's controllers.
//!
//! It consists of values, errors and traits. This crate has no Kubernetes client, no HTTP and
//! no async runtime, so a provider can be written, tested and served (see `ccm-external-server`)
//! on its own.
//!
//! Five rules hold for every capability:
//!
//! 1. **Batch first**: calls take many objects and return one answer for each.
//! 2. **Four answers**: found, gone (with proof), not ours, or an error.
//! 3. **Never wait without end**: a call does its work within its deadline or says what it waits
//!    for. It may include a few repetitions and a pause that the cloud asked for, but never waits
//!    for a state of the cloud.
//! 4. **Typed errors** ([`CloudError`]), with the cloud's own message and request ID.
//! 5. **Ownership**: a resource that is not ours is counted and never touched.
//!
//! | module | what it holds |
//! |---|---|
//! | `provider`, `registry` | the interface of a provider; providers by name |
//! | `instances`, `load_balancers`, `routes` | the three capabilities |
//! | `front_end`, `pools`, `balancer_traits` | the wanted state of a load balancer; its members by port; the features of a provider's load balancers |
//! | `identity`, `owner` | the identity of a node, and which provider owns it; to whom an object in the cloud belongs |
//! | `call`, `error` | the parameters of a call, and the gate that each request passes; the errors |
//! | `address`, `node_selector` | addresses of instances; which nodes may be members, by their labels |

mod address;
mod balancer_traits;
mod call;
mod error;
mod front_end;
mod identity;
mod instances;
mod load_balancers;
mod node_selector;
mod owner;
mod pools;
mod provider;
mod registry;
mod routes;

pub use address::{AddressKind, NodeAddress, is_host_name};
pub use balancer_traits::LoadBalancerTraits;
pub use call::Answers;
pub use call::{Call, CallClass, CallGate, CallReport, OpenGate, Permit, Priority};
pub use ccm_metrics::{MetricsSink, NoMetrics};
pub use error::{CloudError, ErrorKind};
pub use front_end::{
    FrontEnd, FrontEndPort, IpFamily, Member, Members, Protocol, Traffic, are_shown_as,
};
pub use identity::{Claim, NodeIdentity, ProviderId, ProviderIdError};
pub use instances::{
    AbsenceProof, Detail, Fleet, Instance, InstanceTraits, Instances, Lookup, LookupResult,
    PowerState, ProofMethod, Wants, one_each,
};
pub use load_balancers::{
    Cure, Depth, FailedPort, Ingress, IngressAddress, IpMode, LoadBalancer, LoadBalancerList,
    LoadBalancers, Loss, MemberChange, Note, Phase, Progress, Scope, Title, Unwanted, Waiting,
    Wanted, repeated,
};
pub use node_selector::NodeSelector;
pub use owner::{ClusterId, Digest, DigestError, Owner};
pub use pools::{MembersSet, Pool};
pub use provider::{Capability, Cloud, Shortfall};
pub use registry::{ProviderContext, ProviderFactory, ProviderRegistry, RegistryError};
pub use routes::{
    AppliedChange, Route, RouteChange, RouteTable, RouteTarget, RouteTraits, Routes, TargetState,
    WantedRoute, repeated_destinations,
};
