//! Changes of the leader.

use super::*;

/// The writes of the last leader that its answers have not reached.
#[tokio::test(start_paused = true)]
async fn a_leader_that_ends_between_reservation_and_write_leaves_no_duplicate() {
    for action in [Action::DropAfterApply, Action::DropBeforeApply, Action::Stall] {
        let world = World::new();
        let first = world.lead(&LARGE).await;
        let nodes = world.add_many(0..5);
        world.assigned(&nodes).await;
        let fault = world.api.faults().add(World::fault(action.clone()));
        let more = world.add_many(5..10);
        while world.api.faults().hits(fault) < 3 {
            sleep(Duration::from_millis(1)).await;
        }
        let second = world.stand_by(&LARGE, Some(&first)).await;
        drop(first);
        world.api.faults().clear();
        second.lead();
        world.assigned(&more).await;
        let last = world.add_many(10..15);
        world.assigned(&last).await;
        second.shows("ccm_ipam_stopped", 0.0);
    }
}

/// A standby whose watch shows nothing does not begin with what it has.
#[tokio::test(start_paused = true)]
async fn a_leader_begins_with_nodes_read_in_its_term() {
    let world = World::new();
    let second = world.stand_by(&LARGE, None).await;
    let silent = Fault::new(Action::SilentWatch).verb(Verb::Watch).times(1);
    let silent = world.api.faults().add(silent);
    world.api.cut_watches(AGENT, false);
    sleep(Duration::from_secs(3)).await;
    let first = world.lead(&LARGE).await;
    let nodes = world.add_many(0..5);
    world.assigned(&nodes).await;
    drop(first);
    second.lead();
    sleep(Duration::from_secs(3)).await;
    world.api.faults().remove(silent);
    let more = world.add_many(5..10);
    world.assigned(&more).await;
    second.shows("ccm_ipam_stopped", 0.0);
    assert_eq!(world.cidrs(&more[0]), "10.64.5.0/24");
}

/// A watch that works proves it without a list.
#[tokio::test(start_paused = true)]
async fn a_leader_of_a_busy_cluster_lists_the_nodes_once() {
    let world = World::new();
    let nodes = world.add_many(0..5);
    let replica = world.stand_by(&LARGE, None).await;
    let lists = || {
        let records = world.api.audit().records();
        let whole = |record: &&Record| {
            record.verb == Verb::List
                && record.resource == "nodes"
                && record.user_agent.starts_with(AGENT)
        };
        records.iter().filter(whole).count()
    };
    let before = lists();
    replica.lead();
    // A heartbeat.
    sleep(Duration::from_millis(10)).await;
    world.add(7);
    world.assigned(&nodes).await;
    assert_eq!(lists() - before, 1, "the small one that asks for the version");
}

/// W11: the next leader holds what the last one held.
#[tokio::test(start_paused = true)]
async fn the_next_leader_knows_which_blocks_are_held() {
    let world = World::new();
    let arguments = [&SMALL[..], &[NO_ROUTES]].concat();
    let first = world.lead(&arguments).await;
    let nodes = world.add_many(0..4);
    world.assigned(&nodes).await;
    world.remove(&nodes[3]);
    sleep(Duration::from_secs(5)).await;
    let second = world.stand_by(&arguments, Some(&first)).await;
    drop(first);
    second.lead();
    let last = world.add(4);
    sleep(Duration::from_secs(20)).await;
    assert_eq!(world.cidrs(&last), "", "within the grace time");
    second.shows("ccm_ipam_nodes_held", 1.0);
    sleep(FREE).await;
    assert_eq!(world.cidrs(&last), "10.64.3.0/24");
}
