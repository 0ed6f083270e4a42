//! Many load balancers: the cost of a joining node, and the effect of lost answers.

use std::time::Duration;

use anyhow::{Result, ensure};
use ccm_sim::{
    poll,
    program::{Launch, Program, Signal},
};
use http::Method;
use tokio::time::{Instant, sleep};

use super::{
    Service,
    balancing::{
        BALANCERS, Calls, SERVICE_TAG, Shown, add_node, add_nodes, all_have_addresses, delete_all,
        have_member, id_of, of_service, provisioned, quick, service, service_ccm, tags,
    },
    proxy::{Effect, Fault, Request, tally},
    rig::{Rig, SOON},
};
use crate::services;

/// Ports of each Service.
const PORTS: u16 = 3;

/// Adds a node to this number of load balancers of three ports, of which the cloud holds one in
/// `PENDING_UPDATE` for this time.
pub async fn measure(rig: &Rig, count: usize, held_for: Duration) -> Result<()> {
    rig.balance().await?;
    add_nodes(rig, 2).await?;
    // An audit reads the trees whose turn it is. They do not belong to the cost of a joining node.
    let launch = service_ccm(rig).arg("--load-balancer-audit-period=1h");
    let program = rig.start(&launch).await?;
    let names: Vec<_> = (0..count).map(|number| format!("many-{number}")).collect();
    let limit = SOON + Duration::from_secs(5) * u32::try_from(count)?;
    for name in &names {
        services::create(&rig.client, &service(name, PORTS)).await?;
    }
    let took = all_have_addresses(rig, &names, Instant::now(), limit).await?;
    eprintln!("{count} Services of 3 ports have their addresses after {:.1} s", took.as_secs_f64());
    let mut balancers = Vec::new();
    for name in &names {
        provisioned(rig, name, limit).await?;
        balancers.push(id_of(rig, name).await?);
    }
    // Octavia 11 leaves the pools of a new load balancer PENDING_CREATE until each was changed
    // once, which costs one more request for each.
    let first = add_node(rig, 3).await?;
    have_member(rig, &balancers, &first, limit).await?;
    // Joining nodes are collected for this time.
    sleep(Duration::from_secs(11)).await;

    let (held, free) = (balancers[0].clone(), &balancers[1..]);
    rig.cloud.services.set_balancer_status(&held, "PENDING_UPDATE")?;
    let mark = rig.cloud.proxy.log().mark();
    let start = Instant::now();
    let joined = add_node(rig, 4).await?;
    have_member(rig, free, &joined, limit).await?;
    let took = start.elapsed();
    sleep(held_for.saturating_sub(took)).await;
    let calls = Calls::since(rig, mark);
    let puts = calls.of_pattern("load-balancer PUT /v2.0/lbaas/pools/{id}/members");
    let others = calls.calls - puts;
    eprintln!(
        "a node joins {} load balancers of 3 ports, and one that is held in PENDING_UPDATE: {:.1} s, {puts} PUTs (wanted: {}), {others} other calls (at most {}), {} polls: {:?}",
        free.len(),
        took.as_secs_f64(),
        3 * free.len(),
        count,
        calls.polls,
        calls.by_pattern
    );
    ensure!(puts == 3 * free.len() && others <= count, "{calls:?}");
    rig.cloud.services.set_balancer_status(&held, "ACTIVE")?;
    have_member(rig, &[held], &joined, 2 * SOON).await?;
    program.terminate().await?;
    let program = restarted(rig, &service_ccm(rig), count).await?;
    delete_all(rig, &names, limit).await?;
    program.terminate().await?;
    Ok(())
}

/// Starts a program that finds this number of load balancers as wanted. Fails unless it logs in, asks
/// for the version, looks up the networks and subnets that its settings name, lists the load balancers,
/// and does nothing else before its audit.
pub async fn restarted(rig: &Rig, launch: &Launch, count: usize) -> Result<Program> {
    let mark = rig.cloud.proxy.log().mark();
    let program = rig.start(launch).await?;
    sleep(Duration::from_secs(8)).await;
    let requests = rig.cloud.proxy.log().since(mark);
    let counts = tally(&requests);
    eprintln!("restart with {count} Services: {} calls (wanted: 5): {counts:?}", requests.len());
    let is_write = |one: &&Request| one.method != Method::GET && one.service != Service::Identity;
    let writes = requests.iter().filter(is_write).count();
    ensure!(requests.len() <= 5 && writes == 0, "{counts:?}");
    Ok(program)
}

