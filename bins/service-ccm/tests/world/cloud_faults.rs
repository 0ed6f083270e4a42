//! A cloud that is slow, fails or hangs.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ccm_cloud::{CloudError, ErrorKind};
use ccm_sim::{
    cloud::balancers::Times,
    faults::{Fault, FaultEffect, Operation, Trouble},
    poll,
};
use ccm_tests::{
    scenarios::{Env, SOON},
    services::{self, condition, is_protected, service},
};
use tokio::time::{Instant, sleep};

use crate::common::{add_node, balancer, quick, service_writes};

fn trouble(name: &str, trouble: Trouble) -> Fault {
    Fault::new(FaultEffect::LoadBalancers(vec![format!("default/{name}")], trouble))
        .on(Operation::EnsureLoadBalancers)
}

pub(crate) async fn one_that_hangs_and_one_that_fails_delay_no_other(env: Env) -> Result<()> {
    add_node(&env, "node-0").await?;
    let faults = env.cloud().faults();
    faults.add(trouble("hangs", Trouble::Hang));
    let quota =
        CloudError::new(ErrorKind::QuotaExceeded, "no more load balancers").about("loadbalancer");
    faults.add(trouble("fails", Trouble::Fail(quota)));
    let _leader = env.start(&quick(&env)).await?;
    for name in ["hangs", "fails"] {
        services::create(&env.client, &service(name)).await?;
    }
    sleep(Duration::from_secs(1)).await;
    let started = Instant::now();
    for number in 0..10 {
        services::create(&env.client, &service(&format!("web-{number}"))).await?;
    }
    for number in 0..10 {
        services::address(&env.client, &format!("web-{number}"), SOON).await?;
    }
    ensure!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    let shows = |name: &'static str, expect: &'static str| {
        let client = env.client.clone();
        async move {
            services::wait_for(&client, name, expect, SOON, |service| {
                condition(service, "LoadBalancerProvisioning")
                    .is_some_and(|(_, reason)| reason == expect)
            })
            .await
        }
    };
    shows("fails", "QuotaExceeded").await?;
    shows("hangs", "CloudUnavailable").await?;
    faults.clear();
    services::address(&env.client, "hangs", 2 * SOON).await?;
    Ok(())
}

pub(crate) async fn a_cloud_that_takes_its_time_is_polled_by_one_list(env: Env) -> Result<()> {
    add_node(&env, "node-0").await?;
    let time = Duration::from_secs(4);
    env.cloud().balancers().configure(|settings| {
        settings.times = Times { create: time, delete: time, ..Times::default() }
    });
    let _leader = env.start(&quick(&env)).await?;
    env.cloud().reset_calls();
    for number in 0..50 {
        services::create(&env.client, &service(&format!("web-{number}"))).await?;
    }
    for number in 0..50 {
        services::address(&env.client, &format!("web-{number}"), 2 * SOON).await?;
    }
    let calls = env.cloud().calls().load_balancers;
    ensure!(calls.total() <= 25, "{calls:?}");
    let writes = service_writes(&env).await?;
    ensure!(writes.len() == 100, "two writes per Service, not {}", writes.len());
    services::delete(&env.client, "web-7").await?;
    sleep(Duration::from_secs(2)).await;
    ensure!(
        is_protected(&services::get(&env.client, "web-7").await?),
        "the cloud is still deleting"
    );
    services::gone(&env.client, "web-7", SOON).await
}

pub(crate) async fn a_deletion_needs_proof(env: Env) -> Result<()> {
    add_node(&env, "node-0").await?;
    let leader = env.start(&quick(&env)).await?;
    services::create(&env.client, &service("web")).await?;
    services::address(&env.client, "web", SOON).await?;
    let broken = FaultEffect::Error(CloudError::new(ErrorKind::NotFound, "a gateway's 404"));
    env.cloud().faults().add(Fault::new(broken).on(Operation::DeleteLoadBalancers));
    services::delete(&env.client, "web").await?;
    services::wait_for(&env.client, "web", "reported", 3 * SOON, |service| {
        condition(service, "LoadBalancerProvisioning")
            .is_some_and(|(_, reason)| reason == "DeletionFailed")
    })
    .await?;
    ensure!(balancer(&env, "web").is_ok(), "it exists");
    env.cloud().faults().clear();
    // The pause before the next attempt has grown with the failed attempts.
    services::gone(&env.client, "web", 8 * SOON).await?;
    poll::until("all to be counted as gone", SOON, || async {
        let page = leader.metric("ccm_service_load_balancers{state=\"failing\"}").await?;
        Ok((page == 0.0).then_some(()))
    })
    .await
}

/// The calls succeed, but each load balancer in them is refused: the page and the metrics show
/// that, also after another call has succeeded.
pub(crate) async fn refused_load_balancers_turn_the_line_of_the_cloud(env: Env) -> Result<()> {
    add_node(&env, "node-0").await?;
    let refusal = CloudError::new(ErrorKind::Unauthorized, "the key is not known");
    for name in ["first", "second"] {
        env.cloud().faults().add(trouble(name, Trouble::Fail(refusal.clone())));
    }
    let leader = env.start(&quick(&env)).await?;
    for name in ["first", "second"] {
        services::create(&env.client, &service(name)).await?;
    }
    let line = || async {
        let (_, page) = leader.get("/readyz?verbose").await?;
        let line = page.lines().find(|line| line.contains("]cloud ") || line.contains("]cloud:"));
        Ok::<_, anyhow::Error>(line.context("the page has a line of the cloud")?.to_owned())
    };
    poll::until("the cloud's line to say so", SOON, || async {
        let text = line().await?;
        Ok((text.starts_with("[!]") && text.contains("ensure_load_balancers refused"))
            .then_some(()))
    })
    .await?;
    let lists = || async { leader.metric("ccm_service_audits_total{result=\"ok\"}").await };
    let before = lists().await?;
    poll::until("another list to succeed", SOON, || async {
        Ok((lists().await? > before).then_some(()))
    })
    .await?;
    let text = line().await?;
    ensure!(text.starts_with("[!]"), "{text}");
    let refused = "operation=\"ensure_load_balancers\",result=\"unauthorized\"}";
    for metric in ["ccm_cloud_requests_total", "ccm_cloud_items_total"] {
        let seen = leader.metric(&format!("{metric}{{api=\"external\",{refused}")).await?;
        ensure!(seen >= 1.0, "{metric}: {seen}");
    }
    env.cloud().faults().clear();
    services::address(&env.client, "first", 4 * SOON).await?;
    services::address(&env.client, "second", 4 * SOON).await?;
    let text = line().await?;
    ensure!(text.starts_with("[+]"), "{text}");
    Ok(())
}
