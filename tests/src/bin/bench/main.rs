//! The figures of Quartet, counted and printed: `make bench`, or `make bench BENCH=burst`.

use anyhow::Result;
use ccm_tests::cluster::{Cluster, Kind};

mod burst;
mod plain;

#[tokio::main]
async fn main() -> Result<()> {
    let cluster = Cluster::start(Kind::Real).await?;
    plain::compare_patches(&cluster, 500).await?;
    let client = cluster.client().await?;
    println!("{}", plain::registering(&client, 1000).await?);
    cluster.stop().await
}
