//! The calls and the values of the cases.

use std::sync::Arc;

use ccm_cloud::{
    AddressKind, AppliedChange, CloudError, ErrorKind, NodeAddress, NodeIdentity, Owner, Route,
    RouteChange, RouteTable, RouteTarget, Routes, TargetState, WantedRoute,
};
use ipnet::IpNet;

use crate::{
    RouterSide,
    lab::{Lab, call, cluster, gather},
};

pub(super) fn net(number: u8) -> IpNet {
    IpNet::new([10, 244, number, 0].into(), 24).unwrap()
}

pub(super) fn hop(number: u8) -> RouteTarget {
    RouteTarget::Address([10, 0, 0, number].into())
}

/// Returns the owner of a node's route: a Node has no namespace.
pub(super) fn node(number: u8) -> Owner {
    let name = format!("node-{number}");
    Owner { cluster: cluster(), uid: format!("uid-{name}"), namespace: String::new(), name }
}

/// Returns the route of a node.
pub(super) fn wanted(number: u8) -> WantedRoute {
    let owner = node(number);
    WantedRoute {
        destination: net(number),
        node: NodeIdentity::named(&owner.name),
        addresses: vec![
            NodeAddress::new(AddressKind::Hostname, &owner.name),
            NodeAddress::new(AddressKind::ExternalIp, "203.0.113.9"),
            NodeAddress::new(AddressKind::InternalIp, format!("10.0.0.{number}")),
        ],
        owner,
    }
}

/// Returns the route of a node, to the pods of another one.
pub(super) fn wanted_to(number: u8, destination: u8) -> WantedRoute {
    WantedRoute { destination: net(destination), ..wanted(number) }
}

pub(super) fn creation(wanted: WantedRoute) -> RouteChange {
    RouteChange::Create(Arc::new(wanted))
}

pub(super) fn create(number: u8) -> RouteChange {
    creation(wanted(number))
}

pub(super) fn replace(old: &Route, new: WantedRoute) -> RouteChange {
    RouteChange::Replace { old: Box::new(old.clone()), new: Arc::new(new) }
}

pub(super) fn delete(old: &Route) -> RouteChange {
    RouteChange::Delete(Box::new(old.clone()))
}

/// Returns the kinds of the errors.
pub(super) fn kinds<T>(answers: Vec<Result<T, CloudError>>) -> Vec<Option<ErrorKind>> {
    answers.into_iter().map(|answer| answer.err().map(|error| error.kind)).collect()
}

impl Lab {
    pub(super) fn router(&self) -> &dyn RouterSide {
        self.rig.router()
    }

    pub(super) fn routes(&self) -> Arc<dyn Routes> {
        self.cloud().routes().unwrap().expect("routes are offered")
    }

    pub(super) async fn apply_at(
        &self,
        changes: &[RouteChange],
        base: Option<&str>,
    ) -> Vec<Result<AppliedChange, CloudError>> {
        gather(self.routes().apply(&cluster(), changes, base, call()), changes.len()).await
    }

    pub(super) async fn apply(
        &self,
        changes: &[RouteChange],
    ) -> Vec<Result<AppliedChange, CloudError>> {
        self.apply_at(changes, None).await
    }

    pub(super) async fn one(&self, change: RouteChange) -> Result<AppliedChange, CloudError> {
        self.apply(&[change]).await.remove(0)
    }

    /// Returns the route after a change that must succeed.
    pub(super) async fn made(&self, change: RouteChange) -> Route {
        self.one(change).await.unwrap().route.expect("a route that was created is shown")
    }

    pub(super) async fn table(&self) -> RouteTable {
        self.routes().list(&cluster(), call()).await.unwrap()
    }

    pub(super) async fn find(
        &self,
        targets: &[RouteTarget],
    ) -> Vec<Result<TargetState, CloudError>> {
        gather(self.routes().find_targets(targets, call()), targets.len()).await
    }
}
