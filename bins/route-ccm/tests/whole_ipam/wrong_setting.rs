//! A wrong setting that affects the pod CIDRs of all nodes is in force for a night.

use std::collections::BTreeMap;

use ccm_tests::in_process::sample;

use super::*;

/// The time in which nobody looks.
const NIGHT: Duration = Duration::from_hours(6);
/// Within this time the alerts begin.
const MINUTES: Duration = Duration::from_mins(2);
const NODES: usize = 20;
const RANGE: [&str; 2] = ["--allocate-node-cidrs", "--cluster-cidr=10.64.0.0/16"];
const CLOUD: [&str; 3] = [RANGE[0], RANGE[1], "--cidr-allocator-type=CloudAllocator"];

impl World {
    /// Returns twenty nodes that serve, with a leader with these arguments. The cloud names pod
    /// CIDRs of its instances.
    async fn serving(arguments: &[&str]) -> (Self, Replica, Vec<String>) {
        let world = Self::new();
        let leader = world.lead(arguments).await;
        let nodes: Vec<String> = (0..NODES).map(|number| world.add_with_cidr(number)).collect();
        world.assigned(&nodes).await;
        sleep(MINUTES).await;
        (world, leader, nodes)
    }

    /// Registers a node for whose instance the cloud names a pod CIDR.
    fn add_with_cidr(&self, number: usize) -> String {
        let name = self.add(number);
        let cidr = format!("10.64.{}.0/24", 255 - number).parse().unwrap();
        let id = SimInstance::numbered(number).id;
        self.cloud.update(&id, |instance| instance.pod_cidrs = vec![cidr]);
        name
    }

    /// Returns the serving state: the pod CIDR of each node and what it says of its network, and
    /// the routes.
    fn serves(&self, nodes: &[String]) -> (Vec<(String, String)>, BTreeMap<String, String>) {
        let node = |name: &String| (self.cidrs(name), self.condition(name).unwrap().0);
        let routes = self.cloud.router().all().into_iter();
        let route = |one: ccm_sim::cloud::routes::SimRoute| {
            (one.destination.to_string(), format!("{:?}", one.target))
        };
        (nodes.iter().map(node).collect(), routes.map(route).collect())
    }
}

#[tokio::test(start_paused = true)]
async fn a_wrong_source_or_network_of_pod_cidrs_changes_none_and_no_route() {
    let wrong: [(&[&str], &[&str]); 7] = [
        (&RANGE, &CLOUD),
        (&CLOUD, &RANGE),
        (&RANGE, &["--allocate-node-cidrs", "--cluster-cidr=10.65.0.0/16"]),
        (&RANGE, &["--allocate-node-cidrs", "--cluster-cidr=10.64.0.0/21"]),
        (&RANGE, &["--allocate-node-cidrs", "--cluster-cidr=fd00::/48"]),
        (&RANGE, &["--allocate-node-cidrs", RANGE[1], "--node-cidr-mask-size=26"]),
        (&RANGE, &[RANGE[1]]),
    ];
    for (right, wrong) in wrong {
        let (world, mut leader, nodes) = World::serving(right).await;
        let before = world.serves(&nodes);
        for arguments in [wrong, right] {
            let next = world.stand_by(arguments, Some(&leader)).await;
            drop(std::mem::replace(&mut leader, next));
            leader.lead();
            sleep(if arguments == wrong { NIGHT } else { MINUTES }).await;
            assert_eq!(world.serves(&nodes), before, "{arguments:?}");
        }
    }
}

/// A node that joins in the meantime waits and shows that, or gets the pod CIDRs of the setting.
#[tokio::test(start_paused = true)]
async fn a_node_that_joins_with_a_wrong_source_of_pod_cidrs_waits_until_it_is_right() {
    let (world, leader, _) = World::serving(&RANGE).await;
    let next = world.stand_by(&CLOUD, Some(&leader)).await;
    drop(leader);
    next.lead();
    let name = world.add(NODES);
    sleep(MINUTES).await;
    next.shows("ccm_ipam_nodes_waiting", 1.0);
    assert!(matches!(next.health("pod-cidrs"), Verdict::Failed(_)));
    sleep(NIGHT).await;
    assert_eq!(world.cidrs(&name), "");
    let last = world.stand_by(&RANGE, Some(&next)).await;
    drop(next);
    last.lead();
    world.assigned(&[name]).await;
}

/// With another name or namespace of the Lease the next leader does not find data, and the last one
/// still leads.
#[tokio::test(start_paused = true)]
async fn another_lease_changes_no_pod_cidr_and_two_allocators_notice_each_other() {
    for flag in ["--leader-elect-resource-name=other", "--leader-elect-resource-namespace=other"] {
        let (world, first, nodes) = World::serving(&RANGE).await;
        let before = world.serves(&nodes);
        let second = world.lead(&[RANGE[0], RANGE[1], flag]).await;
        sleep(NIGHT).await;
        assert_eq!(world.serves(&nodes), before);
        assert_eq!([&first, &second].map(stopped), [0, 0]);
        let more = world.add_many(NODES..NODES + 5);
        world.assigned(&more).await;
        sleep(NIGHT).await;
        assert_eq!(world.serves(&nodes).0, before.0);
        // This write met the write of the other leader.
        assert_eq!(stopped(&first) + stopped(&second), 1);
    }
}

fn stopped(replica: &Replica) -> u8 {
    sample(&replica.process.context.metrics, "ccm_ipam_stopped ")
}
