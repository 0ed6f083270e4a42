//! Work that needs each right of a program.

use std::pin::Pin;

use anyhow::Result;
use ccm_cloud::PowerState;
use ccm_runtime::{
    program::Identity,
    programs::{LIFECYCLE_CCM, NODE_CCM},
};
use ccm_sim::program::Launch;
use serde_json::json;

use super::manifest::Grant;
use crate::{
    nodes,
    scenarios::{Env, quick_lifecycle, quick_node},
};

/// The result of a story's step.
pub type Step<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// A program's story: with it each of the program's rights is needed.
#[derive(Clone, Copy)]
pub struct Story {
    /// Whose.
    pub program: Identity,
    /// The program with short terms and quick periods.
    pub quick: fn(&Env) -> Launch,
    /// One step, by its number, that makes work; called again and again.
    pub stir: for<'a> fn(&'a Env, u32) -> Step<'a, ()>,
    /// True if the nodes show that the program lacks this right.
    pub is_undone: for<'a> fn(&'a Env, &'a Grant) -> Step<'a, bool>,
}

/// The stories of node-ccm and lifecycle-ccm.
pub fn of_node_and_lifecycle() -> [Story; 2] {
    [
        Story {
            program: NODE_CCM,
            quick: quick_node,
            stir: |env, round| Box::pin(stir_node(env, round)),
            is_undone: |env, _| {
                Box::pin(async { Ok(nodes::is_tainted(&nodes::get(&env.client, "node-1").await?)) })
            },
        },
        Story {
            program: LIFECYCLE_CCM,
            quick: quick_lifecycle,
            stir: |env, round| Box::pin(stir_lifecycle(env, round)),
            is_undone: |env, grant| Box::pin(is_undone_by_lifecycle(env, grant)),
        },
    ]
}

/// A node that is initialised once more causes the same event once more.
async fn stir_node(env: &Env, round: u32) -> Result<()> {
    if round == 0 {
        return env.add_node("node-1").await.map(drop);
    }
    if !nodes::is_tainted(&nodes::get(&env.client, "node-1").await?) {
        let taint = json!([{"key": nodes::UNINITIALIZED, "value": "true", "effect": "NoSchedule"}]);
        nodes::patch(&env.client, "node-1", json!({"spec": {"taints": taint}})).await?;
    }
    Ok(())
}

/// One node's instance is gone, another one's machine stops and starts.
async fn stir_lifecycle(env: &Env, round: u32) -> Result<()> {
    if round == 0 {
        env.add_initialised(&["node-0", "node-1", "node-2"]).await?;
        env.lose("node-2").await?;
        return nodes::set_ready(&env.client, "node-1", "Unknown").await;
    }
    let tainted = nodes::has_taint(&nodes::get(&env.client, "node-1").await?, nodes::SHUTDOWN);
    let power = if tainted { PowerState::Running } else { PowerState::Stopped };
    env.cloud().set_power("i-node-1", power);
    Ok(())
}

async fn is_undone_by_lifecycle(env: &Env, grant: &Grant) -> Result<bool> {
    if grant.verb == "delete" {
        return Ok(nodes::names(&env.client).await?.contains("node-2"));
    }
    Ok(!nodes::has_taint(&nodes::get(&env.client, "node-1").await?, nodes::SHUTDOWN))
}
