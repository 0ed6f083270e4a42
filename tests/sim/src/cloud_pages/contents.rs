//! The contents of the cloud, as JSON.

use ccm_cloud::Member;
use serde_json::{Map, Value, json};

use super::routes;
use crate::cloud::{
    LoadBalancerCalls, Operation, RouteCalls, SimCloud,
    balancers::{SimBalancer, State, WriteKind},
};

/// Returns everything that exists.
pub(super) fn contents(cloud: &SimCloud) -> Value {
    let balancers = cloud.balancers();
    let floating = balancers.floating().into_iter().map(|(address, owner)| {
        let owner = owner.map(|owner| owner.to_string());
        (address.to_string(), json!(owner))
    });
    json!({
        "instances": cloud.all().iter().map(|it| json!(it.describe())).collect::<Vec<_>>(),
        "loadBalancers": balancers.all().iter().map(balancer).collect::<Vec<_>>(),
        "floatingAddresses": floating.collect::<Map<_, _>>(),
        "router": routes::contents(cloud.router()),
    })
}

fn balancer(balancer: &SimBalancer) -> Value {
    let configuration = &balancer.configuration;
    let member = |member: &Member| {
        let addresses: Vec<_> = member.addresses.iter().map(|it| it.address.as_str()).collect();
        json!({"node": member.node, "addresses": addresses})
    };
    json!({
        "id": balancer.id,
        "name": balancer.name,
        "owners": balancer.owners.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "state": state(&balancer.state),
        "version": balancer.version,
        "digest": balancer.applied.as_ref().map(|applied| applied.digest),
        "addresses": balancer.addresses,
        "listeners": configuration.listeners.values().collect::<Vec<_>>(),
        "sourceRanges": configuration.source_ranges,
        "affinitySeconds": configuration.affinity.map(|affinity| affinity.as_secs()),
        "traffic": configuration.traffic,
        "annotations": configuration.settings,
        "members": balancer.members.iter().map(member).collect::<Vec<_>>(),
        "pools": balancer.pools(),
    })
}

fn state(state: &State) -> String {
    match state {
        State::Ready => "ready".to_owned(),
        State::Pending { what, .. } => (*what).to_owned(),
        State::Failed { why, .. } => why.clone(),
    }
}

/// Returns the calls so far, and the accepted writes.
pub(super) fn counters(cloud: &SimCloud) -> Value {
    let calls = cloud.calls();
    let LoadBalancerCalls { list, ensure, preview, set_members, delete, items } =
        calls.load_balancers;
    let RouteCalls { list: tables, apply, find_targets, items: changes } = calls.routes;
    let by_operation = [
        (Operation::Lookup, calls.lookup),
        (Operation::List, calls.list),
        (Operation::Health, calls.health),
        (Operation::ListLoadBalancers, list),
        (Operation::EnsureLoadBalancers, ensure),
        (Operation::PreviewLoadBalancers, preview),
        (Operation::SetMembers, set_members),
        (Operation::DeleteLoadBalancers, delete),
        (Operation::ListRoutes, tables),
        (Operation::ApplyRoutes, apply),
        (Operation::FindTargets, find_targets),
    ];
    let by_operation = by_operation.map(|(operation, count)| (operation.as_str(), count));
    let written = |kind| cloud.balancers().written(kind);
    json!({
        "calls": by_operation.into_iter().collect::<std::collections::BTreeMap<_, _>>(),
        "nodesLookedUp": calls.nodes_looked_up,
        "loadBalancersInBatches": items,
        "routesInBatches": changes,
        "writes": {
            "create": written(WriteKind::Create),
            "configure": written(WriteKind::Configure),
            "members": written(WriteKind::Members),
            "delete": written(WriteKind::Delete),
        },
        "routeWrites": routes::writes(cloud.router()),
    })
}

/// Returns how the load balancers and the router behave.
pub(super) fn settings(cloud: &SimCloud) -> Value {
    let settings = cloud.balancers().settings();
    let text = ccm_base::duration::format;
    let times = settings.times;
    json!({
        "identity": cloud.identity().unwrap_or_default(),
        "create": text(times.create),
        "configure": text(times.configure),
        "members": text(times.members),
        "delete": text(times.delete),
        "checkAfter": text(settings.check_after),
        "fences": settings.fences,
        "nested": settings.nested,
        "hostnames": settings.hostnames,
        "showsEmpty": settings.shows_empty,
        "routes": routes::settings(&cloud.router().settings()),
    })
}
