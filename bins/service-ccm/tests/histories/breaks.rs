//! Breaks.

use std::{collections::BTreeSet, time::Duration};

use ccm_sim::{
    apiserver::PatchKind,
    cloud::Operation,
    faults::{Effect, Fault, Trouble},
};
use serde_json::json;
use tokio::time::sleep;

use crate::{
    cases::SOON,
    world::{NODES, World},
};

const MINUTE: Duration = Duration::from_mins(1);

impl World {
    fn brk_ports(&self, number: usize, port: u16) {
        let ports = json!([{"port": port, "protocol": "TCP", "nodePort": 31000 + number}]);
        self.patch(number, json!({"spec": {"ports": ports}}));
    }
}

/// `node-selector` is wrong, and the brake holds the members. Then another client writes to all load balancers (a
/// fail-over of all amphorae, a tag): their members are forgotten, and the full call names all nodes with their labels.
#[tokio::test(start_paused = true)]
async fn brk_a_write_of_another_client_does_not_empty_what_is_held() {
    let world = World::with_services(0..2).await;
    world.cloud.balancers().configure(|settings| settings.traits.member_labels = true);
    sleep(SOON).await;
    world.cloud.balancers().configure(|settings| settings.node_selector = "pool=egde".into());
    sleep(MINUTE).await;
    assert_eq!([0, 1].map(|number| world.members(number)), [NODES - 3; 2]);
    // A list takes as long as one of some hundred load balancers.
    world.lies.lock().late_lists = Duration::from_secs(5);
    for balancer in world.ours() {
        world.cloud.balancers().update(&balancer.id, |_| {});
    }
    sleep(20 * MINUTE).await;
    assert_eq!([0, 1].map(|number| world.members(number)), [NODES - 3; 2]);
}

/// The new `cloud.conf` comes with a restart, and a user edits a Service within half an hour.
#[tokio::test(start_paused = true)]
async fn brk_an_edit_after_a_restart_with_another_default_selector_empties_nothing() {
    for wait in [0, 10] {
        let mut world = World::with_services(0..2).await;
        world.cloud.balancers().configure(|settings| settings.traits.member_labels = true);
        // All is settled, and the next leader reads no members at once.
        sleep(20 * MINUTE).await;
        world.lies.lock().late_lists = Duration::from_secs(5);
        let last = world.stop();
        assert!(last.is_some());
        world.cloud.balancers().configure(|settings| settings.node_selector = "pool=egde".into());
        world.lead_after(last.as_ref()).await;
        sleep(wait * MINUTE).await;
        (0..2).for_each(|number| world.brk_ports(number, 8080));
        sleep(2 * MINUTE).await;
        let members = [0, 1].map(|number| world.members(number));
        println!("{members:?} after {wait} min; {:?}", world.cloud.calls().load_balancers);
        assert!(members.iter().all(|count| *count >= NODES - 3), "{members:?} after {wait} min");
    }
}

/// All nodes show another address (a wrong --node-ip, a lie), after a restart, and a user edits a Service.
#[tokio::test(start_paused = true)]
async fn brk_an_edit_after_a_restart_replaces_no_more_addresses_than_the_brake_allows() {
    for edits in [false, true] {
        let mut world = World::with_services(0..1).await;
        world.lies.lock().late_lists = Duration::from_secs(5);
        let last = world.stop();
        for number in 0..NODES {
            let addresses = json!([{"type": "InternalIP", "address": format!("10.9.0.{}", number + 1)}]);
            let patch = json!({"status": {"addresses": addresses}});
            let name = World::node_name(number);
            world.api.patch("nodes", &name, "status", PatchKind::Merge, patch).unwrap();
        }
        world.lead_after(last.as_ref()).await;
        if edits {
            world.brk_ports(0, 8080);
        }
        sleep(30 * MINUTE).await;
        let all = world.ours();
        let moved = all[0].members.iter().filter(|one| one.addresses[0].address.starts_with("10.9."));
        let moved = moved.count();
        assert!(moved <= 3, "{moved} of {NODES} were replaced, edit: {edits}");
    }
}

/// The cloud says that it is the same and shows nothing of this cluster (an Octavia with an empty database, an external
/// provider with a constant identity). Somebody creates one Service: its new load balancer is "another object of this
/// cluster", and proves the loss of all others.
#[tokio::test(start_paused = true)]
async fn brk_a_new_service_does_not_prove_that_all_others_are_lost() {
    let world = World::with_services(0..20).await;
    sleep(10 * MINUTE).await;
    let before: Vec<String> = world.ours().into_iter().map(|one| one.id).collect();
    let owners: Vec<String> = (0..20).map(World::service_key).collect();
    let overlook = || Effect::LoadBalancers(owners.clone(), Trouble::Overlook { by_id: true });
    world.lies.lock().hidden = before.clone();
    for (operation, effect) in [
        (Operation::EnsureLoadBalancers, overlook()),
        (Operation::Lookup, Effect::WrongProject),
    ] {
        world.cloud.faults().add(Fault::new(effect).on(operation));
    }
    sleep(60 * MINUTE).await;
    let new = |world: &World| {
        let new = world.ours().into_iter().filter(|one| !before.contains(&one.id));
        new.map(|one| one.owners[0].uid.clone()).collect::<BTreeSet<_>>().len()
    };
    assert_eq!(new(&world), 0, "nothing was made again");
    world.create(20);
    sleep(6 * 60 * MINUTE).await;
    let made = new(&world);
    // The lie ends.
    world.cloud.faults().clear();
    world.lies.lock().hidden.clear();
    sleep(20 * MINUTE).await;
    let left = world.ours().iter().filter(|one| before.contains(&one.id)).count();
    println!("{made} new; {left} of the 20 old ones are left after the lie has ended");
    assert_eq!((made, left), (1, 20), "the one of the new Service");
}

