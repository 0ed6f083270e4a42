//! The effect of the flags: routes, CIDRs, both or nothing.

use std::time::Duration;

use anyhow::{Result, ensure};
use ccm_sim::poll;
use ccm_tests::scenarios::{Env, SOON};
use tokio::time::sleep;

use crate::common::{AGENT, add_nodes, quick, routes};

const LIMIT: Duration = Duration::from_secs(10);

/// Without work the program is healthy and idle, with one line that gives the reason.
pub(crate) async fn without_routes_and_cidrs_it_is_idle(mut env: Env) -> Result<()> {
    add_nodes(&env, 0..2).await?;
    env.forget_requests().await?;
    env.cloud().reset_calls();
    // The network does not matter, because it is not read.
    let off = env.launch("route-ccm").arg("--configure-cloud-routes=false");
    let program = env.start_standby(&off).await?;
    let page = program.get("/readyz?verbose").await?.1;
    ensure!(
        page.contains("idle: --configure-cloud-routes and --allocate-node-cidrs are false"),
        "{page}"
    );
    let lines = program.log();
    let lines = lines.lines().filter(|line| line.contains("idle: ")).count();
    ensure!(lines == 1, "{lines} lines say why");
    sleep(Duration::from_secs(3)).await;
    let requests = env.requests(AGENT).await?;
    ensure!(requests.is_empty(), "an idle program asks for nothing: {requests:?}");
    ensure!(env.cloud().calls().total() == 0, "{}", env.cloud().calls());
    Ok(())
}

/// A cloud without routes does not count as a mistake. When it offers them, the program starts to
/// work.
pub(crate) async fn a_provider_without_routes_is_no_failure(mut env: Env) -> Result<()> {
    env.cloud().router().configure(|settings| settings.offered = false);
    add_nodes(&env, 0..2).await?;
    env.forget_requests().await?;
    let program = env.start_standby(&quick(&env)).await?;
    let page = program.get("/readyz?verbose").await?.1;
    ensure!(page.contains("idle: ") && page.contains("does not offer routes"), "{page}");
    sleep(Duration::from_secs(2)).await;
    let mut requests = env.requests(AGENT).await?;
    let is_look = |uri: &str| uri.contains("/validatingadmissionpolic");
    requests.retain(|it| it.resource != "selfsubjectaccessreviews" && !is_look(&it.uri));
    ensure!(requests.is_empty(), "no Lease and no watch: {requests:?}");
    ensure!(env.cloud().calls().routes.total() == 0, "{}", env.cloud().calls());
    ensure!(routes(&env).is_empty(), "{:?}", routes(&env));
    Ok(())
}

/// Exit code 2 and one line with the three flags, before the provider is asked.
pub(crate) async fn a_wrong_cluster_cidr_is_refused(env: Env) -> Result<()> {
    env.cloud().router().configure(|settings| settings.offered = false);
    let flags = ["--cluster-cidr", "--configure-cloud-routes", "--allocate-node-cidrs"];
    for (cidrs, what) in [
        (None, "it is empty"),
        (Some(""), "it is empty"),
        (Some("10.244.0.0"), "10.244.0.0"),
        (Some("10.244.0.0/33"), "10.244.0.0/33"),
        (Some("10.244.0.0/16,10.245.0.0/16"), "both IPv4"),
        (Some("10.244.0.0/16,fd00::/56,fd01::/56"), "fd01::/56"),
    ] {
        let mut launch = env.launch("route-ccm");
        if let Some(cidrs) = cidrs {
            launch = launch.arg(format!("--cluster-cidr={cidrs}"));
        }
        let finished = launch.run(LIMIT).await?;
        let printed = &finished.stderr;
        ensure!(finished.status.code() == Some(2), "{cidrs:?}: {}: {printed}", finished.status);
        let names = |line: &&str| line.contains(what) && flags.iter().all(|it| line.contains(it));
        ensure!(printed.lines().any(|line| names(&line)), "{cidrs:?}: {printed}");
        ensure!(!printed.contains("panicked"), "{printed}");
    }
    ensure!(env.cloud().calls().total() == 0, "{}", env.cloud().calls());
    // A short period only costs calls, so it is accepted with a warning.
    env.cloud().router().configure(|settings| settings.offered = true);
    let program = env.start(&quick(&env)).await?;
    poll::until("the warning", SOON, || async {
        let warning = "route-reconciliation-period";
        Ok(program.log().lines().any(|line| line.contains(warning)).then_some(()))
    })
    .await
}
