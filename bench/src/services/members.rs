//! Measures nodes that join and leave.

use std::time::Duration;

use anyhow::Result;
use ccm_sim::cloud::balancers::WriteKind;
use ccm_tests::nodes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::{
    AT_ONCE, Arena, add_nodes, all_have, cloud, create_services, finish, names, one_at_a_time,
    start, with_addresses,
};

const SERVICES: usize = 200;
const NODES: usize = 500;

/// Prints the figures.
pub(super) async fn measure(arena: &Arena) -> Result<()> {
    println!("\n-- service-ccm, default settings: {SERVICES} Services, {NODES} nodes");
    join(arena, "in batches", |_| {}, true).await?;
    join(arena, "one at a time", one_at_a_time, false).await?;
    scale_down(arena).await?;
    thin_views(arena).await
}

async fn join(
    arena: &Arena,
    what: &str,
    change: fn(&mut ccm_cloud::LoadBalancerTraits),
    with_many: bool,
) -> Result<()> {
    cloud(arena, |settings| change(&mut settings.traits));
    let all = names(NODES + 101);
    add_nodes(arena, all.get(..NODES).unwrap_or_default()).await?;
    let program = start(arena).await?;
    create_services(arena, "web", SERVICES).await?;
    with_addresses(arena, SERVICES, Duration::from_mins(2)).await?;
    all_have(arena, NODES, Duration::from_mins(1)).await?;
    sleep(Duration::from_secs(12)).await;
    let written = || arena.served.cloud().balancers().written(WriteKind::Members);

    arena.served.cloud().balancers().reset_writes();
    arena.served.cloud().reset_calls();
    let begun = Instant::now();
    add_nodes(arena, all.get(NODES..=NODES).unwrap_or_default()).await?;
    all_have(arena, NODES + 1, Duration::from_mins(2)).await?;
    let took = begun.elapsed();
    println!(
        "{what}, one node joins: {} membership writes (wanted: {SERVICES}) in {} calls, in all load balancers after {:.1} s",
        written(),
        arena.served.cloud().calls().load_balancers.set_members,
        took.as_secs_f64()
    );
    if with_many {
        sleep(Duration::from_secs(12)).await;
        arena.served.cloud().balancers().reset_writes();
        let begun = Instant::now();
        for name in all.get(NODES + 1..).unwrap_or_default().chunks(1) {
            add_nodes(arena, name).await?;
            sleep(Duration::from_millis(95)).await;
        }
        let joined = begun.elapsed();
        all_have(arena, NODES + 101, Duration::from_mins(2)).await?;
        println!(
            "{what}, 100 nodes join within {:.1} s: {} membership writes (wanted: at most {}), in all load balancers after {:.1} s",
            joined.as_secs_f64(),
            written(),
            2 * SERVICES,
            begun.elapsed().as_secs_f64()
        );
    }
    finish(arena, program).await
}

/// Removes 40 of 50 nodes, each marked for scale-down.
async fn scale_down(arena: &Arena) -> Result<()> {
    cloud(arena, |_| {});
    let all = names(50);
    add_nodes(arena, &all).await?;
    let program = start(arena).await?;
    create_services(arena, "web", 20).await?;
    with_addresses(arena, 20, Duration::from_mins(1)).await?;
    let begun = Instant::now();
    let mark = json!({"spec": {"taints": [
        {"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule", "value": "1"}]}});
    for name in all.iter().skip(10) {
        nodes::patch(&arena.client, name, mark.clone()).await?;
        nodes::delete(&arena.client, name).await?;
    }
    all_have(arena, 10, Duration::from_mins(2)).await?;
    println!(
        "40 of 50 nodes leave, each marked for scale-down: out of 20 load balancers after {:.1} s, without approval",
        begun.elapsed().as_secs_f64()
    );
    finish(arena, program).await
}

/// Measures how many members leave when a view of the nodes looks like a mistake.
async fn thin_views(arena: &Arena) -> Result<()> {
    for (what, wanted) in [
        ("all Node objects are deleted without a mark", 20),
        ("190 of 200 Node objects are deleted without a mark", 20),
        ("the first InternalIP of all nodes changes", 20),
        ("all nodes get the exclusion label", 100),
    ] {
        cloud(arena, |_| {});
        let all = names(200);
        add_nodes(arena, &all).await?;
        let program = start(arena).await?;
        create_services(arena, "web", 5).await?;
        with_addresses(arena, 5, Duration::from_mins(1)).await?;
        all_have(arena, 200, Duration::from_mins(1)).await?;
        let before: Vec<_> = balancers(arena);
        each(arena, &all, what).await?;
        sleep(Duration::from_secs(45)).await;
        let changed: Vec<usize> = balancers(arena)
            .iter()
            .zip(&before)
            .map(|(now, before)| before.iter().filter(|member| !now.contains(member)).count())
            .collect();
        println!(
            "{what}: members of 200 that left or were replaced in 45 s, by load balancer: {changed:?} (wanted: at most {wanted})"
        );
        finish(arena, program).await?;
    }
    Ok(())
}

type Member = (String, Vec<String>);

fn balancers(arena: &Arena) -> Vec<Vec<Member>> {
    let mut all = arena.served.cloud().balancers().all();
    all.sort_by(|one, other| one.id.cmp(&other.id));
    let member = |one: &ccm_cloud::Member| {
        (one.node.clone(), one.addresses.iter().map(|address| address.address.clone()).collect())
    };
    all.iter().map(|one| one.members.iter().map(member).collect()).collect()
}

async fn each(arena: &Arena, all: &[String], what: &str) -> Result<()> {
    stream::iter(all.iter().enumerate())
        .map(|(number, name)| async move {
            match what {
                "the first InternalIP of all nodes changes" => {
                    let address = format!("172.16.{}.{}", number / 250, number % 250);
                    let status = json!({"status": {"addresses": [
                        {"type": "InternalIP", "address": address}]}});
                    nodes::patch_status(&arena.client, name, status).await
                }
                "all nodes get the exclusion label" => {
                    let label = json!({"metadata": {"labels": {
                        "node.kubernetes.io/exclude-from-external-load-balancers": ""}}});
                    nodes::patch(&arena.client, name, label).await.map(drop)
                }
                "190 of 200 Node objects are deleted without a mark" if number < 10 => Ok(()),
                _ => nodes::delete(&arena.client, name).await,
            }
        })
        .buffer_unordered(AT_ONCE)
        .try_collect::<Vec<()>>()
        .await?;
    Ok(())
}
