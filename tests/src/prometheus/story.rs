//! Everything that a dashboard shows happens once, to the built programs, while a
//! Prometheus watches. The cluster and the cloud are simulated.

use std::{path::Path, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, ensure};
use ccm_cloud::{AddressKind, NodeAddress, PowerState};
use ccm_runtime::{program::Identity, programs};
use ccm_sim::{
    apiserver::{Action, Fault as ServerFault, FaultPlan},
    cloud::Operation,
    faults::{Effect, Fault},
    poll,
    program::{Launch, Program, free_port},
};
use serde_json::json;
use tokio::time::sleep;

use super::server::{self, Job, SCRAPE_SECONDS, Server, Span};
use crate::{
    cluster::{Cluster, Kind},
    nodes,
    scenarios::{Env, LIFECYCLE_AGENT, NODE_AGENT, SOON},
};

/// A rate needs this many scrapes around a moment, and what happened before it must be
/// out of sight again.
const SETTLE: Duration = Duration::from_secs(3 * SCRAPE_SECONDS);

/// A scrape that is under way writes no further back than this.
const UNDER_WAY: u64 = 2 * SCRAPE_SECONDS;

/// The result of the story: its Prometheus. The programs run on.
pub struct Told {
    /// It answers questions about the story.
    pub server: Server,
    /// When the story was.
    pub span: Span,
    _world: World,
}

/// The programs, and what they work with.
struct World {
    env: Env,
    node: Vec<Program>,
    lifecycle: Vec<Program>,
    /// Programs of a second cluster, whose cloud is an OpenStack that does not answer.
    other: Vec<Program>,
    _second: Env,
}

/// Runs the story. `prometheus` is the folder of that program, which evaluates the rules of
/// these files.
pub async fn tell(prometheus: &Path, rules: &[std::path::PathBuf]) -> Result<Told> {
    let mut world = World::set().await?;
    let folder = world.env.path("prometheus");
    std::fs::create_dir(&folder)?;
    let server = Server::start(prometheus, &folder, &world.jobs()?, rules).await?;
    let start = server::now();
    // A counter that is born with an event hides it: the zero must be scraped first.
    sleep(SETTLE).await;
    world.live().await?;
    sleep(SETTLE + Duration::from_secs(UNDER_WAY)).await;
    let end = world.scraped(&server).await?;
    Ok(Told { server, span: Span { start, end }, _world: world })
}

async fn simulated() -> Result<Env> {
    Env::new(Arc::new(Cluster::start(Kind::Simulated).await?)).await
}

/// `host:port` of a program's pages.
fn target(program: &Program) -> Result<String> {
    let url = program.url("");
    Ok(url.strip_prefix("http://").context("it serves plain HTTP")?.to_owned())
}

impl World {
    /// Starts all programs: of node-ccm one more than usual, because one leaves.
    async fn set() -> Result<Self> {
        let (env, second) = (simulated().await?, simulated().await?);
        let mut silent = nodes::with_ready(nodes::fresh("silent"), "Unknown");
        silent["spec"] =
            json!({"providerID": format!("openstack:///{}", nodes::uuid_of("silent"))});
        for node in [nodes::fresh("fresh"), silent] {
            nodes::register(&second.client, &node).await?;
        }
        let mut world = Self {
            node: Vec::new(),
            lifecycle: Vec::new(),
            other: openstack(&second)?,
            env,
            _second: second,
        };
        for _ in 0..3 {
            let program = world.env.start_standby(&node_ccm(&world.env)).await?;
            world.node.push(program);
        }
        for _ in 0..2 {
            let program = world.env.start_standby(&lifecycle_ccm(&world.env)).await?;
            world.lifecycle.push(program);
        }
        Ok(world)
    }

    /// One cluster without any label but those that Prometheus sets, and one with the
    /// label `cluster`: the dashboards must know both.
    fn jobs(&self) -> Result<Vec<Job>> {
        let job = |name: &str, labels, programs: &[Program]| {
            let targets = programs.iter().map(target).collect::<Result<_>>()?;
            anyhow::Ok(Job { name: name.to_owned(), labels, targets })
        };
        Ok(vec![
            job("node-ccm", json!({}), &self.node)?,
            job("lifecycle-ccm", json!({}), &self.lifecycle)?,
            job("pods", json!({"cluster": "openstack", "namespace": "cloud"}), &self.other)?,
        ])
    }

