//! Checks what the program does when nothing changes any more.

use std::time::Duration;

use ccm_cloud::LoadBalancers;
use tokio::time::{Instant, sleep};

use crate::{
    claims,
    rules::{self, Rule, Rules},
    wanted::{About, Wrong, is_eligible, is_elsewhere, is_refused, wrong},
    world::{NODES, SERVICES, World},
};

/// The time until everything but held members converges after the faults: a list, and the longest
/// pause after a failure.
const SETTLE: Duration = Duration::from_mins(15);
/// The same for a provider without lists: the program checks its load balancers once an hour.
const SETTLE_WITHOUT_LISTS: Duration = Duration::from_mins(130);
/// The time until held members leave: the brake releases three of them in ten minutes.
const HELD: Duration = Duration::from_hours(1);
/// The time in which each load balancer is read in full once and shows the changes of persons.
pub(crate) const FULL: Duration = Duration::from_mins(35);
/// The time until a node joins, or leaves if no other node has left recently.
const SOON: Duration = Duration::from_secs(90);

/// Waits until everything has converged.
pub(crate) async fn converge(world: &mut World, rules: &mut Rules) {
    crate::nodes::all_are_back(world);
    let begin = Instant::now();
    let settle = if world.has_lists() { SETTLE } else { SETTLE_WITHOUT_LISTS };
    loop {
        world.neighbours_work();
        rules.look(world);
        let all: Vec<Wrong> = (0..SERVICES).filter_map(|number| wrong(world, number)).collect();
        let orphans = rules::unreported(world);
        if all.is_empty() && orphans.is_none() {
            return;
        }
        let passed = begin.elapsed();
        let late = |one: &Wrong| match one.about {
            About::All => passed > settle,
            About::Configuration => passed > settle.max(FULL),
            About::Members => passed > settle + HELD,
        };
        for one in all.iter().filter(|one| late(one)) {
            world.broken.add(Rule::Converges, one.how.clone());
        }
        if let Some(how) = orphans.filter(|_| passed > settle) {
            world.broken.add(Rule::Reported, how);
        }
        if world.broken.is_broken() {
            return;
        }
        sleep(Duration::from_secs(10)).await;
    }
}

/// Lets this time pass.
pub(crate) async fn settle(world: &World, rules: &mut Rules, time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        sleep(Duration::from_mins(1)).await;
        rules.look(world);
    }
}

/// Checks that for these minutes the program only lists and looks, and does not write.
pub(crate) async fn nothing_happens(world: &World, rules: &mut Rules, minutes: u32) {
    world.cloud.reset_calls();
    world.cloud.balancers().reset_writes();
    let shown = (world.list("services"), world.list("events").len());
    settle(world, rules, Duration::from_mins(1) * minutes).await;
    let calls = world.cloud.calls().load_balancers;
    let writes = world.cloud.balancers().writes();
    let refused = (0..SERVICES).filter(|number| is_refused_now(world, *number)).count() as u64;
    let elsewhere = world.list("services").iter().filter(|one| is_elsewhere(one)).count() as u64;
    // A refused call is repeated after four to five minutes. What lists do not show needs a full
    // call: once an hour without lists, every half-hour if the cloud does not store the digest, once
    // a day if another controller is responsible.
    let traits = LoadBalancers::traits(&world.cloud);
    let looks_each = if !traits.lists {
        2
    } else if !traits.stores_digest {
        3
    } else {
        0
    };
    let gone = (0..SERVICES).filter(|number| is_held_and_gone(world, *number)).count() as u64;
    let looks = (refused + gone) * 15 + elsewhere + looks_each * SERVICES as u64;
    let others = calls.total() - calls.list;
    if others > looks || !writes.is_empty() {
        let how = format!(
            "{others} calls in {minutes} quiet minutes, {looks} looks: {calls:?} {writes:?}"
        );
        world.broken.add(Rule::Quiet, how);
    }
    let now = world.list("services");
    if refused + gone == 0 && shown.0 != now {
        let written = shown.0.iter().zip(now.iter()).find(|(before, now)| before != now);
        let how = format!("Services are written in a quiet hour: {written:?}");
        world.broken.add(Rule::Quiet, how);
    }
    if refused + gone == 0 && shown.1 != world.list("events").len() {
        let how = format!("events are written in a quiet hour: {:?}", world.list("events").last());
        world.broken.add(Rule::Quiet, how);
    }
    if let Some(how) = claims::metrics(world) {
        world.broken.add(Rule::Metrics, how);
    }
    if let Some(how) = rules::misreported(world) {
        world.broken.add(Rule::Metrics, how);
    }
}

/// Returns true if only the Service names its load balancer, which another client has deleted, and the
/// settings exclude the Service: the change of its members is tried again and again.
pub(crate) fn is_held_and_gone(world: &World, number: usize) -> bool {
    world.service(number).is_some_and(|service| {
        let is_held = service["spec"]["type"] == "LoadBalancer" && !world.serves(&service);
        let uid = service["metadata"]["uid"].as_str().unwrap();
        !world.has_lists() && is_held && world.balancers_of(uid).is_empty()
    })
}

fn is_refused_now(world: &World, number: usize) -> bool {
    world.service(number).is_some_and(|service| {
        let found = world.balancers_of(service["metadata"]["uid"].as_str().unwrap());
        is_refused(world, &service, found.first())
    })
}

/// A node joins and another node goes: all load balancers follow soon.
pub(crate) async fn a_node_comes_and_one_goes(world: &mut World, rules: &mut Rules) {
    world.add_node(NODES);
    expect_soon(world, rules, "joined").await;
    let needs_id = LoadBalancers::traits(&world.cloud).member_ids;
    let name = World::node_name(3);
    if world.api.get("nodes", &name).is_some_and(|node| is_eligible(&node, needs_id)) {
        world.api.delete("nodes", &name).unwrap();
    }
    expect_soon(world, rules, "is gone").await;
}

async fn expect_soon(world: &World, rules: &mut Rules, what: &str) {
    let end = Instant::now() + SOON;
    while Instant::now() < end {
        sleep(Duration::from_secs(1)).await;
        rules.look(world);
    }
    for number in 0..SERVICES {
        if let Some(Wrong { how, about: About::Members }) = wrong(world, number) {
            world.broken.add(Rule::Leaves, format!("a node {what}, and {how}"));
        }
    }
}
