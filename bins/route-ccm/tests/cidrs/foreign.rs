//! Pod CIDRs that other clients write, and another allocator.

use super::*;

/// The metric of upstream's controller, in its own name.
const RUNNING: &str = "running_managed_controllers{name=\"node-ipam-controller\",manager=\"cloud-controller-manager\"}";

impl World {
    /// Registers a node that has this pod CIDR from the start, as of a backup or of its kubelet.
    fn add_assigned(&self, number: usize, cidr: &str) -> String {
        let name = SimInstance::numbered(number).name;
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
            "spec": {"podCIDR": cidr, "podCIDRs": [cidr]},
        });
        self.api.create(node).unwrap();
        name
    }

    /// Another allocator is faster: it gives these nodes these pod CIDRs.
    pub(super) async fn assigned_by_another(&self, nodes: &[(usize, &str)]) -> Vec<String> {
        let forbidden = Action::Status { code: 403, retry_after: None };
        let fault = self.api.faults().add(Self::fault(forbidden));
        let mut names = Vec::new();
        for (number, cidr) in nodes {
            let name = self.add(*number);
            sleep(Duration::from_millis(100)).await;
            self.assign(&name, cidr);
            names.push(name);
        }
        self.api.faults().remove(fault);
        names
    }
}

/// A kubelet's credentials, a saved manifest, a virtual kubelet, a backup of etcd.
#[tokio::test(start_paused = true)]
async fn pod_cidrs_of_other_clients_are_respected_and_reported_and_assignment_goes_on() {
    let world = World::new();
    let leader = world.lead(&LARGE).await;
    let nodes = world.add_many(0..3);
    world.assigned(&nodes).await;
    // That of another node, the next one, and one anywhere.
    let foreign: Vec<_> = [(10, "10.64.1.0/24"), (11, "10.64.3.0/24"), (12, "10.64.200.0/24")]
        .map(|(number, cidr)| world.add_assigned(number, cidr))
        .into();
    sleep(Duration::from_secs(1)).await;
    let more = world.add_many(3..6);
    sleep(Duration::from_secs(10)).await;
    let cidrs: Vec<_> = more.iter().map(|name| world.cidrs(name)).collect();
    assert_eq!(cidrs, ["10.64.4.0/24", "10.64.5.0/24", "10.64.6.0/24"]);
    for name in &foreign {
        assert_eq!(world.count_events(name, "ForeignPodCIDR"), 1, "{name}");
        assert_eq!(world.count_events(name, "AnotherCIDRAllocator"), 0, "{name}");
    }
    assert_eq!(world.count_events(&more[0], "ForeignPodCIDR"), 0);
    leader.shows("ccm_ipam_foreign_pod_cidrs_total", 3.0);
    leader.shows("ccm_ipam_stopped", 0.0);
    leader.shows(RUNNING, 1.0);
}

/// It has the right to write to its own node alone.
#[tokio::test(start_paused = true)]
async fn one_kubelet_cannot_stop_the_assignment() {
    let world = World::new();
    let leader = world.lead(&[&LARGE[..], &[NO_ROUTES]].concat()).await;
    let nodes = world.add_many(0..3);
    world.assigned(&nodes).await;
    for (at, cidr) in
        ["10.64.1.0/24", "10.64.3.0/24", "10.64.4.0/24", "10.64.2.0/24"].iter().enumerate()
    {
        let evil = world.assigned_by_another(&[(20, *cidr)]).await;
        sleep(Duration::from_secs(5)).await;
        leader.shows("ccm_ipam_foreign_pod_cidrs_total", (at + 1) as f64);
        world.remove(&evil[0]);
    }
    let more = world.add_many(3..6);
    world.assigned(&more).await;
    leader.shows("ccm_ipam_stopped", 0.0);
}

