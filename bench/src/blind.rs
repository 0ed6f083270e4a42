//! Measures replicas that do not see: etcd goes back, a proxy swallows or cuts watches, a right is
//! taken away. It uses default settings and the roles of the manifests on a real API server, and
//! takes a quarter of an hour.

use std::{path::Path, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, ensure};
use ccm_sim::{
    poll,
    program::{Launch, Program, Signal},
};
use ccm_tests::{
    cluster::{
        Cluster, Kind,
        proxy::{WatchProxy, Watches},
    },
    fixture::Fixture,
    nodes,
    rights::account::Account,
    scenarios::{Env, lease},
};
use serde_json::json;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

/// The longest time until a failed watch is reported.
const SHOWN: Duration = Duration::from_secs(60);
const MOVED: Duration = Duration::from_mins(3);
const BACK: Duration = Duration::from_secs(60);
/// The node that a task changes every few seconds, as kubelets do.
const BEAT: &str = "node-beat";

struct World {
    cluster: Arc<Cluster>,
    account: Account,
    env: Env,
    folder: tempfile::TempDir,
}

/// Prints how soon blindness is shown, and which replica gets the Lease: in all cases, or only in
/// those in which both replicas are blind.
pub async fn measure(all: bool) -> Result<()> {
    let folder = tempfile::Builder::new().prefix("quartet-blind-").tempdir()?;
    let cluster = Arc::new(Cluster::start(Kind::Real).await?);
    let account = Account::create(cluster.clone(), "node-ccm", folder.path()).await?;
    let accounts = [("node-ccm", account.kubeconfig().to_path_buf())].into();
    let env = Env::of(Fixture::new(cluster.clone(), accounts, SHOWN).await?).await?;
    env.add_node(BEAT).await?;
    let world = World { cluster, account, env, folder };
    if all {
        world.restored("versions far behind", 30).await?;
        world.restored("versions just behind", 0).await?;
    }
    let _beats = world.beats();
    if all {
        world.behind_proxy(Watches::Swallow).await?;
        world.behind_proxy(Watches::Cut).await?;
        world.without_right().await?;
    }
    world.both_behind_proxies().await?;
    let World { cluster, account, env, folder } = world;
    drop((account, env, folder));
    Arc::into_inner(cluster).context("it is not in use")?.stop().await
}

impl World {
    /// Restores etcd from an older copy, after which `count` nodes were initialised.
    async fn restored(&self, what: &str, count: usize) -> Result<()> {
        println!("\n-- etcd restored from an older copy, {what}");
        let real = self.cluster.real().context("real")?;
        let older = self.folder.path().join(format!("older-{count}"));
        real.save_etcd(&older).await?;
        let (mut leader, standby) = self.two(&self.env.node_ccm()).await?;
        for number in 0..count {
            self.env.add_node(&format!("node-before-{number}")).await?;
        }
        nodes::all_initialised(&self.env.client, SHOWN).await?;
        let stopped = Instant::now();
        real.restore_etcd(&older).await?;
        let ready = Instant::now();
        println!("the API server was away for {}", seconds(ready - stopped));
        for number in 0..5 {
            self.env.add_node(&format!("node-after-{count}-{number}")).await?;
        }
        nodes::all_initialised(&self.env.client, 2 * SHOWN).await?;
        let took = ready.elapsed();
        let by = match (is_running(&mut leader), standby.leads().await?) {
            (true, _) => "the leader, which kept its Lease",
            (false, true) => "the standby; the leader ended, since the outage outlasted its term",
            (false, false) => "no replica",
        };
        println!(
            "from /readyz to all new nodes initialised: {} (wanted: below 60 s)",
            seconds(took)
        );
        println!("by {by}; no process was restarted");
        ensure!(took <= BACK, "too late");
        for number in 0..5 {
            nodes::delete(&self.env.client, &format!("node-after-{count}-{number}")).await?;
        }
        finish([leader, standby]).await
    }

