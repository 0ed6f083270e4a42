//! Random events in the cloud.

use std::{net::Ipv4Addr, time::Duration};

use ccm_cloud::{CloudError, Cure, ErrorKind};
use ccm_sim::{
    cloud::{
        Operation,
        balancers::{State, Times},
    },
    faults::{Effect, Fault, Trouble},
};
use rand::{Rng as _, seq::IndexedRandom as _};
use tokio::time::Instant;

use crate::{
    rules::Rules,
    world::{SERVICES, World},
};

/// The cloud fails.
pub(crate) fn fault(world: &mut World) {
    let operation = *[
        Operation::EnsureLoadBalancers,
        Operation::SetMembers,
        Operation::DeleteLoadBalancers,
        Operation::ListLoadBalancers,
    ]
    .choose(&mut world.dice)
    .unwrap();
    let key = World::service_key(world.dice.random_range(0..SERVICES));
    let one = |trouble| Effect::LoadBalancers(vec![key.clone()], trouble);
    let error = |kind| CloudError::new(kind, "the cloud says no");
    let kinds = [
        ErrorKind::QuotaExceeded,
        ErrorKind::Busy,
        ErrorKind::Forbidden,
        ErrorKind::Invalid,
        ErrorKind::Unsupported,
        ErrorKind::Conflict,
    ];
    let kind = *kinds.choose(&mut world.dice).unwrap();
    let effect = match world.dice.random_range(0..11) {
        0 => Effect::Unavailable,
        1 => Effect::Throttle { retry_after: Some(Duration::from_secs(3)) },
        2 => Effect::Hang,
        3 => one(Trouble::Hang),
        4 => one(Trouble::LoseAnswer),
        5 => one(Trouble::Late(Duration::from_secs(45))),
        6 => one(Trouble::Break(Cure::Ensure)),
        7 => one(Trouble::Break(Cure::Person)),
        8 => Effect::Unauthorized,
        9 => one(Trouble::Fail(error(kind))),
        _ => Effect::Error(error(ErrorKind::NotFound)),
    };
    let lasting = Duration::from_secs(world.dice.random_range(1..60));
    world.add_fault(effect, operation, lasting);
}

/// The cloud lies: in lists, or in what `ensure` finds.
pub(crate) fn lie(world: &mut World) {
    let key = World::service_key(world.dice.random_range(0..SERVICES));
    let by_id = world.dice.random_bool(0.3);
    let (operation, effect) = match world.dice.random_range(0..5) {
        0 => (Operation::ListLoadBalancers, Effect::EmptyList),
        1 => (Operation::ListLoadBalancers, Effect::TruncatedList(2)),
        2 => (Operation::ListLoadBalancers, Effect::WrongProject),
        3 => (Operation::ListLoadBalancers, Effect::LoadBalancers(vec![key], Trouble::Malformed)),
        _ => {
            let trouble = Trouble::Overlook { by_id };
            let fault = Fault::new(Effect::LoadBalancers(vec![key], trouble)).times(1);
            world.cloud.faults().add(fault);
            return;
        }
    };
    let lasting = Duration::from_secs(world.dice.random_range(1..400));
    world.add_fault(effect, operation, lasting);
}

/// A person changes or deletes a load balancer in the cloud, or it fails by itself.
pub(crate) fn person(world: &mut World, rules: &mut Rules) {
    let ours = world.ours();
    let Some(one) = ours.choose(&mut world.dice) else { return };
    let id = one.id.clone();
    rules.touched(&id);
    let balancers = world.cloud.balancers();
    match world.dice.random_range(0..5) {
        0 | 1 => drop(balancers.remove(&id)),
        2 => {
            let range = Ipv4Addr::new(203, 0, 113, 0);
            balancers.update(&id, |balancer| {
                balancer.configuration.source_ranges = vec![format!("{range}/24").parse().unwrap()];
            });
        }
        3 => {
            balancers.update(&id, |balancer| drop(balancer.members.pop()));
        }
        _ => {
            let cure = *[Cure::Ensure, Cure::Person].choose(&mut world.dice).unwrap();
            let why = "ERROR: no compute node".to_owned();
            balancers.update(&id, |balancer| balancer.state = State::Failed { why, cure });
        }
    }
}

/// A former leader, whose writes the cloud does not refuse, creates a load balancer: a duplicate,
/// or a load balancer for a deleted Service.
pub(crate) fn stale_leader(world: &mut World) {
    // Without lists the cloud refuses it: no program would find the load balancer.
    if !world.has_lists() {
        return;
    }
    let ours = world.ours();
    let Some(one) = ours.choose(&mut world.dice) else { return };
    let mut made = one.clone();
    let number = world.dice.random_range(0..u8::MAX);
    made.id = format!("stale-{number}");
    made.addresses = vec![Ipv4Addr::new(198, 51, 100, number).into()];
    made.created = Instant::now();
    if world.dice.random_bool(0.5) {
        made.owners.iter_mut().for_each(|owner| owner.uid = "gone".to_owned());
    }
    world.cloud.balancers().add(made);
}

/// Changes how long the work of the cloud takes.
pub(crate) fn times(world: &mut World) {
    let mut some = || Duration::from_secs(world.dice.random_range(0..20));
    let times = Times { create: some(), configure: some(), members: some(), delete: some() };
    world.cloud.balancers().configure(|settings| settings.times = times);
}
