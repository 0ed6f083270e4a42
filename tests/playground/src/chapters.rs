//! The demo, with one chapter for each controller, and a state at the end to play with.

pub mod lifecycle;
pub mod node;
pub mod play;
pub mod route;
pub mod service;

use std::time::Duration;

use anyhow::{Result, ensure};
use ccm_sim::poll;

use crate::demo::Demo;

/// Returns the arguments of a program for its chapter, besides the addresses of cluster and cloud.
pub fn arguments(program: &str) -> &'static [&'static str] {
    match program {
        node::PROGRAM => node::ARGUMENTS,
        lifecycle::PROGRAM => lifecycle::ARGUMENTS,
        route::PROGRAM => route::ARGUMENTS,
        service::PROGRAM => service::ARGUMENTS,
        _ => &[],
    }
}

/// The time limit of a step.
const STEP_TIMEOUT: Duration = Duration::from_secs(30);

/// Waits until one replica of the program leads, and returns its name.
async fn leader(demo: &Demo, controller: &str) -> Result<String> {
    let name = poll::until("one replica to lead", STEP_TIMEOUT, || async {
        let leading = demo.leading(controller).await;
        ensure!(leading.len() < 2, "two leaders: {leading:?}");
        Ok(leading.into_iter().next())
    })
    .await?;
    Ok(format!("{name} leads"))
}