    /// Disturbs the leader's watches, but not the standby's.
    async fn behind_proxy(&self, watches: Watches) -> Result<()> {
        println!("\n-- the leader's watches behind a proxy: {watches:?}");
        let (proxy, launch) = self.proxied().await?;
        let mut leader = self.env.start(&launch).await?;
        let standby = self.env.start_standby(&self.env.node_ccm()).await?;
        let start = Instant::now();
        proxy.treat(watches);
        let why = not_ready(&leader).await?;
        let shown = start.elapsed();
        println!("shown on /readyz after {} (wanted: below 60 s): {why}", seconds(shown));
        standby.leading(2 * MOVED).await?;
        let moved = start.elapsed();
        println!("the other replica has the Lease after {} (wanted: below 3 min)", seconds(moved));
        let ended = leader.wait(SHOWN).await?;
        println!("the blind leader ended with {ended}: {}", last_error(&leader.log()));
        // The kubelet would do the same.
        let again = self.env.start_only(&launch)?;
        let stays = self.holders(SHOWN).await?;
        ensure!(standby.leads().await? && !again.leads().await?, "it came back");
        println!("started again, still blind: the Lease had {} holder in a minute", stays.len());
        let start = Instant::now();
        proxy.treat(Watches::Pass);
        ready(&again).await?;
        println!("ready {} after the end of the fault", seconds(start.elapsed()));
        ensure!(shown <= SHOWN && moved <= MOVED, "too late");
        finish([again, standby]).await
    }

    /// Returns a proxy, and a program behind it.
    async fn proxied(&self) -> Result<(WatchProxy, Launch)> {
        let proxy = WatchProxy::start(self.account.kubeconfig(), self.folder.path()).await?;
        let cloud = self.env.served.config();
        let launch = Launch::controller("node-ccm", proxy.kubeconfig(), "external", cloud);
        Ok((proxy, launch))
    }

    /// Swallows the watches of both. If no replica sees, no replica leads, even after both are
    /// restarted.
    async fn both_behind_proxies(&self) -> Result<()> {
        println!("\n-- the watches of both replicas swallowed");
        let ((one, first), (other, second)) = tokio::try_join!(self.proxied(), self.proxied())?;
        let mut leader = self.env.start(&first).await?;
        let standby = self.env.start_standby(&second).await?;
        let start = Instant::now();
        let treat = |watches| [&one, &other].map(|proxy| proxy.treat(watches));
        treat(Watches::Swallow);
        tokio::try_join!(not_ready(&leader), not_ready(&standby))?;
        let shown = start.elapsed();
        println!("shown by both after {} (wanted: below 60 s)", seconds(shown));
        let ended = leader.wait(2 * MOVED).await?;
        println!("the leader ended with {ended} after {}", seconds(start.elapsed()));

        let mut pods = [(&first, leader), (&second, standby)];
        let (mut holders, mut restarts) = (Vec::new(), 0);
        for minute in 0..MOVED.as_secs() / 60 {
            for (launch, program) in &mut pods {
                // A rollout in the second minute restarts both. Otherwise the kubelet does it.
                if minute == 1 && is_running(program) {
                    program.signal(Signal::TERM)?;
                    program.wait(SHOWN).await?;
                }
                if !is_running(program) {
                    *program = self.env.start_only(launch)?;
                    restarts += 1;
                }
            }
            holders.extend(self.holders(Duration::from_mins(1)).await?);
        }
        holders.dedup();
        println!(
            "holders of the Lease in three minutes with {restarts} restarts: {holders:?} (wanted: none)"
        );

        let start = Instant::now();
        treat(Watches::Pass);
        let [(_, one), (_, other)] = pods;
        poll::until("a leader", 2 * BACK, || async {
            Ok((one.leads().await? || other.leads().await?).then_some(()))
        })
        .await?;
        let leads = start.elapsed();
        println!("a leader {} after the end of the fault (wanted: below 60 s)", seconds(leads));
        ensure!(holders == [""] && shown <= SHOWN && leads <= BACK, "not as wanted");
        finish([one, other]).await
    }

