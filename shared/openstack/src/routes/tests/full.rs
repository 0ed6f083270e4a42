//! Tests a router whose routes are at their maximum.

use super::*;

const ATOMIC: [&str; 3] = ["extraroute", "extraroute-atomic", "allowed-address-pairs"];
const CLASSIC: [&str; 2] = ["extraroute", "allowed-address-pairs"];

/// Returns routers with four routes of ours that take no more: by the maximum of routes, or by the
/// quota, whose refusal does not say how many it allows.
async fn full() -> Vec<Rig> {
    let mut rigs = Vec::new();
    for (extensions, max_routes, route_quota) in [
        (ATOMIC.as_slice(), 4, 1_000),
        (ATOMIC.as_slice(), 1_000, 4),
        (CLASSIC.as_slice(), 4, 1_000),
        (CLASSIC.as_slice(), 1_000, 4),
    ] {
        let rig = Rig::new(20);
        rig.cloud.world.lock().router.extensions = extensions.to_vec();
        let changes: Vec<_> = (0..4).map(create).collect();
        assert_eq!(kinds(&rig.apply(&changes).await), [None; 4]);
        {
            let router = &mut rig.cloud.world.lock().router;
            (router.max_routes, router.route_quota) = (max_routes, route_quota);
        }
        rig.list().await;
        rig.cloud.operations();
        rigs.push(rig);
    }
    rigs
}

fn destinations(rig: &Rig) -> Vec<String> {
    rig.table().into_iter().map(|(destination, _)| destination).collect()
}

fn networks(numbers: &[usize]) -> Vec<String> {
    numbers.iter().map(|number| network(*number).to_string()).collect()
}

#[tokio::test]
async fn a_deletion_makes_room_and_counts_whatever_becomes_of_the_rest() {
    for rig in full().await {
        let answers = rig.apply(&[create(10), create(11), delete(2)]).await;
        assert_eq!(kinds(&answers), [None, Some(ErrorKind::QuotaExceeded), None]);
        assert_eq!(destinations(&rig), networks(&[0, 1, 3, 10]));
        assert_eq!(rig.pairs(2), json!([]));
        assert_eq!(rig.list().await.version, answers[2].as_ref().unwrap().version);
    }
}

#[tokio::test]
async fn routes_that_exchange_their_next_hop_need_no_room() {
    for rig in full().await {
        let moved = |number| RouteChange::Replace {
            old: Box::new(route(number)),
            new: wanted(number, &hop(number + 5)),
        };
        let answers = rig.apply(&[moved(0), create(10), moved(1), create(2)]).await;
        assert_eq!(kinds(&answers), [None, Some(ErrorKind::QuotaExceeded), None, None]);
        let mut table = destinations(&rig);
        table.sort();
        assert_eq!(table, networks(&[0, 1, 2, 3]));
        assert!(rig.table().contains(&(network(1).to_string(), hop(6))), "{:?}", rig.table());
    }
}

#[tokio::test]
async fn deletions_are_done_though_nothing_more_fits() {
    for rig in full().await {
        {
            let router = &mut rig.cloud.world.lock().router;
            (router.max_routes, router.route_quota) =
                (router.max_routes.min(3), router.route_quota.min(3));
        }
        let answers = rig.apply(&[create(10), delete(2), create(11)]).await;
        let full = Some(ErrorKind::QuotaExceeded);
        assert_eq!(kinds(&answers), [full, None, full]);
        assert_eq!(destinations(&rig), networks(&[0, 1, 3]));
        assert_eq!(rig.list().await.version, answers[1].as_ref().unwrap().version);
    }
}

#[tokio::test]
async fn removals_are_one_request_and_additions_another_one() {
    for extensions in [ATOMIC.as_slice(), CLASSIC.as_slice()] {
        let rig = Rig::new(20);
        rig.change_ports(|port| port["port_security_enabled"] = json!(false));
        rig.cloud.world.lock().router.extensions = extensions.to_vec();
        let changes: Vec<_> = (0..4).map(create).collect();
        assert_eq!(kinds(&rig.apply(&changes).await), [None; 4]);
        for (changes, expect) in [
            (vec![delete(0), create(7), delete(1)], 2),
            (vec![delete(2), delete(3)], 1),
            (vec![create(8), create(9)], 1),
        ] {
            rig.cloud.operations();
            assert!(rig.apply(&changes).await.iter().all(Result::is_ok));
            let made = rig.cloud.operations();
            let writes = made.iter().filter(|operation| **operation == "router_update").count();
            assert_eq!(writes, expect, "{made:?}");
        }
    }
}

#[tokio::test]
async fn where_there_are_more_than_may_be_each_part_is_refused_once() {
    for rig in full().await {
        {
            let router = &mut rig.cloud.world.lock().router;
            (router.max_routes, router.route_quota) =
                (router.max_routes.min(1), router.route_quota.min(1));
        }
        let answers = rig.apply(&[delete(0), delete(1), create(10)]).await;
        assert_eq!(kinds(&answers), [Some(ErrorKind::QuotaExceeded); 3]);
        assert_eq!(rig.table().len(), 4);
        let made = rig.cloud.operations();
        let writes = made.iter().filter(|operation| **operation == "router_update").count();
        assert!(writes <= 2, "{made:?}");
    }
}
