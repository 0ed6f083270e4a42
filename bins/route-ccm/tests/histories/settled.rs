//! What is true in the end.

use std::{collections::BTreeMap, time::Duration};

use ccm_sim::cloud::routes::SimRoute;
use ipnet::IpNet;
use tokio::time::{Instant, sleep};

use crate::{
    rules::{Rule, Rules},
    truth::{self, TrueNode, is_inside},
    world::{NODES, World},
};

/// The longest time to converge: deletions that are held go window by window.
const PATIENCE: Duration = Duration::from_hours(4);
/// How long nothing is written then.
const QUIET: Duration = Duration::from_mins(25);

/// Waits until everything is as it should be, and looks whether it stays so.
pub(crate) async fn converge(rules: &mut Rules, world: &mut World) {
    for number in 0..NODES {
        world.add_node(number);
    }
    let end = Instant::now() + PATIENCE;
    loop {
        rules.look(world);
        let wrong = wrong(world);
        let counted = miscounted(world);
        let is_late = Instant::now() > end;
        // The process may know more former targets than this model. It will make the changes that it holds.
        let is_held = world.metric("ccm_route_changes_held ") > 0;
        if wrong.is_empty() && counted.is_none() && (is_late || !is_held) {
            break;
        }
        if is_late {
            for how in wrong {
                rules.broken.add(Rule::Converges, format!("{how}; plan: {}", world.plans()));
            }
            if let Some(how) = counted {
                rules.broken.add(Rule::Counted, how);
            }
            return;
        }
        sleep(Duration::from_secs(60)).await;
    }
    world.cloud.router().reset_writes();
    let nodes = world.api.list("nodes");
    sleep(QUIET).await;
    let writes = world.cloud.router().reset_writes();
    if !writes.is_empty() || nodes != world.api.list("nodes") {
        rules.broken.add(Rule::Quiet, format!("written though all is well: {writes:?}"));
    }
}

/// What is wrong.
fn wrong(world: &World) -> Vec<String> {
    let nodes = truth::nodes(&world.api);
    let (wanted, disputed) = truth::wanted(&nodes, &world.cloud.router().settings());
    let mut incomplete: BTreeMap<&str, Vec<IpNet>> = BTreeMap::new();
    let mut wrong = Vec::new();
    for node in &nodes {
        for cidr in node.cidrs.iter().map(IpNet::trunc) {
            let routes = world.cloud.router().to(cidr);
            let is_wanted = wanted.get(&cidr) == Some(&node.name);
            let has = |route: &&SimRoute| {
                route.defect.is_none()
                    && route.target.as_ref().is_some_and(|target| node.has(target))
            };
            let right = routes.iter().filter(has).count();
            if !is_wanted {
                incomplete.entry(&node.name).or_default().push(cidr);
            } else if right == 0 {
                incomplete.entry(&node.name).or_default().push(cidr);
                if !routes.iter().any(|route| is_of_others(world, route)) {
                    wrong.push(format!("{} has no route of {cidr}: {routes:?}", node.name));
                }
            } else if right > 1 {
                wrong.push(format!("{cidr} has {right} routes: {routes:?}"));
            }
        }
        wrong.extend(wrong_condition(node, incomplete.contains_key(&*node.name)));
    }
    for route in world.ours() {
        let destination = route.destination.trunc();
        let node =
            wanted.get(&destination).and_then(|name| nodes.iter().find(|node| node.name == *name));
        let is_right =
            node.is_some_and(|node| route.target.as_ref().is_some_and(|target| node.has(target)));
        // A destination that is blocked by a route of others stays as it is.
        let all = world.cloud.router().to(destination);
        let is_blocked = all.iter().any(|route| is_of_others(world, route));
        if !is_right && !disputed.contains(&destination) && !is_blocked {
            wrong.push(format!("left over: {route:?}"));
        }
    }
    wrong
}

fn wrong_condition(node: &TrueNode, is_incomplete: bool) -> Option<String> {
    let expect = if is_incomplete { "True" } else { "False" };
    let is_right = node.cidrs.is_empty() || node.unavailable.as_deref() == Some(expect);
    (!is_right).then(|| format!("{}: NetworkUnavailable={:?}", node.name, node.unavailable))
}

/// Whether a route is of others: also one that a former leader has left to something that exists
/// and is no node, where the cloud records no owner. Nothing shows that it was ours.
fn is_of_others(world: &World, route: &SimRoute) -> bool {
    if world.truth.is_foreign(&route.id) {
        return true;
    }
    let Some(target) = &route.target else { return route.owner.is_none() };
    route.owner.is_none() && !world.has_seen(target) && world.exists(target)
}

/// Whether the routes of others are not counted as they are. Of some it is not known whether the
/// process can know whose they are.
fn miscounted(world: &World) -> Option<String> {
    let all = world.cloud.router().all();
    let is = |route: &SimRoute, inside: bool| is_inside(route.destination.trunc()) == inside;
    for (kind, inside) in [("foreign", true), ("other_networks", false)] {
        let shown = world.metric(&format!("ccm_route_routes{{kind=\"{kind}\"}}"));
        let least = all.iter().filter(|one| is(one, inside) && world.truth.is_foreign(&one.id));
        let most = all.iter().filter(|one| is(one, inside) && is_of_others(world, one));
        let (least, most) = (least.count(), most.count());
        if shown < least || shown > most {
            return Some(format!("{least} to {most} routes of others, {shown} {kind} shown"));
        }
    }
    None
}