/// A person approves on the Lease that held members leave, as documented for planned work. Meanwhile the cloud shows nothing.
#[tokio::test(start_paused = true)]
async fn brk_an_approval_of_members_is_none_of_new_load_balancers() {
    let world = World::with_services(0..20).await;
    let before: Vec<String> = world.ours().into_iter().map(|one| one.id).collect();
    let annotations = world.running().context.leadership.annotations().clone();
    annotations.annotate("quartet.dev/approved-selector", Some("*"));
    annotations.annotate("quartet.dev/approved-until", Some("2999-01-01T00:00:00Z"));
    sleep(MINUTE).await;
    let owners: Vec<String> = (0..20).map(World::service_key).collect();
    let overlook = || Effect::LoadBalancers(owners.clone(), Trouble::Overlook { by_id: true });
    world.lies.lock().hidden = before.clone();
    for (operation, effect) in [
        (Operation::EnsureLoadBalancers, overlook()),
        (Operation::Lookup, Effect::WrongProject),
    ] {
        world.cloud.faults().add(Fault::new(effect).on(operation));
    }
    sleep(60 * MINUTE).await;
    let new = world.ours().into_iter().filter(|one| !before.contains(&one.id));
    let new = new.map(|one| one.owners[0].uid.clone()).collect::<BTreeSet<_>>().len();
    assert!(new <= 3, "{new} of 20 have another address");
}

/// Three nodes go, and three others take their places under the next leader. The one after it charges the three again.
#[tokio::test(start_paused = true)]
async fn brk_places_that_were_taken_are_not_charged_by_the_leader_after_the_next() {
    let mut world = World::with_services(0..1).await;
    sleep(2 * MINUTE).await;
    for number in 0..3 {
        world.api.delete("nodes", &World::node_name(number)).unwrap();
    }
    sleep(2 * MINUTE).await;
    assert_eq!(world.members(0), NODES - 3);
    world.restart().await;
    sleep(40 * MINUTE).await;
    (20..23).for_each(|number| world.add_node(number));
    sleep(5 * MINUTE).await;
    assert_eq!(world.members(0), NODES);
    world.restart().await;
    sleep(40 * MINUTE).await;
    world.api.delete("nodes", &World::node_name(5)).unwrap();
    sleep(5 * MINUTE).await;
    assert_eq!(world.members(0), NODES - 1);
}

/// An external provider that selects members by labels which it alone knows: a mistake takes the label from all nodes.
#[tokio::test(start_paused = true)]
async fn brk_labels_that_only_the_provider_reads_are_braked() {
    let mut world = World::with_services(0..2).await;
    world.stop();
    world.lies.lock().is_opaque = true;
    let label = |world: &World, value: &str| {
        for number in 0..NODES {
            world.patch_node(number, json!({"metadata": {"labels": {"pool": value}}}));
        }
    };
    label(&world, "blue");
    world.cloud.balancers().configure(|settings| {
        settings.traits.member_labels = true;
        settings.node_selector = "pool=blue".into();
    });
    world.restart().await;
    sleep(40 * MINUTE).await;
    assert_eq!([0, 1].map(|number| world.members(number)), [NODES; 2]);
    label(&world, "bleu");
    sleep(MINUTE).await;
    let members = [0, 1].map(|number| world.members(number));
    assert!(members.iter().all(|count| *count >= NODES / 2), "{members:?} of {NODES} stay");
}

/// A neighbour in the same project is a copy of this cluster (blue/green), with its `--cluster-uid` in the copied values, and
/// deletes orphans. It has as many Services as this one.
#[tokio::test(start_paused = true)]
async fn brk_a_copied_cluster_uid_does_not_delete_the_neighbours_load_balancers() {
    let mut world = World::with_services(0..20).await;
    // What the other cluster has made under the same UID of the cluster, for Services of the same names.
    for mut theirs in world.ours() {
        theirs.id = format!("theirs-{}", theirs.id);
        theirs.owners[0].uid = format!("theirs-{}", theirs.owners[0].uid);
        world.cloud.balancers().add(theirs);
    }
    world.wrong = Some("--orphaned-load-balancers=delete");
    world.restart().await;
    sleep(6 * 60 * MINUTE).await;
    let theirs = world.cloud.balancers().all();
    let left = theirs.iter().filter(|one| one.id.starts_with("theirs-")).count();
    assert!(left >= 16, "{left} of 20 of the other cluster are left");
}
