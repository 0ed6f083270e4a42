//! Random histories of node IPAM as a whole, without and with routes: nodes come, go and come back under their name, also while
//! they are looked up or written; the API server and the cloud answer late, wrongly or not at all;
//! other clients write pod CIDRs; leaders change. No rule is broken at any time, and after each history
//! everything converges. The mutants of `cidrs` and `ipam` are the variants without a protection.

use ccm_cloud::RouteTarget;
use ccm_sim::{
    cloud::Operation,
    faults::{self, Effect, Trouble},
};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use tokio::time::Instant;

use super::*;

/// The histories of each allocator in one run.
const HISTORIES: u64 = 20;
const EVENTS: usize = 40;
/// Fewer than the blocks: each node gets one in the end.
const NODES: usize = 6;
const RANGE: [&str; 4] =
    ["--allocate-node-cidrs", "--cluster-cidr=10.9.0.0/20", "--node-cidr-mask-size=24", NO_ROUTES];
const CLOUD: [&str; 4] = [
    "--allocate-node-cidrs",
    "--cluster-cidr=10.9.0.0/20",
    "--cidr-allocator-type=CloudAllocator",
    NO_ROUTES,
];
const ROUTED: [&str; 4] = [
    "--allocate-node-cidrs",
    "--cluster-cidr=10.9.0.0/20",
    "--node-cidr-mask-size=24",
    "--route-loss=1000",
];
const USED: &str = "node_ipam_controller_cidrset_usage_cidrs{clusterCIDR=\"10.9.0.0/20\"}";
/// Longer than any back-off, and than the grace time of blocks.
const SETTLED: Duration = Duration::from_mins(3);
/// So many writes a minute and node at most, whatever the answers are.
const WRITES: u64 = 15;

struct History {
    random: StdRng,
    world: World,
    leader: Replica,
    arguments: &'static [&'static str],
    /// Nodes that got pod CIDRs of other clients since this leader leads, at most.
    foreign: usize,
    begun: Instant,
    /// The pod CIDRs that nodes have had, with the UIDs of the nodes.
    given: BTreeSet<(String, String)>,
}

