//! Random events of the API server and of the program's processes.

use std::time::Duration;

use ccm_sim::apiserver::{Action, Fault, Verb};
use rand::Rng as _;
use tokio::time::sleep;

use crate::{rules::Rules, world::World};

/// The user agent of a standby.
const STANDBY: &str = "service-ccm/standby";

/// The API server fails.
pub(crate) fn fault(world: &mut World) {
    let lasting = Duration::from_secs(world.dice.random_range(1..40));
    let code = [409, 429, 500, 503, 504][world.dice.random_range(0..5)];
    let resource = ["services", "nodes"][world.dice.random_range(0..2)];
    let write = |action| Fault::new(action).verb(Verb::Patch).resource("services");
    let watch = |action| Fault::new(action).verb(Verb::Watch).resource(resource);
    let fault = match world.dice.random_range(0..8) {
        0 => write(Action::Status { code, retry_after: Some(1) }),
        1 => write(Action::Status { code, retry_after: None }),
        2 => write(Action::Delay(Duration::from_secs(4))),
        3 => write(Action::DropAfterApply).times(2),
        4 => write(Action::DropBeforeApply).times(2),
        5 => watch(Action::DuplicateEvents),
        6 => watch(Action::WatchError { code: 410 }).times(2),
        _ => {
            world.api.compact();
            watch(Action::CutWatch { after: Duration::from_secs(2), abrupt: true })
        }
    };
    world.api.faults().add(fault.lasting(lasting));
    world.api.cut_watches("", world.dice.random_bool(0.5));
}

/// Another process leads: sometimes with other flags, before the former leader has noticed it, or
/// with an old store.
pub(crate) async fn change_of_leader(world: &mut World, rules: &mut Rules) {
    match world.dice.random_range(0..8) {
        0 | 1 => {
            world.draw_classes();
            world.restart().await;
        }
        2 => {
            world.overlap().await;
            rules.two_lead();
            let seconds = world.dice.random_range(1..20);
            for _ in 0..seconds {
                sleep(Duration::from_secs(1)).await;
                rules.look(world);
            }
            world.end_former();
        }
        3 => with_an_old_store(world, rules).await,
        _ => world.restart().await,
    }
    rules.restarted();
}

/// A standby whose watches are silent for a while leads with an old store.
async fn with_an_old_store(world: &mut World, rules: &mut Rules) {
    let standby = world.stand_by().await;
    let silent = Fault::new(Action::SilentWatch).verb(Verb::Watch);
    let seconds = world.dice.random_range(20..90);
    let silent = silent.user_agent(STANDBY).lasting(Duration::from_secs(seconds));
    world.api.faults().add(silent);
    world.api.cut_watches(STANDBY, false);
    for _ in 0..4 {
        crate::services::next(world);
        crate::nodes::next(world, rules);
        for _ in 0..10 {
            sleep(Duration::from_secs(1)).await;
            world.neighbours_work();
            rules.look(world);
        }
    }
    world.take_over(standby);
}
