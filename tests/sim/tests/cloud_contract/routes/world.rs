//! Values and calls for the suite.

use std::sync::Arc;

use ccm_cloud::{
    AddressKind, AppliedChange, Call, CloudError, ErrorKind, NodeAddress, NodeIdentity, OpenGate,
    Owner, Route, RouteChange, RouteTable, RouteTarget, Routes, TargetState, WantedRoute,
};
use ccm_sim::{
    cloud::{
        SimCloud,
        routes::{RouteWriteKind, RouterSettings},
    },
    faults::{Effect, Fault, FaultId, Trouble},
};
use ipnet::IpNet;

pub use crate::balancers::world::{Terms, cluster, gather};
use crate::{
    rig::{Rig, Way},
    suite::call,
};

pub fn net(number: u8) -> IpNet {
    IpNet::new([10, 244, number, 0].into(), 24).unwrap()
}

pub fn hop(number: u8) -> RouteTarget {
    RouteTarget::Address([10, 0, 0, number].into())
}

/// The owner of node's route: a Node has no namespace.
pub fn node(number: u8) -> Owner {
    let name = format!("node-{number}");
    Owner { cluster: cluster(), uid: format!("uid of {name}"), namespace: String::new(), name }
}

/// The route of a node.
pub fn wanted(number: u8) -> WantedRoute {
    let owner = node(number);
    let identity = NodeIdentity {
        provider_id: Some(format!("sim://i-{number}")),
        system_uuid: Some(format!("uuid-{number}")),
        ..NodeIdentity::named(&owner.name)
    };
    WantedRoute {
        destination: net(number),
        node: identity,
        addresses: vec![
            NodeAddress::new(AddressKind::Hostname, &owner.name),
            NodeAddress::new(AddressKind::InternalIp, format!("10.0.0.{number}")),
            NodeAddress::new(AddressKind::InternalIp, format!("fd00::{number}")),
        ],
        owner,
    }
}

/// The route of a node, to the pods of another one.
pub fn wanted_to(number: u8, destination: u8) -> WantedRoute {
    WantedRoute { destination: net(destination), ..wanted(number) }
}

pub fn create(number: u8) -> RouteChange {
    RouteChange::Create(Arc::new(wanted(number)))
}

pub fn replace(old: &Route, new: WantedRoute) -> RouteChange {
    RouteChange::Replace { old: Box::new(old.clone()), new: Arc::new(new) }
}

pub fn delete(old: &Route) -> RouteChange {
    RouteChange::Delete(Box::new(old.clone()))
}

/// The kinds of the errors.
pub fn kinds<T>(answers: Vec<Result<T, CloudError>>) -> Vec<Option<ErrorKind>> {
    answers.into_iter().map(|answer| answer.err().map(|error| error.kind)).collect()
}

impl Rig {
    /// A rig whose router has these settings from the beginning.
    pub async fn routing(way: Way, change: impl FnOnce(&mut RouterSettings)) -> Self {
        let sim = SimCloud::new();
        sim.router().configure(change);
        Self::of(sim, way, Arc::new(OpenGate)).await
    }

    /// A new handle for each call: nothing is remembered between two calls.
    pub fn routes(&self) -> Arc<dyn Routes> {
        self.cloud.routes().unwrap().expect("routes are offered")
    }

    pub async fn apply_in(
        &self,
        changes: &[RouteChange],
        base: Option<&str>,
        call: Call,
    ) -> Vec<Result<AppliedChange, CloudError>> {
        gather(self.routes().apply(&cluster(), changes, base, call), changes.len()).await
    }

    pub async fn apply(&self, changes: &[RouteChange]) -> Vec<Result<AppliedChange, CloudError>> {
        self.apply_in(changes, None, call()).await
    }

    pub async fn one(&self, change: RouteChange) -> Result<AppliedChange, CloudError> {
        self.apply(&[change]).await.remove(0)
    }

    /// The route after a change that must succeed.
    pub async fn made(&self, change: RouteChange) -> Route {
        self.one(change).await.unwrap().route.expect("a route that was created is shown")
    }

    pub async fn table(&self) -> RouteTable {
        self.routes().list(&cluster(), call()).await.unwrap()
    }

    pub async fn find(&self, targets: &[RouteTarget]) -> Vec<Result<TargetState, CloudError>> {
        gather(self.routes().find_targets(targets, call()), targets.len()).await
    }

    /// The kinds of what was written since the last look.
    pub fn route_writes(&self) -> Vec<RouteWriteKind> {
        self.sim.router().reset_writes().into_iter().map(|write| write.kind).collect()
    }

    pub fn route_trouble(&self, number: u8, trouble: Trouble) -> FaultId {
        let names = vec![net(number).to_string()];
        self.sim.faults().add(Fault::new(Effect::Routes(names, trouble)))
    }
}
