//! The life of one load balancer.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use ccm_sim::poll;
use ccm_tests::{
    scenarios::{
        Env, SOON,
        observe::{nothing_written, observe},
    },
    services::{self, condition, is_protected, service},
};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::common::{
    ORPHAN, add_node, add_orphan, balancer, deletes_orphans, has_members, quick, service_ccm,
    service_writes,
};

pub(crate) async fn a_service_gets_its_address_and_loses_it(env: Env) -> Result<()> {
    add_node(&env, "node-0").await?;
    add_node(&env, "node-1").await?;
    let leader = env.start(&service_ccm(&env)).await?;
    services::create(&env.client, &service("web")).await?;
    let address = services::address(&env.client, "web", SOON).await?;
    let made = balancer(&env, "web")?;
    ensure!(made.addresses.iter().any(|own| own.to_string() == address), "{made:?}");
    ensure!(made.member_names().into_iter().eq(["node-0", "node-1"]), "{made:?}");
    let shown = services::get(&env.client, "web").await?;
    ensure!(is_protected(&shown), "{shown:?}");
    for (kind, expect) in [
        ("LoadBalancerProvisioning", ("False", "Provisioned")),
        ("LoadBalancerServing", ("True", "Serving")),
    ] {
        let found = condition(&shown, kind);
        let (status, reason) = expect;
        ensure!(found == Some((status.to_owned(), reason.to_owned())), "{kind}: {found:?}");
    }
    let writes = service_writes(&env).await?;
    ensure!(writes.len() == 2, "finalizer, then status: {writes:?}");

    services::delete(&env.client, "web").await?;
    services::gone(&env.client, "web", SOON).await?;
    ensure!(env.cloud().balancers().all().is_empty(), "it is deleted in the cloud");
    let writes = service_writes(&env).await?;
    ensure!(writes.len() == 3, "one write to remove the finalizer: {writes:?}");
    let reasons = services::events(&env.client, "web").await?;
    for reason in [
        "EnsuringLoadBalancer",
        "EnsuredLoadBalancer",
        "DeletingLoadBalancer",
        "DeletedLoadBalancer",
    ] {
        let found = poll::until(reason, SOON, || async {
            let events = services::events(&env.client, "web").await?;
            Ok(events.iter().any(|(one, _)| one == reason).then_some(()))
        });
        found.await.map_err(|error| error.context(format!("{reasons:?}")))?;
    }
    ensure!(leader.terminate().await?.success(), "it ends in order");
    Ok(())
}

pub(crate) async fn a_service_that_changes_its_type_is_left_clean(env: Env) -> Result<()> {
    add_node(&env, "node-0").await?;
    let _leader = env.start(&service_ccm(&env)).await?;
    services::create(&env.client, &service("web")).await?;
    services::address(&env.client, "web", SOON).await?;
    services::patch(&env.client, "web", json!({"spec": {"type": "ClusterIP"}})).await?;
    let clean =
        services::wait_for(&env.client, "web", "clean", SOON, |service| !is_protected(service))
            .await?;
    ensure!(env.cloud().balancers().all().is_empty(), "it is deleted in the cloud");
    let annotations = clean.metadata.annotations.clone().unwrap_or_default();
    ensure!(annotations.is_empty(), "{annotations:?}");
    let conditions = clean.status.as_ref().and_then(|status| status.conditions.clone());
    ensure!(conditions.is_none_or(|conditions| conditions.is_empty()), "{clean:?}");
    ensure!(services::addresses(&clean).is_empty(), "{clean:?}");

    services::patch(&env.client, "web", json!({"spec": {"type": "LoadBalancer"}})).await?;
    services::address(&env.client, "web", SOON).await?;
    Ok(())
}

/// Waits until both conditions are final, so that nothing is left to be written. Returns the status.
async fn wait_until_serving(env: &Env, name: &str) -> Result<String> {
    let shown = services::wait_for(&env.client, name, "serving", 3 * SOON, |service| {
        let shows = |kind, reason| condition(service, kind).is_some_and(|(_, is)| is == reason);
        shows("LoadBalancerProvisioning", "Provisioned")
            && shows("LoadBalancerServing", "Serving")
            && !services::addresses(service).is_empty()
    })
    .await?;
    Ok(format!("{:?}", shown.status))
}

