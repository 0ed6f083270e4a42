//! The events that the dashboard of service-ccm shows.

use anyhow::Result;
use ccm_tests::{
    nodes,
    prometheus::{SETTLE, Stage},
    scenarios::{Env, SOON},
    services::{self, service},
};
use tokio::time::sleep;

use crate::common::add_node;

/// Load balancers are created, changed, held, refused and deleted, and a second leader takes over.
pub(crate) async fn play(stage: &mut Stage) -> Result<()> {
    for number in 0..4 {
        add_node(&stage.env, &format!("node-{number}")).await?;
    }
    for number in 0..3 {
        services::create(&stage.env.client, &service(&format!("web-{number}"))).await?;
    }
    services::address(&stage.env.client, "web-2", SOON).await?;
    let late = async |env: &Env, number| {
        services::create(&env.client, &service(&format!("late-{number}"))).await.map(drop)
    };
    stage.throttle_cloud(late).await?;
    stage.refuse_writes("services")?;
    services::create(&stage.env.client, &service("refused")).await?;
    sleep(SETTLE).await;
    for number in 0..4 {
        nodes::delete(&stage.env.client, &format!("node-{number}")).await?;
    }
    services::delete(&stage.env.client, "web-0").await?;
    sleep(SETTLE).await;
    stage.hand_over().await?;
    services::address(&stage.env.client, "refused", 2 * SOON).await?;
    sleep(SETTLE).await;
    Ok(())
}
