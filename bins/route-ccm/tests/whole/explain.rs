//! The page `/explain` about nodes and routes.

use std::time::Duration;

use ccm_sim::cloud::SimCloud;
use serde_json::json;
use tokio::time::sleep;

use crate::world::{World, cidr, name, node};

/// Checks that the page has these parts in its first three lines: its state, the cause and the
/// fix.
fn says(page: &str, [state, cause, fix]: [&str; 3]) {
    let lines: Vec<&str> = page.lines().take(3).collect();
    let [first, second, third] = lines[..] else { panic!("{page}") };
    assert!(first.ends_with(&format!(": {state}")), "{state:?}: {page}");
    assert!(second.starts_with("cause:") && second.contains(cause), "{cause:?}: {page}");
    assert!(third.starts_with("fix:") && third.contains(fix), "{fix:?}: {page}");
}

fn explains(world: &World, kind: &str, name: &str, lines: [&str; 3]) -> String {
    let page = world.running().explain(kind, name);
    says(&page, lines);
    page
}

#[tokio::test(start_paused = true)]
async fn what_the_brake_holds_says_how_it_is_let_go() {
    let cloud = SimCloud::new();
    let world = World::start(&cloud, "c-1", &["--route-loss=3", "--node-selector=!edge"]).await;
    let mut edge = node(&name(10), &[&cidr(10)]);
    edge["metadata"]["labels"] = json!({"edge": "yes"});
    world.add(edge);
    for number in 1..10 {
        let mut node = node(&name(number), &[&cidr(number)]);
        node["metadata"]["labels"] = json!({"kubernetes.io/hostname": name(number)});
        world.add(node);
    }
    world.reachable(1..10).await;
    world.delete_nodes(1..9);
    world.until("three routes are gone", |world| world.routes().len() == 6).await;
    sleep(Duration::from_secs(5)).await;
    let held = [
        "held",
        "as many routes were deleted as --route-loss allows",
        "kubectl -n kube-system annotate lease route-ccm --overwrite 'quartet.dev/approved-selector=kubernetes.io/hostname=node-08' \"quartet.dev/approved-until=$(date -u -d '+10 minutes' +%FT%TZ)\"",
    ];
    let page = explains(&world, "Node", &name(8), held);
    assert!(page.contains("next:    the budget may allow it at "), "{page}");
    let page = explains(&world, "Route", &cidr(8), held);
    assert!(page.contains("decided: delete"), "{page}");
    explains(&world, "Node", &name(9), ["fine", "10.244.9.0/24", "nothing has to be done"]);
    let left_out = ["not responsible", "--node-selector does not select it", "nothing has to be"];
    explains(&world, "Node", &name(10), left_out);
    // The page is right.
    world
        .running()
        .annotate_lease("quartet.dev/approved-selector", Some("kubernetes.io/hostname=node-08"));
    let until = ccm_base::clock::wall() + Duration::from_mins(10);
    world.running().annotate_lease("quartet.dev/approved-until", Some(&until.to_string()));
    world.until("another one is gone", |world| !world.routes().contains_key(&cidr(8))).await;
    explains(
        &world,
        "Node",
        &name(8),
        ["unknown", "not show a node \"node-08\"", "check the name"],
    );
}
