//! Mistakes that come together: another client, an edit or a new leader at the wrong moment.

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
    fn set_port(&self, number: usize, port: u16) {
        let ports = json!([{"port": port, "protocol": "TCP", "nodePort": 31000 + number}]);
        self.patch(number, json!({"spec": {"ports": ports}}));
    }
}

/// `node-selector` is wrong, and the brake holds the members. Then another client writes to all load balancers (a
/// fail-over of all amphorae, a tag): their members are forgotten, and the full call names all nodes with their labels.
#[tokio::test(start_paused = true)]
async fn a_write_of_another_client_does_not_empty_what_is_held() {
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
async fn an_edit_after_a_restart_with_another_default_selector_empties_nothing() {
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
        (0..2).for_each(|number| world.set_port(number, 8080));
        sleep(2 * MINUTE).await;
        let members = [0, 1].map(|number| world.members(number));
        assert!(members.iter().all(|count| *count >= NODES - 3), "{members:?} after {wait} min");
    }
}

/// All nodes show another address (a wrong --node-ip, a lie), after a restart, and a user edits a Service.
#[tokio::test(start_paused = true)]
async fn an_edit_after_a_restart_replaces_no_more_addresses_than_the_brake_allows() {
    for edits in [false, true] {
        let mut world = World::with_services(0..1).await;
        world.lies.lock().late_lists = Duration::from_secs(5);
        let last = world.stop();
        for number in 0..NODES {
            let addresses =
                json!([{"type": "InternalIP", "address": format!("10.9.0.{}", number + 1)}]);
            let patch = json!({"status": {"addresses": addresses}});
            let name = World::node_name(number);
            world.api.patch("nodes", &name, "status", PatchKind::Merge, patch).unwrap();
        }
        world.lead_after(last.as_ref()).await;
        if edits {
            world.set_port(0, 8080);
        }
        sleep(30 * MINUTE).await;
        let all = world.ours();
        let moved =
            all[0].members.iter().filter(|one| one.addresses[0].address.starts_with("10.9."));
        let moved = moved.count();
        assert!(moved <= 3, "{moved} of {NODES} were replaced, edit: {edits}");
    }
}

/// The cloud says that it is the same and shows nothing of this cluster (an Octavia with an empty database, an external
/// provider with a constant identity). Somebody creates one Service: its new load balancer is "another object of this
/// cluster", and proves the loss of all others.
#[tokio::test(start_paused = true)]
async fn a_new_service_does_not_prove_that_all_others_are_lost() {
    let world = World::with_services(0..20).await;
    sleep(10 * MINUTE).await;
    let before: Vec<String> = world.ours().into_iter().map(|one| one.id).collect();
    let owners: Vec<String> = (0..20).map(World::service_key).collect();
    let overlook = || Effect::LoadBalancers(owners.clone(), Trouble::Overlook { by_id: true });
    world.lies.lock().hidden = before.clone();
    for (operation, effect) in
        [(Operation::EnsureLoadBalancers, overlook()), (Operation::Lookup, Effect::WrongProject)]
    {
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

/// A neighbour in the same project is a copy of this cluster (blue/green), with its `--cluster-uid` in the copied values, and
/// deletes orphans. It has as many Services as this one.
#[tokio::test(start_paused = true)]
async fn a_copied_cluster_uid_does_not_delete_the_neighbours_load_balancers() {
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

/// A tool that replaces objects takes the annotations from all Services while the list lacks their load balancers.
#[tokio::test(start_paused = true)]
async fn services_without_annotations_in_a_cloud_that_shows_nothing() {
    let world = World::with_services(0..20).await;
    sleep(10 * MINUTE).await;
    let before: Vec<String> = world.ours().into_iter().map(|one| one.id).collect();
    let owners: Vec<String> = (0..20).map(World::service_key).collect();
    world.lies.lock().hidden = before.clone();
    let overlook = Effect::LoadBalancers(owners, Trouble::Overlook { by_id: true });
    world.cloud.faults().add(Fault::new(overlook).on(Operation::EnsureLoadBalancers));
    world.cloud.faults().add(Fault::new(Effect::WrongProject).on(Operation::Lookup));
    sleep(20 * MINUTE).await;
    for number in 0..20 {
        world.patch(number, json!({"metadata": {"annotations": null}}));
    }
    sleep(60 * MINUTE).await;
    let new = world.ours().into_iter().filter(|one| !before.contains(&one.id));
    let new = new.map(|one| one.owners[0].uid.clone()).collect::<BTreeSet<_>>().len();
    assert!(new <= 3, "{new} of 20 have another address");
}

/// The first start after cloud-controller-manager, with a cloud.conf of another project: all Services have an address and the
/// finalizer, and nothing of service-ccm; the cloud shows no load balancer.
#[tokio::test(start_paused = true)]
async fn a_takeover_in_the_wrong_project_gives_no_service_another_address() {
    let mut world = World::with_services(0..20).await;
    world.stop();
    let addresses = |world: &World| {
        let ingress = |number| world.service(number).unwrap()["status"]["loadBalancer"].clone();
        (0..20).map(ingress).collect::<Vec<_>>()
    };
    for number in 0..20 {
        let key = World::service_key(number);
        world.patch(number, json!({"metadata": {"annotations": null}}));
        let patch = json!({"status": {"conditions": null}});
        world.api.patch("services", &key, "status", PatchKind::Merge, patch).unwrap();
    }
    for balancer in world.ours() {
        world.cloud.balancers().remove(&balancer.id).unwrap();
    }
    let before = addresses(&world);
    world.lead_after(None).await;
    sleep(60 * MINUTE).await;
    let after = addresses(&world);
    let changed = before.iter().zip(&after).filter(|(before, after)| before != after).count();
    assert!(
        changed <= 3,
        "{changed} of 20 Services have another address, {} were made",
        world.ours().len()
    );
}
