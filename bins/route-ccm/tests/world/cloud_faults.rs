//! A cloud that fails, hangs, lies or is full.

use std::time::Duration;

use anyhow::{Result, ensure};
use ccm_cloud::{CloudError, ErrorKind};
use ccm_sim::{
    cloud::{Operation, routes::RouteWriteKind},
    faults::{Fault, FaultEffect, Trouble},
};
use ccm_tests::{
    nodes,
    scenarios::{Env, SOON},
};
use tokio::time::Instant;

use crate::common::{add_nodes, name, quick, reachable, routed, shows};

fn trouble(number: usize, trouble: Trouble) -> Fault {
    Fault::new(FaultEffect::Routes(vec![name(number)], trouble)).on(Operation::ApplyRoutes)
}

pub(crate) async fn one_that_fails_and_one_that_hangs_delay_no_other(env: Env) -> Result<()> {
    let faults = env.cloud().faults();
    let refused = CloudError::new(ErrorKind::Unavailable, "no such luck");
    faults.add(trouble(3, Trouble::Fail(refused)));
    faults.add(trouble(4, Trouble::Hang));
    faults.add(trouble(5, Trouble::LoseAnswer).times(1));
    let _leader = env.start(&quick(&env)).await?;
    let start = Instant::now();
    add_nodes(&env, 0..10).await?;
    reachable(&env, (0..3).chain(6..10)).await?;
    ensure!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    add_nodes(&env, 10..12).await?;
    reachable(&env, 10..12).await?;
    let why = shows(&env, &name(3), "True", "NoRouteCreated").await?;
    ensure!(why.contains("no such luck"), "{why}");
    let why = shows(&env, &name(4), "True", "NoRouteCreated").await?;
    ensure!(why.contains("timeout: "), "{why}");
    nodes::event(&env.client, &name(4), "FailedToCreateRoute", SOON).await?;
    reachable(&env, [5]).await?;
    faults.clear();
    reachable(&env, [3, 4]).await?;
    routed(&env, 0..12).await?;
    let created = env.cloud().router().written(RouteWriteKind::Create);
    ensure!(created == 12, "{created} creations");
    Ok(())
}
