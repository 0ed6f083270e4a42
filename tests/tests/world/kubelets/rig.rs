//! A cluster with kubelets, the node lifecycle controller and both programs.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ccm_sim::{
    cloud::SimInstance,
    program::{Launch, Program},
};
use ccm_tests::{
    cluster::kubelets::{Machine, Machines, Process},
    lanes::Lane,
    nodes,
    scenarios::{Env, LIFECYCLE_AGENT, NODE_AGENT, quick_lifecycle},
};
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use kube::Api;
use tokio::time::{Instant, sleep, sleep_until};

/// How long a kubelet may take until its node is usable.
pub(super) const SOON: Duration = Duration::from_mins(1);
/// How long the node lifecycle controller may take to notice a silent kubelet.
pub(super) const SILENCE: Duration = Duration::from_secs(90);
/// How often the API server is asked.
const STEP: Duration = Duration::from_millis(200);

/// The periods of all programs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    /// The defaults.
    Default,
    /// Silence, grace and confirmation are short.
    Quick,
}

/// The cluster, and what runs in it.
pub(super) struct Rig {
    pub(super) env: Env,
    pub(super) machines: Machines,
    /// How to start the programs, and the programs.
    pub(super) launches: [Launch; 2],
    pub(super) programs: Vec<Program>,
    name: &'static str,
    start: Instant,
    _manager: Process,
}

/// A machine whose node is usable.
pub(super) struct Joined {
    pub(super) instance: SimInstance,
    pub(super) kubelet: Process,
    pub(super) node: Node,
}

impl Rig {
    /// Starts everything, without machines.
    pub(super) async fn start(lane: &Lane, name: &'static str, pace: Pace) -> Result<Self> {
        let env = lane.env().await?;
        let machines = Machines::new(lane.cluster().real().context("a real API server")?).await?;
        let (silence, lifecycle): (&[&str], _) = match pace {
            Pace::Default => (&[], env.lifecycle_ccm()),
            Pace::Quick => (&["--node-monitor-grace-period=20s"], quick_lifecycle(&env)),
        };
        let launches = [env.node_ccm(), lifecycle];
        let mut programs = Vec::new();
        for launch in &launches {
            programs.push(env.start(launch).await?);
        }
        let manager = machines.start_controller_manager(silence)?;
        let start = Instant::now();
        Ok(Self { env, machines, launches, programs, name, start, _manager: manager })
    }

    /// Runs a test here. If it fails, the programs' logs are part of the failure.
    pub(super) async fn run(
        mut self,
        test: impl AsyncFnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let outcome = test(&mut self).await;
        let logs = || self.programs.iter().map(Program::log).collect::<Vec<_>>().join("\n");
        outcome.with_context(logs)
    }

    /// Prints an event and its time.
    pub(super) fn say(&self, what: &str) {
        eprintln!("{:6.1} s  {}: {what}", self.start.elapsed().as_secs_f64(), self.name);
    }

    /// Waits for this time since the start.
    pub(super) async fn at(&self, time: Duration) {
        sleep_until(self.start + time).await;
    }

    /// Waits until the API server shows something, and prints how long it took. Also waits for an
    /// API server that does not answer.
    pub(super) async fn until<T>(
        &self,
        what: &str,
        limit: Duration,
        look: impl AsyncFn() -> Result<Option<T>>,
    ) -> Result<T> {
        let since = Instant::now();
        loop {
            let seen = look().await;
            if let Ok(Some(found)) = seen {
                self.say(&format!("{what}: after {:.1} s", since.elapsed().as_secs_f64()));
                return Ok(found);
            }
            if since.elapsed() > limit {
                seen.with_context(|| what.to_owned())?;
                anyhow::bail!("after {limit:?} not yet: {what}");
            }
            sleep(STEP).await;
        }
    }

    /// Waits until this node is as wanted.
    pub(super) async fn node(
        &self,
        name: &str,
        what: &str,
        limit: Duration,
        wanted: impl Fn(&Node) -> bool,
    ) -> Result<Node> {
        let api = Api::<Node>::all(self.env.client.clone());
        self.until(&format!("{name} {what}"), limit, async || {
            Ok(api.get_opt(name).await?.filter(&wanted))
        })
        .await
    }

    /// Waits until the node of this name is gone.
    pub(super) async fn gone(&self, name: &str, limit: Duration) -> Result<()> {
        let api = Api::<Node>::all(self.env.client.clone());
        self.until(&format!("{name} is gone"), limit, async || {
            Ok(api.get_metadata_opt(name).await?.is_none().then_some(()))
        })
        .await
    }

