//! The replicas of one controller, and the events that Prometheus sees. The cluster and the
//! cloud are simulated.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use ccm_runtime::program::Identity;
use ccm_sim::{
    apiserver::{Action, Fault as ServerFault},
    cloud::Operation,
    faults::{Fault, FaultEffect},
    poll,
    program::{Launch, Program, free_port},
};
use serde_json::json;
use tokio::time::sleep;

use super::{
    operator,
    server::{self, Job, SCRAPE_SECONDS, Server, Span},
};
use crate::{
    cluster::{Cluster, Kind},
    nodes,
    scenarios::{Env, SOON},
    suite::Story,
};

/// A rate needs this many scrapes around a moment, and earlier events must be outside of its window
/// again.
pub const SETTLE: Duration = Duration::from_secs(3 * SCRAPE_SECONDS);

/// A scrape that is under way writes no further back than this.
const UNDER_WAY: u64 = 2 * SCRAPE_SECONDS;

/// A story that was played. The programs run on.
pub struct Played {
    /// They answer queries about the story, each with different labels of its targets.
    pub servers: Vec<Server>,
    /// The time of the story.
    pub span: Span,
    /// The replicas' pages of metrics, at the end of their lives or of the story.
    pub pages: Vec<String>,
    _stage: Stage,
}

/// The replicas, and what they work with.
pub struct Stage {
    /// Their cluster and cloud.
    pub env: Env,
    /// Three replicas, until one ends.
    pub replicas: Vec<Program>,
    program: Identity,
    /// A replica in a second cluster, whose cloud is an OpenStack that does not answer.
    unanswered: Program,
    _second: Env,
    /// See [`Played::pages`].
    pages: Vec<String>,
}

/// Plays the story. `prometheus` is the folder of that program, which evaluates the rules of
/// these files.
pub async fn play(
    prometheus: &Path,
    rules: &[std::path::PathBuf],
    program: Identity,
    story: Story,
) -> Result<Played> {
    let mut stage = Stage::set(program, story).await?;
    let mut servers = Vec::new();
    for (name, jobs) in stage.jobs()? {
        let folder = stage.env.path(name);
        std::fs::create_dir(&folder)?;
        servers.push(Server::start(prometheus, &folder, &jobs, rules).await?);
    }
    let start = server::now();
    // A counter that appears with an event hides it, so its zero must be scraped first.
    sleep(SETTLE).await;
    (story.play)(&mut stage).await?;
    sleep(SETTLE + Duration::from_secs(UNDER_WAY)).await;
    let end = stage.scraped(&servers).await?;
    for replica in &stage.replicas {
        stage.pages.push(replica.get("/metrics").await?.1);
    }
    let pages = std::mem::take(&mut stage.pages);
    Ok(Played { servers, span: Span { start, end }, pages, _stage: stage })
}

/// Returns a simulated cluster with its cloud.
pub async fn simulated() -> Result<Env> {
    Env::new(Arc::new(Cluster::start(Kind::Simulated).await?)).await
}

/// Returns `host:port` of a program's pages.
fn target(program: &Program) -> Result<String> {
    let url = program.url("");
    Ok(url.strip_prefix("http://").context("it serves plain HTTP")?.to_owned())
}

impl Stage {
    async fn set(program: Identity, story: Story) -> Result<Self> {
        let (env, second) = (simulated().await?, simulated().await?);
        let mut silent = nodes::with_ready(nodes::fresh("silent"), "Unknown");
        silent["spec"] =
            json!({"providerID": format!("openstack:///{}", nodes::uuid_of("silent"))});
        for node in [nodes::fresh("fresh"), silent] {
            nodes::register(&second.client, &node).await?;
        }
        let unanswered = second.start_only(&openstack(&second, story)?)?;
        let mut replicas = Vec::new();
        for _ in 0..3 {
            replicas.push(env.start_standby(&(story.launch)(&env)).await?);
        }
        Ok(Self { env, replicas, program, unanswered, _second: second, pages: Vec::new() })
    }

