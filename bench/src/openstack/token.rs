//! Measures a token that ends while many calls are under way. The provider runs in this process.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, Result, ensure};
use ccm_cloud::{Call, Cloud, Detail, Lookup, LookupResult, NodeIdentity, ProviderContext};
use ccm_tests::openstack::rig::Rig;
use futures::future::join_all;
use tokio::time::sleep;

use super::calls;

/// How many calls are made at the same time.
const CALLS: usize = 50;

/// Prints the cost of a revoked token.
pub async fn measure(rig: &Rig) -> Result<()> {
    let cloud = provider(rig).await?;
    cloud.health(Call::waiting(Duration::from_secs(60))).await?;
    let before = ask(rig, &*cloud, 1).await;
    ensure!(before.iter().all(is_found), "before: {before:?}");
    let token = rig.cloud.proxy.log().last_token().context("the provider has logged in")?;
    rig.cloud.operator.revoke_token(&token).await?;
    // The services trust a token for a second after they have asked Keystone.
    sleep(Duration::from_secs(2)).await;
    let mark = rig.cloud.proxy.log().mark();
    let answers = ask(rig, &*cloud, CALLS).await;
    let failed = CALLS - answers.iter().filter(|answer| is_found(answer)).count();
    let counts = calls(rig, mark);
    println!(
        "token revoked, then {CALLS} calls at the same time: {} logins (wanted: 1), {failed} calls failed (wanted: 0); requests {counts}",
        counts.of("identity POST /v3/auth/tokens")
    );
    Ok(())
}

async fn provider(rig: &Rig) -> Result<Arc<dyn Cloud>> {
    let config = Some(rig.config());
    let context = ProviderContext::ungated(config, "bench");
    Ok(ccm_providers::registry().get("openstack")?.build(context).await?)
}

/// Looks up servers of the fleet, each with a separate call.
async fn ask(rig: &Rig, cloud: &dyn Cloud, calls: usize) -> Vec<LookupResult> {
    let nodes = rig.cloud.fleet.iter().cycle().take(calls).map(|server| NodeIdentity {
        name: server.name.clone(),
        provider_id: Some(server.provider_id()),
        ..NodeIdentity::default()
    });
    let call = Call::waiting(Duration::from_secs(60));
    let asked = nodes.map(async |node| match cloud.instances() {
        Ok(Some(instances)) => instances.lookup(&[node], Detail::Everything, call).await,
        Ok(None) => Vec::new(),
        Err(error) => vec![Err(error)],
    });
    join_all(asked).await.into_iter().flatten().collect()
}

fn is_found(answer: &LookupResult) -> bool {
    matches!(answer, Ok(Lookup::Found(_)))
}