/// W12.
#[tokio::test(start_paused = true)]
async fn another_allocator_stops_ours_and_each_node_that_waits_says_so() {
    let world = World::new();
    let leader = world.lead(&LARGE).await;
    let nodes = world.add_many(0..3);
    world.assigned(&nodes).await;
    leader.shows(RUNNING, 1.0);
    // It counts as ours does, and is one block ahead.
    let theirs = world.assigned_by_another(&[(3, "10.64.4.0/24"), (4, "10.64.5.0/24")]).await;
    sleep(Duration::from_secs(1)).await;
    leader.shows("ccm_ipam_stopped", 1.0);
    leader.shows(RUNNING, 0.0);
    let late = world.add(5);
    sleep(Duration::from_secs(70)).await;
    assert_eq!(world.cidrs(&late), "");
    let Verdict::Failed(why) = leader.health("pod-cidrs") else { panic!("not failed") };
    let (status, _, text) = world.condition(&late).unwrap();
    assert_eq!(status, "True");
    for part in ["node-00003", "node-00004", "--allocate-node-cidrs"] {
        assert!(why.contains(part) && text.contains(part), "{why} {text}");
    }
    assert_eq!(world.count_events(&late, "CIDRNotAvailable"), 1);
    assert_eq!(world.count_events(&late, "NoPodCIDR"), 0, "the flag is set");
    leader.shows("ccm_ipam_nodes_waiting", 1.0);
    let page: Value = serde_json::from_str(&leader.process.context.plans.json(None)).unwrap();
    assert_eq!(page["held"]["pod-cidrs"], json!(1));
    let events = theirs.iter().map(|name| world.count_events(name, "AnotherCIDRAllocator"));
    assert_eq!(events.sum::<usize>(), 1);
    let events = world.api.list("events").into_iter();
    let events = events.filter(|event| event["involvedObject"]["name"] == *theirs[1]);
    let ours = events.filter(|event| event["reason"] != "RouteCreated");
    let components: Vec<_> = ours.map(|event| event["source"]["component"].clone()).collect();
    assert!(components.iter().all(|one| one == "cidrAllocator"), "{components:?}");
    // Routes go on.
    assert_eq!(world.cloud.router().len(), 5);

    // The other one assigns on: ours does not.
    for number in 6..12 {
        let other = world.add(number);
        world.assign(&other, &format!("10.64.{}.0/24", 100 + number));
        sleep(Duration::from_mins(4)).await;
        assert_eq!(world.cidrs(&late), "", "after {number}");
        leader.shows("ccm_ipam_stopped", 1.0);
    }
    // It is switched off.
    sleep(Duration::from_mins(3)).await;
    assert_eq!(world.cidrs(&late), "10.64.6.0/24");
    leader.shows("ccm_ipam_stopped", 0.0);
    leader.shows("ccm_ipam_nodes_waiting", 0.0);
    leader.shows(RUNNING, 1.0);
    let more = world.add_many(12..15);
    world.assigned(&more).await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_of_ours_is_no_pod_cidr_of_others() {
    let world = World::new();
    let leader = world.lead(&LARGE).await;
    world.api.faults().add(World::fault(Action::DropAfterApply).chance(0.5));
    let nodes = world.add_many(0..20);
    world.assigned(&nodes).await;
    sleep(Duration::from_mins(1)).await;
    leader.shows("ccm_ipam_foreign_pod_cidrs_total", 0.0);
}

/// Two nodes bring all blocks. Those that were here before the blocks had their size keep larger ones.
#[tokio::test(start_paused = true)]
async fn a_pod_cidr_that_is_wider_than_a_block_takes_no_block() {
    let world = World::new();
    let older = world.add_assigned(9, "10.64.2.0/23");
    sleep(Duration::from_secs(2)).await;
    let first = world.lead(&[SMALL.as_slice(), &[NO_ROUTES]].concat()).await;
    sleep(Duration::from_secs(2)).await;
    let wide = world.add_assigned(10, "10.64.0.0/23");
    let nodes = world.add_many(0..1);
    world.assigned(&nodes).await;
    let next = world.stand_by(&[SMALL.as_slice(), &[NO_ROUTES]].concat(), Some(&first)).await;
    drop(first);
    next.lead();
    let nodes = [nodes, world.add_many(1..2)].concat();
    world.assigned(&nodes).await;
    assert_eq!(world.cidrs(&nodes[0]), "10.64.0.0/24");
    assert_eq!(world.cidrs(&nodes[1]), "10.64.1.0/24");
    let more = world.add(2);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(world.cidrs(&more), "", "the older node keeps its own");
    for (name, expect) in [(&wide, "is wider than a block of /24"), (&older, "it is kept")] {
        let events = world.events(name);
        let mut strange = events.iter().filter(|(reason, _)| reason == "InvalidPodCIDR");
        assert!(strange.any(|(_, text)| text.contains(expect)), "{events:?}");
    }
}