impl History {
    async fn begin(seed: u64, arguments: &'static [&'static str]) -> Self {
        let world = World::new();
        // Without that, the next leader does not know whose a route is if its target exists.
        world.cloud.router().configure(|settings| settings.traits.records_owner = true);
        let leader = world.lead(arguments).await;
        let random = StdRng::seed_from_u64(seed);
        Self {
            random,
            world,
            leader,
            arguments,
            foreign: 0,
            begun: Instant::now(),
            given: BTreeSet::new(),
        }
    }

    fn below(&mut self, end: usize) -> usize {
        self.random.random_range(0..end)
    }

    fn millis(&mut self, most: u64) -> Duration {
        Duration::from_millis(self.random.random_range(0..most))
    }

    fn is_there(&self, number: usize) -> bool {
        self.world.api.get("nodes", &SimInstance::numbered(number).name).is_some()
    }

    async fn step(&mut self) {
        let number = self.below(NODES);
        match self.below(100) {
            0..35 => self.join(number),
            35..60 => self.leave(number),
            60..68 => self.name_cidr(number),
            68..80 => self.disturb_writes(),
            80..90 if self.arguments == ROUTED => self.disturb_routes(),
            80..90 => self.disturb_lookups(),
            90..93 => self.another_assigns(number),
            93..96 if self.arguments != CLOUD => self.wide(),
            _ => self.change_leader().await,
        }
        // Often less than an answer takes.
        let most = if self.below(3) == 0 { 20_000 } else { 2_000 };
        let wait = self.millis(most);
        self.watch(wait).await;
        self.world.are_distinct();
        let writes = self.world.patches();
        let minutes = self.begun.elapsed().as_secs() / 60 + 1;
        let most = WRITES * NODES as u64 * minutes;
        assert!(writes as u64 <= most, "{writes} writes in {minutes} min");
    }

    /// Waits. No node gets a block to which there is a route that leads elsewhere.
    async fn watch(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            for node in self.world.api.list("nodes") {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let block = text(&node["spec"]["podCIDR"]);
                let is_new = self.given.insert((block.clone(), text(&node["metadata"]["uid"])));
                let Some(network) = block.parse().ok().filter(|_| is_new) else { continue };
                let own = &node["status"]["addresses"][0]["address"];
                for route in self.world.cloud.router().to(network) {
                    let target = route.target.map(|target| target.to_string());
                    assert_eq!(target.as_deref(), own.as_str(), "{block} is given too early");
                }
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    fn disturb_routes(&mut self) {
        let effect = match self.below(5) {
            0 => Effect::Latency(self.millis(8_000)),
            1 => Effect::Unavailable,
            2 => Effect::Hang,
            3 => Effect::Throttle { retry_after: Some(Duration::from_secs(3)) },
            _ => Effect::Routes(Vec::new(), Trouble::LoseAnswer),
        };
        let operation = [Operation::ApplyRoutes, Operation::ListRoutes][self.below(4) / 3];
        let fault = faults::Fault::new(effect).on(operation).lasting(self.millis(60_000));
        self.world.cloud.faults().add(fault);
    }

    /// Each node that has a block has its route, and its condition says so. No other routes exist.
    fn has_its_routes(&self) {
        let router = self.world.cloud.router();
        let mut expected = Vec::new();
        for number in (0..NODES).filter(|number| self.is_there(*number)) {
            let SimInstance { name, addresses, .. } = SimInstance::numbered(number);
            let cidr = self.world.cidrs(&name);
            let is_ours = cidr.starts_with("10.9.");
            let status = self.world.condition(&name).map(|(status, ..)| status);
            let expect = if is_ours { "False" } else { "True" };
            assert_eq!(status.as_deref(), Some(expect), "{name} {cidr}");
            expected.extend(is_ours.then(|| (cidr, addresses[0].address.clone())));
        }
        let target = |target: Option<RouteTarget>| target.map(|one| one.to_string());
        let mut shown: Vec<_> = router.all().into_iter().collect();
        shown.sort_by_key(|route| route.destination);
        let shown: Vec<_> = shown
            .into_iter()
            .map(|route| (route.destination.to_string(), target(route.target).unwrap()))
            .collect();
        expected.sort_by_key(|(cidr, _)| cidr.parse::<ipnet::IpNet>().unwrap());
        assert_eq!(shown, expected);
    }

    /// The node registers; its instance may be the one that it had.
    fn join(&mut self, number: usize) {
        if self.is_there(number) {
            return;
        }
        let known = self.world.cloud.remove(&SimInstance::numbered(number).id);
        self.world.add(number);
        match known {
            Some(known) if self.below(2) == 0 => self.set_cidrs(number, &known.pod_cidrs),
            _ => self.name_cidr(number),
        }
    }

    fn set_cidrs(&self, number: usize, cidrs: &[ipnet::IpNet]) {
        self.world.cloud.update(&SimInstance::numbered(number).id, |instance| {
            instance.pod_cidrs = cidrs.to_vec();
        });
    }

    /// The cloud gives the instance a network that no other instance has, or takes it away.
    fn name_cidr(&mut self, number: usize) {
        let others = (0..NODES).filter(|other| *other != number);
        let taken: Vec<_> = others
            .filter_map(|other| self.world.cloud.get(&SimInstance::numbered(other).id))
            .flat_map(|instance| instance.pod_cidrs)
            .collect();
        let free = (0..NODES + 2).map(|third| format!("10.9.{third}.0/24").parse().unwrap());
        let free: Vec<ipnet::IpNet> = free.filter(|cidr| !taken.contains(cidr)).collect();
        let cidr = free[self.below(free.len())];
        let names = self.below(5) > 0;
        self.set_cidrs(number, if names { std::slice::from_ref(&cidr) } else { &[] });
    }

    /// Returns true if the cloud names no network for the node, or one that another node has.
    fn lacks(&self, number: usize) -> bool {
        let instance = SimInstance::numbered(number);
        let named = self.world.cloud.get(&instance.id).unwrap().pod_cidrs;
        let shown = self.world.cidrs(&instance.name);
        let others = self.world.api.list("nodes").into_iter();
        let mut others = others.filter(|node| node["metadata"]["name"] != *instance.name);
        let mut is_taken = |cidr: String| others.any(|node| node["spec"]["podCIDR"] == cidr);
        shown.is_empty() && named.first().is_none_or(|cidr| is_taken(cidr.to_string()))
    }

    fn leave(&mut self, number: usize) {
        if self.is_there(number) {
            self.world.remove(&SimInstance::numbered(number).name);
        }
        if self.below(2) == 0 {
            self.world.cloud.remove(&SimInstance::numbered(number).id);
        }
    }

    fn disturb_writes(&mut self) {
        let time = self.millis(4_000);
        let actions = match self.below(7) {
            0..3 => vec![Action::DelayAnswer(time)],
            3 => vec![Action::Delay(time)],
            4 => vec![Action::DropAfterApply],
            5 => vec![Action::TakeBack("/spec/podCIDRs"), Action::TakeBack("/spec/podCIDR")],
            _ => {
                let code = [403, 409, 422, 429, 500, 504][self.below(6)];
                vec![Action::Status { code, retry_after: None }]
            }
        };
        let lasting = self.millis(30_000);
        for action in actions {
            self.world.api.faults().add(World::fault(action).lasting(lasting));
        }
    }

    fn disturb_lookups(&mut self) {
        let time = self.millis(6_000);
        let effect = match self.below(4) {
            0..3 => Effect::Latency(time),
            _ => Effect::Unavailable,
        };
        let lasting = self.millis(40_000);
        let fault = faults::Fault::new(effect).on(Operation::Lookup).lasting(lasting);
        self.world.cloud.faults().add(fault);
    }

    /// Another client assigns a network that is not a block of the allocator.
    fn another_assigns(&mut self, number: usize) {
        let cidr = format!("10.99.{}.0/24", self.below(256));
        let spec = json!({"spec": {"podCIDR": cidr, "podCIDRs": [cidr]}});
        let name = SimInstance::numbered(number).name;
        let is_free =
            !self.world.api.list("nodes").iter().any(|node| node["spec"]["podCIDR"] == *cidr);
        let is_bare = self.is_there(number) && self.world.cidrs(&name).is_empty();
        if is_free
            && is_bare
            && self.world.api.patch("nodes", &name, "", PatchKind::Merge, spec).is_ok()
        {
            self.foreign += 1;
        }
    }

    /// A node registers with half of all blocks, or goes. It takes none of them.
    fn wide(&mut self) {
        let (name, cidr) = [("low", "10.9.0.0/21"), ("high", "10.9.8.0/21")][self.below(2)];
        if self.world.api.get("nodes", name).is_some() {
            return self.world.remove(name);
        }
        // Creation times have no fractions.
        if self.begun.elapsed() > Duration::from_secs(2) {
            let node = json!({
                "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
                "spec": {"podCIDR": cidr, "podCIDRs": [cidr]},
            });
            self.world.api.create(node).unwrap();
            self.foreign += 1;
        }
    }

    async fn change_leader(&mut self) {
        let next = self.world.stand_by(self.arguments, Some(&self.leader)).await;
        drop(std::mem::replace(&mut self.leader, next));
        self.leader.lead();
        self.foreign = 0;
    }

    /// The disturbances end; each node that is there gets its pod CIDR.
    async fn end(&mut self) {
        self.world.api.faults().clear();
        self.world.cloud.faults().clear();
        // A node without an instance may get pod CIDRs or not.
        for number in (0..NODES).filter(|number| self.is_there(*number)) {
            if self.world.cloud.get(&SimInstance::numbered(number).id).is_none() {
                self.world.remove(&SimInstance::numbered(number).name);
            }
        }
        if self.arguments == ROUTED {
            // route-ccm deletes no route while the cluster has no nodes.
            self.join(0);
        }
        self.watch(SETTLED).await;
        // A node may still have the network that its instance has lost since.
        for number in 0..NODES {
            while self.is_there(number) && self.lacks(number) {
                self.name_cidr(number);
            }
        }
        sleep(SETTLED).await;
        // A refusal as invalid is repeated after five minutes.
        sleep(SETTLED).await;
        let nodes = (0..NODES).filter(|number| self.is_there(*number));
        let nodes: Vec<_> = nodes.map(|number| SimInstance::numbered(number).name).collect();
        let shown: Vec<_> = nodes.iter().map(|name| self.world.cidrs(name)).collect();
        assert!(shown.iter().all(|cidr| !cidr.is_empty()), "{nodes:?}: {shown:?}");
        self.world.are_distinct();
        let leader = &self.leader;
        leader.has_nothing_to_do();
        leader.shows("ccm_ipam_stopped", 0.0);
        leader.shows("ccm_ipam_nodes_held", 0.0);
        assert!(self.count("ccm_ipam_foreign_pod_cidrs_total") <= self.foreign, "ours is foreign");
        assert!(
            self.count("ccm_ipam_time_to_pod_cidrs_seconds_count")
                <= self.count("ccm_ipam_writes_total{result=\"ok\"}"),
            "more nodes have got pod CIDRs than writes were stored"
        );
        if self.arguments == ROUTED {
            self.has_its_routes();
        }
        if self.arguments != CLOUD {
            let ours = shown.iter().filter(|cidr| cidr.starts_with("10.9.")).count();
            leader.shows(USED, ours as f64 / 16.0);
        }
        // Nothing is written without a change.
        let writes = self.world.writes().len();
        sleep(SETTLED).await;
        assert_eq!(self.world.writes().len(), writes);
    }

    fn count(&self, name: &str) -> usize {
        let text = self.leader.process.context.metrics.encode().unwrap();
        let mut lines = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        lines.next().map_or(0, |value| value.trim_end_matches(".0").parse().unwrap())
    }
}

async fn play(arguments: &'static [&'static str]) {
    let one = std::env::var("QUARTET_HISTORY").ok().map(|seed| seed.parse().unwrap());
    for seed in one.map_or(0..HISTORIES, |seed| seed..seed + 1) {
        eprintln!("history {seed}");
        let mut history = History::begin(seed, arguments).await;
        for _ in 0..EVENTS {
            history.step().await;
        }
        history.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn no_history_of_blocks_breaks_a_rule() {
    play(&RANGE).await;
}

#[tokio::test(start_paused = true)]
async fn no_history_of_blocks_and_their_routes_breaks_a_rule() {
    play(&ROUTED).await;
}

#[tokio::test(start_paused = true)]
async fn no_history_of_the_clouds_networks_breaks_a_rule() {
    play(&CLOUD).await;
}