/// How an answer to a creation is lost.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Loss {
    /// The answer is cut off.
    Answer,
    /// The leader is killed as well.
    Leader,
    /// The leader is killed, and the request arrives after the next leader has looked for it.
    Late,
}

/// Creates Services, and the proxy loses Octavia's answers to the creations of their load
/// balancers. `numbers`: how many Services lose the answer only, how many also have the leader
/// killed, and how many creations reach Octavia only after the next leader has looked for them.
/// Fails unless each Service has one load balancer in the end and has shown one address.
pub async fn lose_answers(rig: &Rig, numbers: [usize; 3]) -> Result<()> {
    rig.balance().await?;
    add_nodes(rig, 2).await?;
    let shown = Shown::watch(rig);
    let mut replicas = [rig.start(&quick(rig)).await?, rig.start_standby(&quick(rig)).await?];
    let mut names = Vec::new();
    for (loss, number) in [Loss::Answer, Loss::Leader, Loss::Late].into_iter().zip(numbers) {
        for at in 0..number {
            let name = format!("lost-{}-{at}", names.len());
            lose(rig, &mut replicas, &name, loss).await?;
            names.push(name);
        }
    }
    all_have_addresses(rig, &names, Instant::now(), 4 * SOON).await?;
    poll::until("one load balancer for each Service, and no other", 4 * SOON, || async {
        sleep(Duration::from_millis(500)).await;
        let all = rig.cloud.user.balancers().await?;
        ensure!(all.len() == names.len(), "{} of {} Services", all.len(), names.len());
        let tagged =
            |one: &serde_json::Value| tags(one).iter().any(|it| it.starts_with(SERVICE_TAG));
        ensure!(all.iter().all(tagged), "one has no owner");
        for name in &names {
            let own = of_service(rig, name).await?.len();
            ensure!(own == 1, "{name} has {own}");
        }
        Ok(Some(()))
    })
    .await?;
    shown.never_changed()?;
    let floating = rig.cloud.user.floating_ips().await?.len();
    let [cut, killed, late] = numbers;
    eprintln!(
        "{} creations whose answers were lost ({cut} cut off, {killed} with the leader killed, {late} late as well): {} load balancers, {floating} floating IPs, no address has changed",
        names.len(),
        names.len()
    );
    ensure!(floating == names.len(), "{floating} floating IPs of {} Services", names.len());
    delete_all(rig, &names, 4 * SOON).await
}

/// Creates the Service and loses the answer to the creation of its load balancer.
async fn lose(rig: &Rig, replicas: &mut [Program; 2], name: &str, loss: Loss) -> Result<()> {
    let faults = rig.cloud.proxy.faults();
    let effect = if loss == Loss::Late { Effect::Late } else { Effect::LoseAnswer };
    let fault = Fault::new(effect).on(Service::LoadBalancer).method(Method::POST);
    let fault = faults.add(fault.exactly(BALANCERS).times(1));
    services::create(&rig.client, &service(name, 1)).await?;
    poll::until("the creation to be lost", SOON, || async {
        Ok((faults.hits(fault) > 0).then_some(()))
    })
    .await?;
    if loss != Loss::Answer {
        let mark = rig.cloud.proxy.log().mark();
        let leader = usize::from(!replicas[0].leads().await?);
        replicas[leader].signal(Signal::KILL)?;
        replicas[leader].wait(SOON).await?;
        replicas[leader] = rig.start_standby(&quick(rig)).await?;
        if loss == Loss::Late {
            looked_up(rig, mark, name).await?;
        }
    }
    faults.remove(fault);
    Ok(())
}

/// Waits until a program has looked for the Service's load balancer.
async fn looked_up(rig: &Rig, mark: usize, name: &str) -> Result<()> {
    let uid = services::get(&rig.client, name).await?.metadata.uid.unwrap_or_default();
    poll::until("the next leader to look for the load balancer", 2 * SOON, || async {
        let all = rig.cloud.proxy.log().since(mark);
        let looks = all.iter().any(|one| one.path == BALANCERS && one.query.contains(&uid));
        Ok(looks.then_some(()))
    })
    .await
}
