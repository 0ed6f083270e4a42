//! The cost of load balancers, from creation to deletion.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::{
    openstack::{
        balancing::{
            Calls, add_nodes, all_have_addresses, id, id_of, provisioned, quick, service,
            service_ccm,
        },
        many_balancers,
        rig::{Rig, SOON},
    },
    services,
};

/// Ports of each Service.
const PORTS: u16 = 3;
/// Nodes of the cluster.
const NODES: usize = 20;
/// The reads of one whole comparison: the status tree, listeners, pools, a monitor for each pool,
/// and the floating IP. The last one is read once more for all compared load balancers.
const READS: usize = 8;
/// For how long nothing more may happen after the expected calls.
const QUIET: Duration = Duration::from_secs(3);

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

/// Creates the same load balancers without a program, by one request each at the same time. Returns
/// how long Octavia itself takes on this machine now.
async fn octavia_alone(rig: &Rig, count: usize) -> Result<Duration> {
    let user = &rig.cloud.user;
    let subnet = user.subnet("k8s").await?;
    let member = |number: usize| json!({"address": format!("127.32.200.{number}"), "protocol_port": 30_000, "subnet_id": subnet});
    let listener = |port: u16| {
        let monitor =
            json!({"name": "check", "type": "TCP", "delay": 5, "timeout": 3, "max_retries": 1});
        let members: Vec<_> = (1..=NODES).map(member).collect();
        let pool = json!({"name": format!("pool-{port}"), "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN", "members": members, "healthmonitor": monitor});
        json!({"name": format!("listener-{port}"), "protocol": "TCP", "protocol_port": 8000 + port, "default_pool": pool})
    };
    let listeners: Vec<_> = (0..PORTS).map(listener).collect();
    let body =
        json!({"loadbalancer": {"name": "alone", "vip_subnet_id": subnet, "listeners": listeners}});
    let start = Instant::now();
    let all =
        try_join_all((0..count).map(|_| user.create_balancer_part("loadbalancers", body.clone())))
            .await?;
    for one in &all {
        user.balancer_is(&id(one)?, "ACTIVE").await?;
    }
    let took = start.elapsed();
    user.clear_balancers().await?;
    Ok(took)
}

/// Creates Services, waits for their addresses, and counts.
async fn create(rig: &Rig, names: &[String]) -> Result<(Duration, Calls)> {
    let mark = rig.cloud.proxy.log().mark();
    let start = Instant::now();
    for name in names {
        services::create(&rig.client, &service(name, PORTS)).await?;
    }
    let took = all_have_addresses(rig, names, start, 2 * SOON).await?;
    for name in names {
        provisioned(rig, name, SOON).await?;
    }
    sleep(QUIET).await;
    Ok((took, Calls::since(rig, mark)))
}

/// Fails unless the load balancer of this Service has all listeners, members and monitors.
async fn is_whole(rig: &Rig, name: &str) -> Result<()> {
    let shape = rig.cloud.user.balancer_tree(&id_of(rig, name).await?).await?;
    let listeners = shape["listeners"].as_array().context("no listeners")?;
    let has_all = |listener: &serde_json::Value| {
        let pool = &listener["pools"][0];
        pool["health_monitor"]["id"].is_string()
            && pool["members"].as_array().is_some_and(|members| members.len() == NODES)
    };
    ensure!(listeners.len() == 3 && listeners.iter().all(has_all), "{shape}");
    Ok(())
}

/// Deletes the Services, waits until nothing is left of them, and counts the calls.
async fn delete(rig: &Rig, names: &[String]) -> Result<Calls> {
    let program = rig.start(&service_ccm(rig)).await?;
    sleep(QUIET).await;
    let mark = rig.cloud.proxy.log().mark();
    let start = Instant::now();
    for name in names {
        services::delete(&rig.client, name).await?;
    }
    for name in names {
        services::gone(&rig.client, name, 2 * SOON).await?;
    }
    let gone = start.elapsed();
    sleep(QUIET).await;
    let deleted = Calls::since(rig, mark);
    eprintln!(
        "6 deleted: {} (wanted: 10 s), {} calls (24), {} polls: {:?}",
        seconds(gone),
        deleted.calls,
        deleted.polls,
        deleted.by_pattern
    );
    ensure!(rig.cloud.user.balancers().await?.is_empty(), "load balancers are left");
    ensure!(rig.cloud.user.floating_ips().await?.is_empty(), "floating IPs are left");
    program.terminate().await?;
    Ok(deleted)
}

