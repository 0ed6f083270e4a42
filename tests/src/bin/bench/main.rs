//! bench
use std::time::{Duration};
use anyhow::Result;
use ccm_tests::{cluster::{Cluster, Kind, audit}, nodes};
#[tokio::main]
async fn main() -> Result<()> {
    let t = tokio::time::Instant::now();
    let cluster = Cluster::start(Kind::Real).await?;
    println!("started {:?}", t.elapsed());
    let client = cluster.client().await?;
    let t = tokio::time::Instant::now();
    let list: Vec<_> = (0..300).map(|n| nodes::realistic(&format!("node-{n}"), 10)).collect();
    println!("size {}", serde_json::to_vec(&list[0])?.len());
    nodes::register_all(&client, list, 16).await?;
    println!("registered {:?}", t.elapsed());
    println!("{:?}", audit::count(&cluster.requests("scenario").await?));
    println!("{}", nodes::is_tainted(&nodes::get(&client, "node-3").await?));
    let _ = Duration::ZERO;
    cluster.stop().await?;
    Ok(())
}