    /// Waits for an event about this node.
    pub(super) async fn event(&self, name: &str, part: &str, limit: Duration) -> Result<()> {
        self.until(&format!("{name} has an event {part}"), limit, async || {
            let events = nodes::events(&self.env.client, name).await?;
            Ok(events.iter().any(|event| event.contains(part)).then_some(()))
        })
        .await
    }

    /// Creates this instance, starts its kubelet, and waits until the node is usable and agrees
    /// with its instance.
    pub(super) async fn join(&self, instance: SimInstance) -> Result<Joined> {
        self.env.cloud().add(instance.clone());
        let kubelet = self.machines.start_kubelet(&Machine::of(&instance))?;
        let node = self.node(&instance.name, "has joined", SOON, is_usable).await;
        let node = node.with_context(|| tail(&kubelet.log()))?;
        is_as_its_instance(&node, &instance)?;
        Ok(Joined { instance, kubelet, node })
    }

    /// Returns the writes of both programs to this node, with the answers' codes.
    pub(super) async fn writes(&self, name: &str) -> Result<Vec<String>> {
        let mut writes = self.env.node_writes(NODE_AGENT).await?;
        writes.extend(self.env.node_writes(LIFECYCLE_AGENT).await?);
        let of_node = writes.iter().filter(|request| request.name == name);
        Ok(of_node.map(|request| format!("{} {}", request.what(), request.code)).collect())
    }

    /// Checks that the node of this name is the one that it was.
    pub(super) async fn is_same(&self, before: &Node) -> Result<()> {
        let name = before.metadata.name.as_deref().unwrap_or_default();
        let now = nodes::get(&self.env.client, name).await?;
        ensure!(now.metadata.uid == before.metadata.uid, "{name} was deleted and registered again");
        ensure!(provider_id(&now) == provider_id(before), "{name} has another provider ID");
        Ok(())
    }

    /// Checks in the API server's record which nodes were deleted, and by which client.
    pub(super) async fn deletions_are(&self, wanted: &[(&str, &str)]) -> Result<()> {
        let requests = self.env.requests("").await?;
        let mut found: Vec<_> = requests
            .iter()
            .filter(|request| request.verb == "delete" && request.resource == "nodes")
            .map(|request| {
                let agent = request.user_agent.split('/').next().unwrap_or_default();
                (agent, request.name.as_str())
            })
            .collect();
        found.sort_unstable();
        ensure!(found == wanted, "the deletions are {found:?}, but should be {wanted:?}");
        self.say(&format!("deletions in the audit log: {found:?}"));
        Ok(())
    }
}

/// Returns true if the node is Ready, and without any taint.
pub(super) fn is_usable(node: &Node) -> bool {
    let spec = node.spec.as_ref();
    let taints = spec.and_then(|spec| spec.taints.as_ref()).map_or(0, Vec::len);
    ready(node) == "True" && taints == 0
}

/// Returns true if the node lifecycle controller has noticed that the kubelet is silent.
pub(super) fn is_silent(node: &Node) -> bool {
    ready(node) == "Unknown"
}

/// Returns the status of the condition Ready.
pub(super) fn ready(node: &Node) -> &str {
    condition(node).map_or("", |condition| &condition.status)
}

/// Returns the condition Ready.
pub(super) fn condition(node: &Node) -> Option<&NodeCondition> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == "Ready")
}

/// Returns `spec.providerID`.
pub(super) fn provider_id(node: &Node) -> Option<&str> {
    node.spec.as_ref()?.provider_id.as_deref()
}

/// Checks what node-ccm writes.
fn is_as_its_instance(node: &Node, instance: &SimInstance) -> Result<()> {
    let id = instance.provider_id();
    ensure!(provider_id(node) == Some(id.as_str()), "{:?} is not {id:?}", provider_id(node));
    let zone = nodes::label(node, "topology.kubernetes.io/zone");
    ensure!(zone == instance.zone.as_deref(), "zone {zone:?}");
    let addresses = nodes::addresses(node);
    for address in &instance.addresses {
        let is_there = addresses.iter().any(|own| own.ends_with(&format!("={}", address.address)));
        ensure!(is_there, "{addresses:?} without {address:?}");
    }
    Ok(())
}

/// Returns another machine of the same name: all else differs.
pub(super) fn replacement(of: &SimInstance) -> SimInstance {
    let mut instance = nodes::instance(&format!("{}-replaced", of.name));
    instance.name.clone_from(&of.name);
    instance
}

fn tail(log: &str) -> String {
    let lines: Vec<_> = log.lines().collect();
    lines.get(lines.len().saturating_sub(30)..).unwrap_or_default().join("\n")
}