pub(super) async fn six_services_from_creation_to_deletion(rig: &Rig) -> Result<()> {
    rig.balance_with("create-monitor = true\n").await?;
    add_nodes(rig, NODES).await?;
    let alone = [octavia_alone(rig, 1).await?, octavia_alone(rig, 5).await?];
    eprintln!("Octavia alone: 1 after {}, 5 after {}", seconds(alone[0]), seconds(alone[1]));
    let program = rig.start(&service_ccm(rig)).await?;
    sleep(QUIET).await;

    let names: Vec<_> = (0..6).map(|number| format!("web-{number}")).collect();
    let (first, others) = names.split_at(1);
    let (took, one) = create(rig, first).await?;
    eprintln!(
        "1 Service, 3 ports, 20 members, monitors, floating IP: address after {} (wanted: 6 s), {} calls (4), {} polls (5): {:?}",
        seconds(took),
        one.calls,
        one.polls,
        one.by_pattern
    );
    is_whole(rig, "web-0").await?;

    let (five_took, five) = create(rig, others).await?;
    eprintln!(
        "5 more at once: {} (wanted: 15 s), {} calls (20), {} polls (12): {:?}",
        seconds(five_took),
        five.calls,
        five.polls,
        five.by_pattern
    );
    program.terminate().await?;
    restarted(rig).await?;

    let deleted = delete(rig, &names).await?;

    // The time depends on the machine, and so does the number of polls.
    let polls = |wanted: usize, took: Duration| {
        wanted.max(usize::try_from(took.as_secs()).unwrap_or(wanted))
    };
    ensure!(one.calls <= 4 && one.polls <= polls(5, took), "one Service: {one:?}");
    ensure!(five.calls <= 20 && five.polls <= polls(12, five_took), "five Services: {five:?}");
    ensure!(deleted.calls <= 24, "six deletions: {deleted:?}");
    Ok(())
}

/// Restarts the program, and waits for some audits with nothing to do.
async fn restarted(rig: &Rig) -> Result<()> {
    let launch = quick(rig).arg("--load-balancer-audit-period=20s");
    let program = many_balancers::restarted(rig, &launch, 6).await?;

    // Each load balancer is compared once within 30 minutes, so few have their turn now.
    let mark = rig.cloud.proxy.log().mark();
    sleep(Duration::from_secs(60)).await;
    let idle = Calls::since(rig, mark);
    let all = idle.calls + idle.polls;
    eprintln!("nothing to do after a restart, 3 audits: {all} calls: {:?}", idle.by_pattern);
    let lists = idle.of_pattern("load-balancer GET /v2.0/lbaas/loadbalancers") + idle.polls;
    let turns = idle.of_pattern("load-balancer GET /v2.0/lbaas/loadbalancers/{id}/status");
    ensure!(idle.writes == 0 && turns <= 2, "{idle:?}");
    ensure!(lists <= 4 + 2 * turns && all <= lists + turns * READS, "{idle:?}");
    program.terminate().await?;
    Ok(())
}

/// `make bench BENCH=openstack` does the same with 50 load balancers.
pub(super) async fn a_node_joins_ten_load_balancers(rig: &Rig) -> Result<()> {
    many_balancers::measure(rig, 10, Duration::from_secs(20)).await
}

/// `make bench BENCH=openstack` loses 20 answers.
pub(super) async fn answers_are_lost_and_leaders_killed(rig: &Rig) -> Result<()> {
    many_balancers::lose_answers(rig, [3, 2, 2]).await
}