pub(crate) async fn a_restart_writes_nothing(mut env: Env) -> Result<()> {
    add_node(&env, "node-0").await?;
    let leader = env.start(&service_ccm(&env)).await?;
    for number in 0..20 {
        services::create(&env.client, &service(&format!("web-{number}"))).await?;
    }
    let names: Vec<String> = (0..20).map(|number| format!("web-{number}")).collect();
    let mut before = Vec::new();
    for name in &names {
        before.push(wait_until_serving(&env, name).await?);
    }
    ensure!(leader.terminate().await?.success(), "it ends in order");
    env.forget_requests().await?;
    env.cloud().balancers().reset_writes();
    env.cloud().reset_calls();
    let again = env.start(&service_ccm(&env)).await?;
    poll::until("the load balancers to be compared", SOON, || async {
        let page = again.get("/readyz?verbose").await?.1;
        Ok(page.contains("20 load balancers listed").then_some(()))
    })
    .await?;
    sleep(Duration::from_secs(2)).await;
    let (writes, calls) = (service_writes(&env).await?, env.cloud().calls().load_balancers);
    if let Some(write) = writes.first() {
        let after = services::get(&env.client, &write.name).await?.status;
        let old = names.iter().position(|name| *name == write.name).map(|at| &before[at]);
        bail!("{writes:?}\nbefore: {old:?}\nafter: {after:?}");
    }
    ensure!(env.cloud().balancers().writes().is_empty(), "the cloud was written to");
    ensure!(calls.total() == 1 && calls.list == 1, "{calls:?}");
    services::create(&env.client, &service("new")).await?;
    services::address(&env.client, "new", SOON).await?;
    // The members are not known after a restart, so they are read before they change.
    add_node(&env, "node-1").await?;
    has_members(&env, "web-7", &["node-0", "node-1"], SOON).await?;
    has_members(&env, "new", &["node-0", "node-1"], SOON).await?;
    Ok(())
}

pub(crate) async fn a_class_that_is_not_served_is_left_alone(env: Env) -> Result<()> {
    let mut other = service("other");
    other["spec"]["loadBalancerClass"] = json!("example.com/other");
    other["metadata"]["finalizers"] = json!([services::FINALIZER]);
    let mut ours = service("ours");
    ours["spec"]["loadBalancerClass"] = json!("example.com/ours");
    add_node(&env, "node-0").await?;
    let _leader = env.start(&quick(&env).arg("--load-balancer-classes=example.com/ours")).await?;
    services::create(&env.client, &other).await?;
    services::create(&env.client, &ours).await?;
    services::address(&env.client, "ours", SOON).await?;
    services::delete(&env.client, "other").await?;
    sleep(Duration::from_secs(3)).await;
    let kept = services::get(&env.client, "other").await?;
    ensure!(is_protected(&kept), "another controller's finalizer: {kept:?}");
    ensure!(env.cloud().balancers().all().len() == 1, "one load balancer");
    Ok(())
}

pub(crate) async fn a_wrong_service_is_reported_and_its_members_follow(env: Env) -> Result<()> {
    add_node(&env, "node-0").await?;
    let _leader = env.start(&quick(&env)).await?;
    services::create(&env.client, &service("web")).await?;
    services::address(&env.client, "web", SOON).await?;
    let wrong = json!({"metadata": {"annotations": {
        "service.beta.kubernetes.io/load-balancer-source-ranges": "10.0.0.1"}}});
    services::patch(&env.client, "web", wrong).await?;
    // Conditions are rewritten at most once in 30 s.
    services::wait_for(&env.client, "web", "reported", 3 * SOON, |service| {
        condition(service, "LoadBalancerProvisioning")
            .is_some_and(|(status, reason)| status == "True" && reason == "InvalidConfiguration")
    })
    .await?;
    add_node(&env, "node-1").await?;
    has_members(&env, "web", &["node-0", "node-1"], SOON).await?;
    let right = json!({"metadata": {"annotations": {
        "service.beta.kubernetes.io/load-balancer-source-ranges": "10.0.0.0/8"}}});
    services::patch(&env.client, "web", right).await?;
    services::wait_for(&env.client, "web", "right again", 3 * SOON, |service| {
        condition(service, "LoadBalancerProvisioning").is_some_and(|(status, _)| status == "False")
    })
    .await?;
    ensure!(balancer(&env, "web")?.configuration.source_ranges.len() == 1, "it is configured");
    Ok(())
}

