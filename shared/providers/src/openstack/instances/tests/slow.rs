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
    assert_eq!(rig.instances.list(CALL).await.unwrap().instances.len(), 9);
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

/// How often the servers were listed.
fn lists(rig: &Rig) -> usize {
    rig.cloud.operations().iter().filter(|operation| **operation == "server_list").count()
}

#[tokio::test(start_paused = true)]
async fn who_asks_at_the_same_moment_shares_one_list() {
    let rig = rig();
    let nodes: Vec<_> = (0..8).map(known).collect();
    for _ in 0..2 {
        let (found, fleet) = tokio::join!(rig.look_all(&nodes), rig.instances.list(CALL));
        assert!(matches!(found[0], Ok(Lookup::Gone(_))), "{:?}", found[0]);
        assert!(found[1..].iter().all(Result::is_ok));
        assert_eq!(fleet.unwrap().instances.len(), 9);
        assert_eq!(lists(&rig), 1);
    }
    // Routine work waits behind other work, and a call with less time ends sooner.
    for other in [Call::routine(CALL.timeout), Call::waiting(Duration::from_secs(60))] {
        let (found, fleet) = tokio::join!(rig.look_all(&nodes), rig.instances.list(other));
        assert!(found[1].is_ok() && fleet.is_ok());
        assert_eq!(lists(&rig), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_is_answered_by_a_list_that_was_asked_for_before() {
    let rig = rig();
    let late = async {
        tokio::time::sleep(Duration::from_millis(1)).await;
        // It is gone now, which the list under way may not know.
        rig.cloud.world.lock().servers.clear();
        rig.instances.list(CALL).await
    };
    let (early, late) = tokio::join!(rig.instances.list(CALL), late);
    assert!(early.is_ok());
    assert_eq!(late.unwrap().instances.len(), 0);
    assert_eq!(lists(&rig), 2);
}

#[tokio::test(start_paused = true)]
async fn a_list_is_not_lost_with_the_one_who_asked_first() {
    let rig = rig();
    let first = tokio::time::timeout(ANSWER / 2, rig.instances.list(CALL));
    let (first, second) = tokio::join!(first, rig.instances.list(CALL));
    assert!(first.is_err());
    assert_eq!(second.unwrap().instances.len(), 9);
    assert_eq!(lists(&rig), 1);
    // Given up before anything was sent, and taken up much later.
    drop(futures::poll!(std::pin::pin!(rig.instances.list(CALL))));
    tokio::time::advance(Duration::from_mins(1)).await;
    assert_eq!(rig.instances.list(CALL).await.unwrap().instances.len(), 9);
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
    let call = Call::waiting(Duration::from_secs(1));
    let mut outcomes = Vec::new();
    for _ in 0..4 {
        outcomes.push(rig.instances.list(call).await.map_err(|error| error.kind).map(|_| ()));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let late = Err(ccm_cloud::ErrorKind::Timeout);
    assert_eq!(outcomes, [late, late, Ok(()), Ok(())]);
}
