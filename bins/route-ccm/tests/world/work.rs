//! Work for which route-ccm needs each of its rights.

use anyhow::Result;
use ccm_cloud::{CloudError, ErrorKind};
use ccm_sim::{
    cloud::Operation,
    faults::{Fault, FaultEffect, Trouble},
    program::Launch,
};
use ccm_tests::{nodes, scenarios::Env};

use crate::common::{self, add_bare_nodes, condition, name, net, pod_cidrs};

/// Returns a route-ccm that gives nodes pod CIDRs and routes.
pub(crate) fn launch(env: &Env) -> Launch {
    common::with_cidrs(env, "10.244.0.0/16")
}

/// Makes work: each round a new node. The route of the first one fails three times, the third time
/// like the first: that event already exists.
pub(crate) async fn step(env: &Env, round: u32) -> Result<()> {
    let kinds = [ErrorKind::Unavailable, ErrorKind::Timeout, ErrorKind::Unavailable];
    for kind in kinds.into_iter().filter(|_| round == 0) {
        let error = CloudError::new(kind, "the router is being repaired");
        let effect = FaultEffect::Routes(vec![name(0)], Trouble::Fail(error));
        env.cloud().faults().add(Fault::new(effect).on(Operation::ApplyRoutes).times(1));
    }
    add_bare_nodes(env, [usize::try_from(round)?]).await
}

/// Returns true if the newest node has no pod CIDR, no route or no condition.
pub(crate) async fn is_undone(env: &Env) -> Result<bool> {
    let names = nodes::names(&env.client).await?;
    let newest = (0..names.len()).map(name).take_while(|name| names.contains(name)).last();
    let Some(newest) = newest else { return Ok(false) };
    let cidrs = pod_cidrs(env, &newest).await?;
    let Some(cidr) = cidrs.first() else { return Ok(true) };
    let is_routed = !env.cloud().router().to(net(cidr)?).is_empty();
    Ok(!is_routed || condition(env, &newest).await?.is_none())
}
