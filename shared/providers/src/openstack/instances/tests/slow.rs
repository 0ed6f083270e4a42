//! A cloud that takes its time: how many answers have to be waited for one after another.

use serde_json::json;
use tokio::time::Instant;

use super::*;

/// How long each answer takes.
const ANSWER: Duration = Duration::from_millis(300);

/// A project of ten servers, the first of them gone.
fn rig() -> Rig {
    let rig = Rig::new(Scripted::with_servers(1..10));
    rig.cloud.world.lock().delay = ANSWER;
    rig
}

/// How many answers were waited for one after another since then, and all requests.
fn cost(rig: &Rig, begin: Instant) -> (u128, usize) {
    (begin.elapsed().as_millis() / ANSWER.as_millis(), rig.cloud.operations().len())
}

async fn lookup(rig: &Rig, nodes: &[NodeIdentity]) -> (u128, usize) {
    let begin = Instant::now();
    let answers = rig.look_all(nodes).await;
    assert!(matches!(answers[0], Ok(Lookup::Gone(_))), "{:?}", answers[0]);
    cost(rig, begin)
}

async fn list(rig: &Rig) -> (u128, usize) {
    let begin = Instant::now();
    assert_eq!(rig.instances.list(Detail::Everything, call()).await.unwrap().instances.len(), 9);
    cost(rig, begin)
}

#[tokio::test(start_paused = true)]
async fn so_many_answers_does_a_gone_node_take() {
    assert_eq!(lookup(&rig(), &[known(0)]).await, (1, 1), "its ID");
    assert_eq!(lookup(&rig(), &[named(0)]).await, (2, 2), "its name, the list");
    assert_eq!(lookup(&rig(), &[fresh(0)]).await, (3, 3), "its UUID, its name, the list");
    let present: Vec<_> = (0..3).map(known).collect();
    assert_eq!(lookup(&rig(), &present).await, (2, 4), "three IDs, the ports");
    let many: Vec<_> = (0..8).map(known).collect();
    assert_eq!(lookup(&rig(), &many).await, (2, 3), "list and ports, then its ID");
}

#[tokio::test(start_paused = true)]
async fn a_list_waits_for_the_ports_only_the_first_time() {
    let rig = rig();
    assert_eq!(list(&rig).await, (2, 2));
    assert_eq!(list(&rig).await, (1, 2));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_comes_too_late_leaves_what_it_has_learnt_to_the_next() {
    let rig = rig();
    {
        let mut world = rig.cloud.world.lock();
        world.delay = Duration::from_millis(400);
        world.ports[0]["trunk_details"] = json!({"sub_ports": [{"port_id": uuid(5_000)}]});
        world.ports.push(json!({
            "id": uuid(5_000), "device_id": "", "status": "ACTIVE", "network_id": uuid(78),
            "fixed_ips": [{"ip_address": "10.9.0.1"}],
        }));
        world.networks.push(json!({"id": uuid(78), "name": "storage"}));
    }
    // Servers, ports, sub-ports, the network's name: all of it takes 1.6 s.
    let mut outcomes = Vec::new();
    for _ in 0..4 {
        let call = Call::waiting(Duration::from_secs(1));
        outcomes.push(
            rig.instances
                .list(Detail::Everything, call)
                .await
                .map_err(|error| error.kind)
                .map(|_| ()),
        );
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let late = Err(ccm_cloud::ErrorKind::Timeout);
    assert_eq!(outcomes, [late, late, Ok(()), Ok(())]);
}

#[tokio::test(start_paused = true)]
async fn a_project_that_takes_too_long_to_list_keeps_no_known_node_waiting() {
    let rig = Rig::new(Scripted::with_servers(0..10));
    {
        let mut world = rig.cloud.world.lock();
        // Eleven pages, and half of a call's time is enough for five.
        world.page = Some(1);
        world.delay = Duration::from_secs(3);
    }
    let nodes: Vec<_> = (0..4).map(known).chain([named(4)]).collect();
    for lists in [true, false] {
        let call = Call::waiting(Duration::from_secs(30));
        let answers = rig.instances.lookup(&nodes, Detail::Everything, call).await;
        assert!(answers[..4].iter().all(|answer| matches!(answer, Ok(Lookup::Found(_)))));
        let operations = rig.cloud.operations();
        let listed = operations.iter().filter(|operation| **operation == "server_list").count();
        assert_eq!(listed > 2, lists, "{operations:?}");
        // Its name is only in the list; later it is searched for.
        assert_eq!(answers[4].is_err(), lists, "{:?}", answers[4]);
    }
}
