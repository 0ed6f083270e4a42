//! Reads Nova's and Neutron's answers about instances and routes.

use std::sync::Arc;

use ccm_cloud::{
    AddressKind, ClusterId, Detail, Instances as _, NodeAddress, NodeIdentity, Owner, Route,
    RouteChange, RouteTarget, Routes as _, WantedRoute,
};
use ccm_openstack_client::api::Api;
use ccm_testing::{check_line, checked};
use futures::StreamExt as _;

use super::played::{Played, Settings, call, paused};
use crate::{instances::OpenStackInstances, routes::NeutronRoutes};

/// Reads Nova's answers, and what Neutron says about the servers' ports.
pub fn nova(data: &[u8]) {
    let (settings, cloud) = Played::split(data);
    paused(look_up(&settings, cloud));
}

/// Reads Neutron's answers about routes.
pub fn neutron(data: &[u8]) {
    let (_, cloud) = Played::split(data);
    paused(change_routes(cloud));
}

/// Returns the ID of this number.
pub fn id(number: usize) -> String {
    format!("{number:08x}-0000-4000-8000-{number:012x}")
}

/// Returns nodes with provider IDs, with names only, and with an ID of another kind.
fn nodes() -> Vec<NodeIdentity> {
    let named = |number: usize| NodeIdentity::named(format!("node-{number:05}"));
    let with =
        |number: usize, text: String| NodeIdentity { provider_id: Some(text), ..named(number) };
    vec![
        with(1, format!("openstack:///{}", id(1))),
        with(2, format!("openstack://one/{}", id(2))),
        named(3),
        NodeIdentity { system_uuid: Some(id(4)), ..named(4) },
        with(9, format!("openstack:///{}", id(9))),
        NodeIdentity::named("no.such^node|.*"),
    ]
}

pub async fn look_up(settings: &Settings, api: Arc<dyn Api>) {
    let Some(config) = settings.config() else { return };
    let (instances, nodes) = (OpenStackInstances::new(api, config), nodes());
    // A few nodes are requested one by one, more nodes with a list. The second time, the ports are
    // known.
    for _ in 0..2 {
        for (some, detail) in [
            (&nodes[..], Detail::Everything),
            (&nodes[..3], Detail::Everything),
            (&nodes[..], Detail::Presence),
        ] {
            let answers = instances.lookup(some, detail, call()).await;
            assert_eq!(answers.len(), some.len());
            for answer in answers {
                checked(answer);
            }
        }
        if let Some(fleet) = checked(instances.list(call()).await) {
            fleet.malformed.iter().for_each(|line| check_line(line));
        }
    }
}

fn cluster() -> ClusterId {
    ClusterId { name: "prod".to_owned(), uid: "c-1".to_owned() }
}

fn wanted(number: u8) -> Arc<WantedRoute> {
    let name = format!("node-{number:05}");
    Arc::new(WantedRoute {
        owner: Owner {
            cluster: cluster(),
            uid: name.clone(),
            namespace: String::new(),
            name: name.clone(),
        },
        destination: ipnet::Ipv4Net::new_assert([172, 16, number, 0].into(), 24).into(),
        node: NodeIdentity::named(name),
        addresses: vec![NodeAddress::new(AddressKind::InternalIp, format!("10.0.0.{number}"))],
    })
}

pub async fn change_routes(api: Arc<dyn Api>) {
    let (routes, cluster) = (NeutronRoutes::new(api, &id(9_000_000)), cluster());
    checked(routes.learn(call()).await);
    let route = |number: u8| {
        Route::new(wanted(number).destination, RouteTarget::Address([10, 0, 0, number].into()))
    };
    let create = |number| RouteChange::Create(wanted(number));
    let delete = |number| RouteChange::Delete(Box::new(route(number)));
    let replace = RouteChange::Replace { old: Box::new(route(2)), new: wanted(2) };
    let rounds = [vec![create(2), create(3), create(4)], vec![replace], vec![delete(2), delete(3)]];
    for changes in rounds {
        let listed = checked(routes.list(&cluster, call()).await);
        let base = listed.as_ref().and_then(|table| table.version.as_deref());
        if let Some(table) = &listed {
            table.malformed.iter().for_each(|line| check_line(line));
        }
        let answers: Vec<_> = routes.apply(&cluster, &changes, base, call()).collect().await;
        assert_eq!(answers.len(), changes.len(), "one answer for each change");
        for (_, answer) in answers {
            checked(answer);
        }
    }
    let targets = [2, 3, 77].map(|number| RouteTarget::Address([10, 0, 0, number].into()));
    let answers: Vec<_> = routes.find_targets(&targets, call()).collect().await;
    assert_eq!(answers.len(), targets.len(), "one answer for each target");
    for (_, answer) in answers {
        checked(answer);
    }
}
