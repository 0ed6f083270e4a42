//! Work for which route-ccm needs each of its rights.

use anyhow::Result;
use ccm_tests::{nodes, scenarios::Env};

use crate::common::{add_nodes, cidr, condition, name, net};

/// Makes work: each round a new node.
pub(crate) async fn step(env: &Env, round: u32) -> Result<()> {
    add_nodes(env, [usize::try_from(round)?]).await
}

/// Whether the newest node has no route, or no condition.
pub(crate) async fn is_undone(env: &Env) -> Result<bool> {
    let names = nodes::names(&env.client).await?;
    let newest = (0..).take_while(|number| names.contains(&name(*number))).last();
    let Some(newest) = newest else { return Ok(false) };
    let routes = env.cloud().router().to(net(&cidr(newest))?);
    Ok(routes.is_empty() || condition(env, &name(newest)).await?.is_none())
}