    /// Takes the right to watch nodes from both.
    async fn without_right(&self) -> Result<()> {
        println!("\n-- the right to watch nodes is taken from the account of both");
        let grants = self.account.manifest().grants()?;
        let watch = grants.iter().find(|grant| grant.verb == "watch" && grant.resource == "nodes");
        let (mut leader, standby) = self.two(&self.env.node_ccm()).await?;
        let start = Instant::now();
        self.account.take(watch.context("it has the right")?).await?;
        let (one, other) = tokio::try_join!(not_ready(&leader), not_ready(&standby))?;
        let shown = start.elapsed();
        println!("shown by both after {} (wanted: below 60 s):", seconds(shown));
        println!("  leader:  {one}\n  standby: {other}");
        let ended = leader.wait(MOVED).await?;
        println!("the leader ended with {ended} after {}", seconds(start.elapsed()));
        // The kubelet would do the same.
        let again = self.env.start_only(&self.env.node_ccm())?;
        let holders = self.holders(MOVED).await?;
        println!("holders of the Lease in the three minutes after: {holders:?} (wanted: none)");
        let page = again.get("/readyz?verbose").await?.1;
        let line = page.lines().find(|line| line.contains("leaderElection"));
        println!("  {}", line.context("it takes part in the election")?);

        let start = Instant::now();
        self.account.restore().await?;
        self.env.add_node("node-late").await?;
        poll::until("a leader", 2 * BACK, || async {
            Ok((again.leads().await? || standby.leads().await?).then_some(()))
        })
        .await?;
        let leads = start.elapsed();
        nodes::all_initialised(&self.env.client, BACK).await?;
        let works = start.elapsed();
        let (leads_in, works_in) = (seconds(leads), seconds(works));
        println!(
            "the right is back: a leader after {leads_in}, a waiting node initialised after {works_in} (wanted: below 60 s)"
        );
        ensure!(holders == [""] && shown <= SHOWN && works <= BACK, "not as wanted");
        finish([again, standby]).await
    }

    /// Returns a leader and a standby.
    async fn two(&self, launch: &Launch) -> Result<(Program, Program)> {
        Ok((self.env.start(launch).await?, self.env.start_standby(launch).await?))
    }

    /// Returns the different holders of the Lease within this time.
    async fn holders(&self, time: Duration) -> Result<Vec<String>> {
        let (start, mut holders) = (Instant::now(), Vec::new());
        while start.elapsed() < time {
            let holder = lease(&self.env, "node-ccm").await?.holder_identity.unwrap_or_default();
            if holders.last() != Some(&holder) {
                holders.push(holder);
            }
            sleep(Duration::from_millis(500)).await;
        }
        Ok(holders)
    }

    /// Changes a node every three seconds.
    fn beats(&self) -> JoinSet<()> {
        let (client, mut tasks) = (self.env.client.clone(), JoinSet::new());
        tasks.spawn(async move {
            for beat in 0_u64.. {
                let patch =
                    json!({"metadata": {"annotations": {"example.com/beat": beat.to_string()}}});
                nodes::patch(&client, BEAT, patch).await.ok();
                sleep(Duration::from_secs(3)).await;
            }
        });
        tasks
    }
}

/// Waits until `/readyz` fails, and returns the reason.
async fn not_ready(program: &Program) -> Result<String> {
    poll::until("/readyz to fail", 2 * MOVED, || async {
        let (status, page) = program.get("/readyz?verbose").await?;
        let line = page.lines().find(|line| line.starts_with("[-]nodes"));
        Ok(line.filter(|_| status == 500).map(str::to_owned))
    })
    .await
}

async fn ready(program: &Program) -> Result<()> {
    poll::until("/readyz to pass", 2 * SHOWN, || async {
        Ok(matches!(program.get("/readyz").await, Ok((200, _))).then_some(()))
    })
    .await
}

fn is_running(program: &mut Program) -> bool {
    program.id().is_ok_and(|id| Path::new(&format!("/proc/{id}/exe")).exists())
}

/// Returns the message of the last error of a log.
fn last_error(log: &str) -> &str {
    let fatal = log.lines().rev().find_map(|line| line.split_once("fatal: "));
    fatal.map_or("no error", |(_, message)| message)
}

async fn finish(programs: [Program; 2]) -> Result<()> {
    for mut program in programs {
        if is_running(&mut program) {
            program.terminate().await?;
        }
    }
    Ok(())
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