pub(crate) async fn what_is_deleted_in_the_cloud_is_created_again(env: Env) -> Result<()> {
    add_node(&env, "node-0").await?;
    let leader = env.start(&quick(&env)).await?;
    services::create(&env.client, &service("web")).await?;
    services::address(&env.client, "web", SOON).await?;
    let lost = balancer(&env, "web")?;
    env.cloud().balancers().remove(&lost.id);
    poll::until("another load balancer", 2 * SOON, || async {
        Ok(balancer(&env, "web").ok().filter(|made| made.id != lost.id))
    })
    .await?;
    services::wait_for(&env.client, "web", "at its new address", SOON, |service| {
        let made = balancer(&env, "web").map(|made| made.addresses).unwrap_or_default();
        let shown = services::addresses(service);
        made.iter().any(|address| shown.contains(&address.to_string()))
    })
    .await?;
    // A Service that was deleted without its finalizer leaves an orphan, which is reported and
    // kept. A leader would restore the finalizer.
    drop(leader);
    let none = json!({"metadata": {"finalizers": null}});
    services::patch(&env.client, "web", none).await?;
    services::delete(&env.client, "web").await?;
    let leader = env.start(&quick(&env)).await?;
    poll::until("the orphan to be counted", 2 * SOON, || async {
        Ok((leader.metric("ccm_service_orphans").await? > 0.0).then_some(()))
    })
    .await?;
    ensure!(env.cloud().balancers().all().len() == 1, "an orphan is not deleted");
    Ok(())
}

/// A mistake in a Service must not cost the address that its annotation keeps.
pub(crate) async fn a_wrong_service_is_deleted_by_its_annotations(env: Env) -> Result<()> {
    add_node(&env, "node-0").await?;
    let _leader = env.start(&quick(&env)).await?;
    let mut kept = service("web");
    kept["metadata"]["annotations"] = json!({"sim/floating": "true", "sim/keep-address": "true"});
    services::create(&env.client, &kept).await?;
    services::address(&env.client, "web", SOON).await?;
    ensure!(env.cloud().balancers().floating().len() == 1, "a floating address");
    let wrong = json!({"metadata": {"annotations": {
        "service.beta.kubernetes.io/load-balancer-source-ranges": "10.0.0.1"}}});
    services::patch(&env.client, "web", wrong).await?;
    services::delete(&env.client, "web").await?;
    services::gone(&env.client, "web", SOON).await?;
    let addresses = env.cloud().balancers().floating();
    ensure!(addresses.len() == 1, "the address is kept: {addresses:?}");
    Ok(())
}

pub(crate) async fn an_observer_shows_what_the_cloud_would_change(env: Env) -> Result<()> {
    add_node(&env, "node-0").await?;
    let mut service = service("web");
    service["metadata"]["finalizers"] = json!(["service.kubernetes.io/load-balancer-cleanup"]);
    services::create(&env.client, &service).await?;
    let observer = env.start_standby(&service_ccm(&env).arg("--mode=observe")).await?;
    poll::until("the cloud's changes on /plan", SOON, || async {
        let page = observer.get("/plan").await?.1;
        Ok(page.contains("with 1 listeners and 1 members").then_some(()))
    })
    .await?;
    sleep(Duration::from_secs(2)).await;
    let calls = env.cloud().calls().load_balancers;
    ensure!((calls.preview, calls.ensure) == (1, 0), "{calls:?}");
    Ok(())
}

pub(crate) async fn a_leader_deletes_an_orphan_and_an_observer_does_not(env: Env) -> Result<()> {
    // Without any Service the view of the API server would not be believed.
    services::create(&env.client, &service("web")).await?;
    add_orphan(&env).await?;
    let observer = observe(&env, deletes_orphans(quick(&env))).await?;
    poll::until("the deletion on /plan", 4 * SOON, || async {
        let page: Value = serde_json::from_str(&observer.get("/plan?format=json").await?.1)?;
        Ok((page["due"]["delete-orphan"] == json!(1)).then_some(()))
    })
    .await
    .with_context(|| observer.log())?;
    sleep(Duration::from_secs(2)).await;
    nothing_written(&env, &[&observer]).await?;
    ensure!(env.cloud().balancers().get(ORPHAN).is_some(), "an observer deletes nothing");
    let leader = env.start(&deletes_orphans(quick(&env))).await?;
    poll::until("the orphan to be deleted", 4 * SOON, || async {
        Ok(env.cloud().balancers().get(ORPHAN).is_none().then_some(()))
    })
    .await
    .with_context(|| leader.log())?;
    nothing_written(&env, &[&observer]).await
}
