//! Tests a slow cloud: how many answers must be waited for one after another.

use serde_json::json;
use tokio::time::Instant;

use super::*;

/// How long each answer takes.
const ANSWER: Duration = Duration::from_millis(300);

/// Returns a project of ten servers, the first of them gone.
fn rig() -> Rig {
    let rig = Rig::new(Scripted::with_servers(1..10));
    rig.cloud.world.lock().delay = ANSWER;
    rig
}

/// Returns how many answers were waited for one after another since then, and all requests.
fn cost(rig: &Rig, begin: Instant) -> (u128, usize) {
    (begin.elapsed().as_millis() / ANSWER.as_millis(), rig.cloud.operations().len())
}

async fn lookup(rig: &Rig, nodes: &[NodeIdentity]) -> (u128, usize) {
    let begin = Instant::now();
    let answers = rig.look_all(nodes).await;
    assert!(matches!(answers[0], Ok(Lookup::Gone(_))), "{:?}", answers[0]);
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
    // Servers and ports at the same time, then sub-ports, then the network's name: together they
    // take 1.2 s.
    let nodes: Vec<_> = (1..10).map(known).collect();
    let mut outcomes = Vec::new();
    for _ in 0..4 {
        let call = Call::waiting(Duration::from_secs(1));
        let mut answers = rig.instances.lookup(&nodes, Detail::Everything, call).await;
        outcomes.push(answers.remove(0).map_err(|error| error.kind).map(drop));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let late = Err(ccm_cloud::ErrorKind::Timeout);
    assert_eq!(outcomes, [late, Ok(()), Ok(()), Ok(())]);
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
    let nodes: Vec<_> = (0..3).map(known).chain([fresh(3), named(4), named(404)]).collect();
    for lists in [true, false] {
        let call = Call::waiting(Duration::from_secs(30));
        let answers = rig.instances.lookup(&nodes, Detail::Everything, call).await;
        assert!(answers[..5].iter().all(|answer| matches!(answer, Ok(Lookup::Found(_)))));
        let operations = rig.cloud.operations();
        let listed = operations.iter().filter(|operation| **operation == "server_list").count();
        assert_eq!(listed > 4, lists, "{operations:?}");
        // A missing name is proven by a whole list only.
        let error = error(&answers[5]);
        assert!(error.message.contains("several pages"), "{error}");
    }
}

/// With 110 servers, 10 per page, 4 s per page and 30 s per call, the list never ends in time.
#[tokio::test(start_paused = true)]
async fn twenty_nodes_of_a_list_that_is_too_long_are_asked_for_by_id() {
    let rig = Rig::new(Scripted::with_servers(0..110));
    {
        let mut world = rig.cloud.world.lock();
        world.page = Some(10);
        world.delay_of_lists = Duration::from_secs(4);
    }
    let nodes: Vec<_> =
        (0..10).map(|n| known(n * 11)).chain((0..9).map(|n| fresh(n * 11 + 1))).collect();
    let gone = known(404);
    for (lookup, lists) in [(1, 4), (2, 0), (3, 0)] {
        let began = Instant::now();
        let all: Vec<_> = nodes.iter().cloned().chain([gone.clone()]).collect();
        let call = Call::waiting(Duration::from_secs(30));
        let answers = rig.instances.lookup(&all, Detail::Everything, call).await;
        let (last, others) = answers.split_last().unwrap();
        assert!(others.iter().all(|answer| matches!(answer, Ok(Lookup::Found(_)))), "{answers:?}");
        assert!(matches!(last, Ok(Lookup::Gone(_))), "{last:?}");
        let operations = rig.cloud.operations();
        let listed = operations.iter().filter(|operation| **operation == "server_list").count();
        assert_eq!(listed, lists, "lookup {lookup}, {:?}", began.elapsed());
    }
    // Later the list is tried again, because the project may have become smaller.
    tokio::time::advance(Duration::from_mins(10)).await;
    rig.cloud.world.lock().page = None;
    rig.look_all(&nodes).await;
    assert_eq!(rig.cloud.operations().iter().filter(|one| **one == "server_list").count(), 1);
}

/// One server that Nova cannot show fails each list of the project, but no other server.
#[tokio::test]
async fn a_list_that_fails_keeps_no_known_node_waiting() {
    let rig = Rig::new(Scripted::with_servers(0..50));
    let failed = CloudError::new(ccm_cloud::ErrorKind::Unavailable, "HTTP 500");
    let of_list = failed.clone();
    rig.cloud.fail(move |path, _| (path == "/servers/detail").then(|| Err(of_list.clone())));
    let nodes: Vec<_> = (0..20).map(known).chain([fresh(21), named(22)]).collect();
    assert!(rig.look_all(&nodes).await.iter().all(Result::is_ok));
    // While Nova answers nothing at all, it is not asked about each node.
    rig.cloud.operations();
    rig.cloud.fail(move |path, _| path.starts_with("/servers").then(|| Err(failed.clone())));
    assert!(rig.look_all(&nodes).await.iter().all(Result::is_err));
    let operations = rig.cloud.operations();
    assert!(operations.len() <= 12, "{operations:?}");
    // A pause that Nova asks for concerns all requests.
    let pause = CloudError::new(ccm_cloud::ErrorKind::Throttled, "later");
    rig.cloud.fail(move |path, _| (path == "/servers/detail").then(|| Err(pause.clone())));
    assert!(rig.look_all(&nodes).await.iter().all(Result::is_err));
    assert_eq!(rig.cloud.operations(), ["port_list", "server_list"]);
}