    /// A moment, just past, at which all running programs had answered: a missed scrape
    /// leaves no value until the next.
    async fn scraped(&self, server: &Server) -> Result<u64> {
        let programs = self.node.len() + self.lifecycle.len() + self.other.len();
        poll::until("all programs to be scraped", SOON, || async {
            let end = server::now() - UNDER_WAY;
            let up = server.query_at("count(up == 1)", end).await?;
            let seen = up[0]["value"][1].as_str().unwrap_or("0").to_owned();
            ensure!(seen == programs.to_string(), "{seen} of {programs} answered");
            Ok(Some(end))
        })
        .await
    }

    async fn live(&mut self) -> Result<()> {
        self.register().await.context("nodes register")?;
        self.follow().await.context("an instance changes")?;
        self.throttle().await.context("the cloud throttles")?;
        self.refuse().await.context("the API server refuses")?;
        self.remove().await.context("an instance is terminated")?;
        self.shut_down().await.context("a machine is stopped")?;
        self.open_breaker().await.context("the cloud shows another project")?;
        self.hand_over().await.context("the leader is stopped")
    }

    fn faults(&self) -> Result<&FaultPlan> {
        Ok(self.env.cluster.simulated().context("the cluster is simulated")?.faults())
    }

    /// New nodes; one of them is another provider's, one instance has an illegal label.
    async fn register(&self) -> Result<()> {
        let mut instance = nodes::instance("node-0");
        instance.labels.insert("example.com/bad".to_owned(), "not a legal value!".to_owned());
        self.env.cloud().add(instance);
        nodes::register(&self.env.client, &nodes::fresh("node-0")).await?;
        for number in 1..8 {
            self.env.add_node(&format!("node-{number}")).await?;
        }
        nodes::all_initialised(&self.env.client, SOON).await?;
        let mut foreign = nodes::initialised("foreign");
        foreign["spec"] = json!({"providerID": "elsewhere://i-1"});
        nodes::register(&self.env.client, &foreign).await
    }

    /// The first InternalIP of a Ready node changes.
    async fn follow(&self) -> Result<()> {
        let mut instance = nodes::instance("node-0");
        instance.addresses = vec![NodeAddress::new(AddressKind::InternalIp, "10.200.0.1")];
        self.env.cloud().add(instance);
        let follows = |node: &_| nodes::addresses(node).contains(&"InternalIP=10.200.0.1".into());
        nodes::wait_for(&self.env.client, "node-0", "follows", 2 * SOON, follows).await?;
        Ok(())
    }

    /// Calls are refused with a pause that is longer than a call may take.
    async fn throttle(&self) -> Result<()> {
        let pause = Duration::from_secs(4);
        let effect = Effect::Throttle { retry_after: Some(pause) };
        for operation in [Operation::Lookup, Operation::List] {
            let fault = Fault::new(effect.clone()).on(operation);
            self.env.cloud().faults().add(fault.lasting(2 * pause));
        }
        self.env.add_node("node-late").await?;
        nodes::event(&self.env.client, "node-late", "throttled", SOON).await?;
        // The call for this one is not made: the pause outlasts it.
        self.env.add_node("node-later").await?;
        nodes::set_ready(&self.env.client, "node-1", "Unknown").await?;
        sleep(pause).await;
        nodes::all_initialised(&self.env.client, 2 * SOON).await?;
        nodes::set_ready(&self.env.client, "node-1", "True").await
    }

    /// The API server refuses writes of nodes, events and Leases, and watches break.
    async fn refuse(&self) -> Result<()> {
        let refused = |code| ServerFault::new(Action::Status { code, retry_after: None });
        let faults = self.faults()?;
        faults.add(refused(403).writes().resource("nodes").user_agent(NODE_AGENT).times(1));
        faults.add(refused(403).writes().resource("events").times(2));
        faults.add(refused(503).writes().resource("leases").times(4));
        self.env.add_node("node-refused").await?;
        nodes::wait_for(&self.env.client, "node-refused", "initialised", 4 * SOON, |node| {
            !nodes::is_tainted(node)
        })
        .await?;
        let gone = ServerFault::new(Action::WatchError { code: 410 }).resource("nodes");
        faults.add(gone.user_agent(LIFECYCLE_AGENT).times(2));
        self.env.cluster.simulated().context("simulated")?.cut_watches();
        sleep(SETTLE).await;
        Ok(())
    }

