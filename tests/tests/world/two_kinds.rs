//! The page of a program that watches two kinds.

use std::time::Duration;

use anyhow::{Result, ensure};
use ccm_controller::watch;
use ccm_kube::{
    informer::Informer,
    store::{Rule, Store, Stored},
};
use ccm_objects::{Node, Shared};
use ccm_runtime::metrics::Metrics;
use ccm_tests::{
    nodes,
    prometheus::{check_page, folder},
    scenarios::{Env, lease},
    trials::Trials,
};
use k8s_openapi::api::coordination::v1::Lease;
use libtest_mimic::Trial;
use tokio_util::sync::CancellationToken;

/// A second kind beside nodes.
#[derive(Clone, Debug, PartialEq)]
struct LeanLease {
    key: Shared,
    uid: String,
    version: String,
}

impl Stored for LeanLease {
    type Wire = Lease;
    type Kept = ();

    fn key(&self) -> &Shared {
        &self.key
    }

    fn uid(&self) -> &str {
        &self.uid
    }

    fn resource_version(&self) -> &str {
        &self.version
    }

    fn read(wire: Lease, _: &Rule<()>) -> Result<Self, String> {
        let meta = wire.metadata;
        let name = meta.name.ok_or("it has no name")?;
        Ok(Self {
            key: format!("{}/{name}", meta.namespace.unwrap_or_default()).into(),
            uid: meta.uid.unwrap_or_default(),
            version: meta.resource_version.unwrap_or_default(),
        })
    }
}

/// Returns the test, which needs promtool.
pub fn trial(trials: &Trials) -> Option<Trial> {
    folder()?;
    let name = "dashboards::promtool_accepts_a_program_that_watches_two_kinds";
    Some(trials.trial(name, async |lane| is_accepted(lane.env().await?).await))
}

async fn is_accepted(env: Env) -> Result<()> {
    nodes::register(&env.client, &nodes::fresh("node-1")).await?;
    let program = env.start(&env.node_ccm()).await?;
    lease(&env, "node-ccm").await?;
    let (metrics, token) = (Metrics::for_program("two-kinds-ccm"), CancellationToken::new());
    let informers = watch::metrics(&metrics);
    let (nodes, leases) = (Store::<Node>::new(), Store::<LeanLease>::new());
    let node = Informer::new(env.client.clone(), nodes.clone(), Box::new(drop), &informers);
    let lease = Informer::new(env.client.clone(), leases.clone(), Box::new(drop), &informers);
    let listed = async {
        nodes.wait_synced().await;
        leases.wait_synced().await;
        let page = metrics.encode_classic();
        token.cancel();
        page
    };
    let all = async { tokio::join!(node.run(token.clone()), lease.run(token.clone()), listed).2 };
    let page = tokio::time::timeout(Duration::from_secs(20), all).await??;
    for resource in ["nodes", "leases"] {
        let series = format!(r#"ccm_informer_objects{{resource="{resource}"}} 1"#);
        ensure!(page.lines().any(|line| line == series), "{series} in\n{page}");
    }
    check_page(&page)?;
    drop(program);
    Ok(())
}
