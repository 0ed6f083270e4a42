//! The basis of the other scenarios: services, proxy, the tests' own calls.

use std::time::Duration;

use anyhow::{Result, ensure};
use http::Method;
use tokio::time::{Instant, timeout};

use crate::openstack::{
    Service,
    admin::{Account, Admin, NewServer},
    proxy::{Effect, Fault, tally},
    rig::Rig,
};

/// Returns how often the log of the proxy shows this pattern.
fn count(counts: &std::collections::BTreeMap<String, usize>, pattern: &str) -> usize {
    counts.get(pattern).copied().unwrap_or_default()
}

pub(super) async fn services_work_through_the_proxy(rig: &Rig) -> Result<()> {
    let proxy = &rig.cloud.proxy;
    let mark = proxy.log().mark();
    let user = Admin::login(&proxy.auth_url()?, &Account::of("k8s")).await?;
    for (url, service) in
        [(user.compute_url(), Service::Compute), (user.network_url(), Service::Network)]
    {
        ensure!(url.starts_with(&proxy.url(service)?), "{service} is not behind the proxy: {url}");
    }

    let new = NewServer::named("through-the-proxy").zone("zone-2");
    let server = user.new_server(&new).await?;
    ensure!(server.zone == "zone-2" && server.flavor == "m1.small", "{server:?}");
    ensure!(server.fixed.len() == 1 && server.floating.is_empty(), "{server:?}");
    let ports = user.ports(&server.id).await?;
    ensure!(ports.len() == 1, "a server has one port: {ports:?}");
    ensure!(ports.iter().all(|port| port["status"] == "ACTIVE"), "{ports:?}");
    ensure!(user.servers().await?.contains(&server), "the list shows it");
    user.delete_server(&server.id).await?;
    ensure!(user.server(&server.id).await?.is_none(), "it is gone");

    let counts = tally(&proxy.log().of_all_since(mark));
    for (pattern, wanted) in [
        ("identity POST /v3/auth/tokens", 1),
        ("compute POST /v2.1/servers", 1),
        ("compute GET /v2.1/servers/detail", 1),
        ("compute DELETE /v2.1/servers/{id}", 1),
        ("network GET /v2.0/ports", 1),
    ] {
        ensure!(count(&counts, pattern) == wanted, "{pattern}: {counts:?}");
    }
    ensure!(count(&counts, "compute GET /v2.1/servers/{id}") > 1, "the call waited: {counts:?}");
    ensure!(proxy.log().since(mark).is_empty(), "the tests' own calls are left out");
    Ok(())
}

pub(super) async fn a_held_service_answers_when_it_goes_on(rig: &Rig) -> Result<()> {
    let held = rig.cloud.services.freeze("nova-api")?;
    let mut asked = Box::pin(rig.cloud.user.servers());
    let answer = timeout(Duration::from_secs(2), &mut asked).await;
    ensure!(answer.is_err(), "it is held, and answers {answer:?}");
    drop(held);
    let servers = asked.await?;
    ensure!(servers.len() >= rig.cloud.fleet.len(), "{servers:?}");
    Ok(())
}

pub(super) async fn each_fault_is_answered_as_configured(rig: &Rig) -> Result<()> {
    let proxy = &rig.cloud.proxy;
    let user = Admin::login(&proxy.auth_url()?, &Account::of("k8s")).await?;
    let url = format!("{}/servers", user.compute_url());
    let get = || user.call(Method::GET, &url, None);
    let on_servers = |effect| Fault::new(effect).on(Service::Compute).path("/v2.1/servers");

    proxy.faults().add(on_servers(Effect::throttle(Some(Duration::from_secs(3)))).times(1));
    let answer = get().await?;
    ensure!(answer.status.as_u16() == 429, "{answer:?}");
    ensure!(answer.headers.get("retry-after").is_some_and(|wait| wait == "3"), "{answer:?}");
    ensure!(get().await?.status.is_success(), "once only");

    proxy.faults().add(on_servers(Effect::EmptyList));
    let answer = get().await?;
    ensure!(answer.status.is_success() && answer.json()?["servers"] == serde_json::json!([]));
    ensure!(user.ports("none").await?.is_empty(), "other services go on");
    proxy.faults().clear();

    for effect in [Effect::Truncated, Effect::Cut] {
        proxy.faults().add(on_servers(effect.clone()).times(1));
        ensure!(get().await.is_err(), "{effect:?} does not cut");
    }
    proxy.faults().add(on_servers(Effect::HalfJson).times(1));
    ensure!(get().await?.json().is_err(), "half a document is not valid");

    proxy.faults().add(on_servers(Effect::Slow(Duration::from_secs(1))).times(1));
    let start = Instant::now();
    ensure!(get().await?.status.is_success() && start.elapsed() >= Duration::from_secs(1));
    Ok(())
}

pub(super) async fn revoked_credentials_stop_working(rig: &Rig) -> Result<()> {
    let (operator, keystone) = (&rig.cloud.operator, rig.cloud.keystone());
    let user = rig.own_user("ended").await?;
    let through_proxy = Admin::login(&rig.cloud.proxy.auth_url()?, &user.account).await?;
    ensure!(through_proxy.servers().await.is_ok(), "it is a member of the project");
    operator.revoke_token(through_proxy.token()).await?;
    rig.past_token_caches().await;
    let refused = through_proxy.servers().await;
    ensure!(format!("{refused:?}").contains("401"), "a revoked token is refused: {refused:?}");

    let changed = operator.change_password(&user, "another").await?;
    ensure!(Admin::login(keystone, &user.account).await.is_err(), "the old password is refused");
    let own = Admin::login(keystone, &changed.account).await?;
    let credential = own.create_application_credential("one").await?;
    own.delete_application_credential(&credential.id).await?;
    operator.delete_user(&user.id).await
}