    /// Returns the targets of each Prometheus: one cluster whose labels come from Prometheus alone
    /// or from its operator, and one with the label `cluster`. Dashboards and rules must know all
    /// of them.
    fn jobs(&self) -> Result<[(&'static str, Vec<Job>); 2]> {
        let program = self.program.binary;
        let replicas = self.replicas.iter().map(target).collect::<Result<Vec<_>>>()?;
        let bare = replicas.iter().map(|address| (address.clone(), json!({}))).collect();
        let labels = json!({"cluster": "openstack", "namespace": "cloud"});
        let pods = vec![(target(&self.unanswered)?, labels)];
        let other = || Job { name: "pods".to_owned(), targets: pods.clone() };
        let plain = Job { name: program.to_owned(), targets: bare };
        let monitored = operator::job(program, replicas)?;
        Ok([("prometheus", vec![plain, other()]), ("operator", vec![monitored, other()])])
    }

    /// Returns a moment, just past, at which all running programs had answered: a missed scrape
    /// leaves no value until the next.
    async fn scraped(&self, servers: &[Server]) -> Result<u64> {
        let programs = self.replicas.len() + 1;
        poll::until("all programs to be scraped", SOON, || async {
            let end = server::now() - UNDER_WAY;
            for server in servers {
                let up = server.query_at("count(up == 1)", end).await?;
                let seen = up[0]["value"][1].as_str().unwrap_or("0").to_owned();
                ensure!(seen == programs.to_string(), "{seen} of {programs} answered");
            }
            Ok(Some(end))
        })
        .await
    }

    /// Makes the cloud refuse calls, and ask for a pause that is longer than a call may take:
    /// `--cloud-call-timeout=2s`. The cloud recovers after the program has not sent a call because
    /// of the pause. `cause` makes the program call the cloud. Its argument is 0, 1, 2 and so on.
    pub async fn throttle_cloud(
        &self,
        cause: impl AsyncFn(&Env, usize) -> Result<()>,
    ) -> Result<()> {
        let pause = Duration::from_secs(4);
        let effect = FaultEffect::Throttle { retry_after: Some(pause) };
        let calls = Operation::ALL.into_iter().filter(|operation| *operation != Operation::Health);
        let faults: Vec<_> = calls
            .map(|operation| {
                self.env.cloud().faults().add(Fault::new(effect.clone()).on(operation))
            })
            .collect();
        let caused = AtomicUsize::new(0);
        poll::until("a call that is not sent", 2 * SOON, || async {
            for replica in &self.replicas {
                if replica.metric("ccm_cloud_requests_refused_total").await? > 0.0 {
                    return Ok(Some(()));
                }
            }
            cause(&self.env, caused.fetch_add(1, Ordering::Relaxed)).await?;
            sleep(pause / 4).await;
            Ok(None)
        })
        .await?;
        for fault in faults {
            self.env.cloud().faults().remove(fault);
        }
        sleep(SETTLE).await;
        Ok(())
    }

    /// Makes the API server refuse the next writes of this resource, of events and of Leases, and
    /// breaks the watches of the resource.
    pub fn refuse_writes(&self, resource: &str) -> Result<()> {
        let simulated = self.env.cluster.simulated().context("the cluster is simulated")?;
        let agent = format!("{}/", self.program.binary);
        let refused = |code| ServerFault::new(Action::Status { code, retry_after: None });
        let faults = simulated.faults();
        faults.add(refused(403).writes().resource(resource).user_agent(&agent).times(1));
        faults.add(refused(403).writes().resource("events").times(2));
        // Two failures in a row would use up the renew deadline of the scenarios.
        faults.add(refused(503).writes().resource("leases").times(1));
        let gone = ServerFault::new(Action::WatchError { code: 410 }).resource(resource);
        faults.add(gone.user_agent(&agent).times(2));
        simulated.cut_watches();
        Ok(())
    }

    /// Ends the leader, and waits until another replica leads.
    pub async fn hand_over(&mut self) -> Result<()> {
        let mut leader = None;
        for (at, program) in self.replicas.iter().enumerate() {
            if program.leads().await? {
                leader = Some(at);
            }
        }
        let leader = self.replicas.remove(leader.context("there is no leader")?);
        self.pages.push(leader.get("/metrics").await?.1);
        let ended = leader.terminate().await?;
        ensure!(ended.success(), "the leader ended with {ended}");
        poll::until("another leader", SOON, || async {
            for program in &self.replicas {
                if program.leads().await? {
                    return Ok(Some(()));
                }
            }
            Ok(None)
        })
        .await
    }
}

/// Returns the program with a Keystone that does not listen: everything that an OpenStack without
/// it can show.
fn openstack(env: &Env, story: Story) -> Result<Launch> {
    let config = env.path("cloud.conf");
    let keystone = format!("http://127.0.0.1:{}/v3", free_port()?);
    std::fs::write(
        &config,
        format!(
            "[Global]\nauth-url = {keystone}\nregion = here\n\
             application-credential-id = 1\napplication-credential-secret = none\n"
        ),
    )?;
    // The later argument counts.
    let launch = (story.launch)(env).arg("--cloud-provider=openstack");
    Ok(launch.arg(format!("--cloud-config={}", config.display())))
}
