//! Takeovers by a standby whose watches work, and by one whose watches have become silent, so that
//! its store is old.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ccm_sim::{
    poll,
    program::{Launch, Program, Signal},
};
use tokio::time::{Instant, sleep};

use super::{Env, SOON};
use crate::cluster::proxy::{WatchProxy, Watches};

/// How long the standby sees no events. This is much shorter than the silence after which a watch
/// is in doubt.
const SILENCE: Duration = Duration::from_secs(4);
/// How much longer than another takeover the one with an old store may take. This is less than the
/// shortest time in which an election without a released Lease ends.
const LONGER: Duration = Duration::from_secs(4);

/// A leader, and a standby that reads the API server through a proxy.
pub struct Pair {
    name: &'static str,
    leader: Option<Program>,
    standby: Program,
    proxy: WatchProxy,
    usual: Took,
}

/// How long a takeover took, from the signal to the leader.
struct Took {
    /// The time until the standby led.
    lead: Duration,
    /// The time until its stores were proven to be current, so that it planned.
    plan: Duration,
}

impl Pair {
    /// Starts both replicas. The leader has taken over from another one.
    pub async fn start(
        env: &Env,
        name: &'static str,
        launch: impl Fn(&Env) -> Launch,
    ) -> Result<Self> {
        let first = env.start(&launch(env)).await?;
        let leader = env.start_standby(&launch(env)).await?;
        let usual = take_over(first, &leader).await?;
        let proxy = WatchProxy::start(env.kubeconfig(name), &env.path("")).await?;
        let kubeconfig = format!("--kubeconfig={}", proxy.kubeconfig().display());
        let standby = env.start_standby(&launch(env).arg(kubeconfig)).await?;
        Ok(Self { name, leader: Some(leader), standby, proxy, usual })
    }

    /// Hides every change from the standby from now on.
    pub fn silence(&self) {
        self.proxy.treat(Watches::Swallow);
    }

    /// Sends SIGTERM to the leader some seconds later, and lets the standby take over. It sees the
    /// events from then on; swallowed events do not come again.
    pub async fn take_over(&mut self) -> Result<()> {
        sleep(SILENCE).await;
        let leader = self.leader.take().context("it has led")?;
        let silent = take_over(leader, &self.standby).await?;
        self.proxy.treat(Watches::Pass);
        let Self { name, usual, .. } = self;
        let shown = |time: Duration| format!("{:.2} s", time.as_secs_f64());
        eprintln!(
            "{name}: from SIGTERM to the next leader {}, with a silent watch {}; to its first plan {} and {}",
            shown(usual.lead),
            shown(silent.lead),
            shown(usual.plan),
            shown(silent.plan)
        );
        ensure!(silent.plan < usual.plan + LONGER, "the takeover took too long");
        Ok(())
    }

    /// Returns the standby, which leads after it has taken over.
    pub fn standby(&self) -> &Program {
        &self.standby
    }
}

async fn take_over(mut leader: Program, standby: &Program) -> Result<Took> {
    let start = Instant::now();
    leader.signal(Signal::TERM)?;
    standby.leading(SOON).await?;
    let lead = start.elapsed();
    poll::until("the first plan", SOON, || async {
        let page = standby.get("/readyz?verbose").await?.1;
        Ok(page.contains("current when this replica began to lead").then_some(()))
    })
    .await
    .with_context(|| standby.log())?;
    let plan = start.elapsed();
    let ended = leader.wait(2 * SOON).await?;
    ensure!(ended.success(), "the leader ends in order, not with {ended}");
    Ok(Took { lead, plan })
}
