//! openstack-cloud-controller-manager itself, before service-ccm and after it.

use std::{collections::BTreeSet, path::PathBuf, process::Stdio, time::Duration};

use anyhow::{Context as _, Result, ensure};
use ccm_sim::poll;
use http::Method;
use serde_json::Value;
use tokio::{
    process::{Child, Command},
    time::{Instant, sleep},
};

use crate::{
    cluster,
    openstack::{
        balancing::{
            add_node, add_nodes, delete_all, have_member, id, of_service, provisioned, quick,
            service,
        },
        proxy::{Request, tally},
        rig::{Rig, SOON},
    },
    services,
};

/// The controller makes and changes one part after another, with a pause before it looks again.
const SLOW: Duration = Duration::from_mins(2);
/// The controller has nothing more to do when it has been quiet for this time.
const QUIET: Duration = Duration::from_secs(12);

/// The running program. Dropping it kills it.
struct Controller {
    child: Child,
    log: PathBuf,
}

impl Controller {
    /// Starts its service controller, with the cloud.conf of this scenario.
    async fn start(rig: &Rig, number: usize) -> Result<Self> {
        let folder = tokio::task::spawn_blocking(cluster::openstack_controller).await??;
        let log = rig.path(&format!("openstack-cloud-controller-manager-{number}.log"));
        let output = std::fs::File::create(&log)?;
        let child = Command::new(folder.join("openstack-cloud-controller-manager"))
            .arg(format!("--kubeconfig={}", rig.cluster.kubeconfig().display()))
            .arg(format!("--cloud-config={}", rig.config().display()))
            .args(["--cloud-provider=openstack", "--controllers=service", "--v=2"])
            .args(["--leader-elect=false", "--secure-port=0", "--cluster-name=kubernetes"])
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .kill_on_drop(true)
            .spawn()
            .context("starting openstack-cloud-controller-manager")?;
        Ok(Self { child, log })
    }

    /// Returns the end of what it has logged.
    fn log(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(60)..].join("\n")
    }

    /// Ends it.
    async fn kill(mut self) -> Result<()> {
        Ok(self.child.kill().await?)
    }
}

/// Returns the load balancer of a Service, and the IDs of all parts of it and of its floating IPs.
async fn parts(rig: &Rig, balancer: &str) -> Result<BTreeSet<String>> {
    let user = &rig.cloud.user;
    let mut all = BTreeSet::from([balancer.to_owned()]);
    for kind in ["listeners", "pools"] {
        for part in user.balancer_parts(&format!("{kind}?loadbalancer_id={balancer}")).await? {
            all.insert(format!("{kind} {}", id(&part)?));
            if let Some(monitor) = part["healthmonitor_id"].as_str() {
                all.insert(format!("monitor {monitor}"));
            }
        }
    }
    let row = user.balancer(balancer).await?.context("it exists")?;
    for floating in user.floating_ip_details().await? {
        if floating["port_id"] == row["vip_port_id"] {
            all.insert(format!("{} {}", id(&floating)?, floating["floating_ip_address"]));
        }
    }
    Ok(all)
}

/// Waits until it has sent requests, and then stays quiet for a while. Returns them.
async fn settled(rig: &Rig, mark: usize) -> Result<Vec<Request>> {
    poll::until("openstack-cloud-controller-manager to have settled", 2 * SLOW, || async {
        sleep(Duration::from_millis(500)).await;
        let all = rig.cloud.proxy.log().since(mark);
        let is_quiet = all.last().is_some_and(|last| last.at.elapsed() > QUIET);
        Ok(is_quiet.then_some(all))
    })
    .await
}

/// service-ccm adopts its load balancers, and it takes over service-ccm's: nothing is made twice.
pub(super) async fn it_recreates_nothing_when_it_is_started_again(rig: &Rig) -> Result<()> {
    if rig.cluster.real().is_none() {
        eprintln!("skipped: openstack-cloud-controller-manager needs a real API server");
        return Ok(());
    }
    rig.balance_with("create-monitor = true\n").await?;
    add_nodes(rig, 2).await?;
    let before = Controller::start(rig, 1).await?;
    let start = Instant::now();
    services::create(&rig.client, &service("theirs", 2)).await?;
    let address = services::address(&rig.client, "theirs", SLOW).await;
    let address = address.with_context(|| before.log())?;
    eprintln!("openstack-cloud-controller-manager: an address after {:.1?}", start.elapsed());
    settled(rig, 0).await?;
    before.kill().await?;
    let all = rig.cloud.user.balancers().await?;
    ensure!(all.len() == 1, "{all:?}");
    let theirs = id(&all[0])?;
    let made = parts(rig, &theirs).await?;

    let program = rig.start(&quick(rig).arg("--adopt-load-balancers=true")).await?;
    services::create(&rig.client, &service("ours", 2)).await?;
    for name in ["theirs", "ours"] {
        provisioned(rig, name, 3 * SOON).await.with_context(|| program.log())?;
    }
    let joined = add_node(rig, 3).await?;
    let ours = id(of_service(rig, "ours").await?.first().context("no load balancer")?)?;
    let both = [theirs.clone(), ours.clone()];
    have_member(rig, &both, &joined, 2 * SOON).await.with_context(|| program.log())?;
    ensure!(parts(rig, &theirs).await? == made, "adopted as it is");
    program.terminate().await?;
    let made = [parts(rig, &theirs).await?, parts(rig, &ours).await?];

    let mark = rig.cloud.proxy.log().mark();
    let after = Controller::start(rig, 2).await?;
    let requests = settled(rig, mark).await.with_context(|| after.log())?;
    let writes: Vec<_> = requests
        .into_iter()
        .filter(|one| one.method != Method::GET && !one.path.ends_with("/auth/tokens"))
        .collect();
    eprintln!("started again it writes: {:?}", tally(&writes));
    let makes_or_deletes = |one: &&Request| matches!(one.method, Method::POST | Method::DELETE);
    let recreated: Vec<_> = writes.iter().filter(makes_or_deletes).collect();
    ensure!(recreated.is_empty(), "{recreated:?}");
    let now = [parts(rig, &theirs).await?, parts(rig, &ours).await?];
    ensure!(now == made, "were {made:?}\nare {now:?}");
    let shown = services::addresses(&services::get(&rig.client, "theirs").await?);
    ensure!(shown == [address], "the address stays: {shown:?}");

    // The controller continues from there.
    let joined = add_node(rig, 4).await?;
    have_member(rig, &both, &joined, SLOW).await.with_context(|| after.log())?;
    let names = ["theirs", "ours"].map(str::to_owned);
    delete_all(rig, &names, SLOW).await.with_context(|| after.log())?;
    let left: Vec<Value> = rig.cloud.user.balancers().await?;
    ensure!(left.is_empty(), "{left:?}");
    ensure!(rig.cloud.user.floating_ips().await?.is_empty(), "no floating IP is left");
    after.kill().await
}