    /// One instance is terminated, and another node is silent though its instance runs.
    async fn remove(&self) -> Result<()> {
        nodes::set_ready(&self.env.client, "node-2", "Unknown").await?;
        self.env.lose("node-1").await?;
        nodes::gone(&self.env.client, "node-1", 2 * SOON).await?;
        nodes::set_ready(&self.env.client, "node-2", "True").await
    }

    async fn shut_down(&self) -> Result<()> {
        let id = nodes::instance("node-3").id;
        for (power, tainted) in [(PowerState::Stopped, true), (PowerState::Running, false)] {
            self.env.cloud().set_power(&id, power);
            nodes::set_ready(&self.env.client, "node-3", "Unknown").await?;
            nodes::wait_for(&self.env.client, "node-3", "taint", SOON, |node| {
                nodes::has_taint(node, nodes::SHUTDOWN) == tainted
            })
            .await?;
        }
        nodes::set_ready(&self.env.client, "node-3", "True").await
    }

    /// Everything seems to be gone; the breaker opens, and closes when the fleet is back.
    async fn open_breaker(&self) -> Result<()> {
        self.env.cloud().faults().add(Fault::new(Effect::WrongProject));
        self.env.lose("node-4").await?;
        for name in ["node-5", "node-6"] {
            nodes::set_ready(&self.env.client, name, "Unknown").await?;
        }
        self.breaker(true).await?;
        sleep(SETTLE).await;
        self.env.cloud().faults().clear();
        self.breaker(false).await?;
        nodes::gone(&self.env.client, "node-4", 2 * SOON).await?;
        for name in ["node-5", "node-6"] {
            nodes::set_ready(&self.env.client, name, "True").await?;
        }
        Ok(())
    }

    async fn breaker(&self, open: bool) -> Result<()> {
        poll::until(&format!("the breaker to be open: {open}"), 2 * SOON, || async {
            let mut shown = 0.0;
            for program in &self.lifecycle {
                let metrics = program.metrics().await?;
                shown += metrics.get("ccm_lifecycle_breaker_open").copied().unwrap_or_default();
            }
            Ok(((shown > 0.0) == open).then_some(()))
        })
        .await
    }

    /// The leader of node-ccm ends, and another replica initialises the next node.
    async fn hand_over(&mut self) -> Result<()> {
        let mut leader = None;
        for (at, program) in self.node.iter().enumerate() {
            if program.leads().await? {
                leader = Some(at);
            }
        }
        let leader = self.node.remove(leader.context("nobody leads")?);
        let ended = leader.terminate().await?;
        ensure!(ended.success(), "the leader ended with {ended}");
        self.env.add_node("node-new").await?;
        self.env.initialised("node-new").await?;
        // In the end one node waits for an instance that the cloud does not know.
        nodes::register(&self.env.client, &nodes::fresh("node-unknown")).await?;
        nodes::event(&self.env.client, "node-unknown", "instance", SOON).await?;
        sleep(SETTLE).await;
        Ok(())
    }
}

fn node_ccm(env: &Env) -> Launch {
    env.node_ccm().arg("--node-status-update-frequency=10s").arg("--cloud-call-timeout=2s")
}

fn lifecycle_ccm(env: &Env) -> Launch {
    env.lifecycle_ccm()
        .arg("--node-monitor-period=1s")
        .arg("--node-deletion-confirmation-period=2s")
        .arg("--node-grace-period=1s")
        .arg("--cloud-call-timeout=2s")
}

/// All programs with a Keystone that does not listen: what there is to see of an
/// OpenStack without one.
fn openstack(env: &Env) -> Result<Vec<Program>> {
    let config = env.path("cloud.conf");
    let keystone = format!("http://127.0.0.1:{}/v3", free_port()?);
    std::fs::write(
        &config,
        format!(
            "[Global]\nauth-url = {keystone}\nregion = here\n\
             application-credential-id = 1\napplication-credential-secret = none\n"
        ),
    )?;
    let launch = |program: Identity| {
        Launch::controller(program.binary, env.cluster.kubeconfig(), "openstack", &config)
    };
    programs::shipped().map(|program| env.start_only(&launch(program))).collect()
}
