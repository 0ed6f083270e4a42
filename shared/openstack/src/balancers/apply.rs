//! Makes one change.

use ccm_cloud::{CloudError, ErrorKind, Owner};
use ccm_openstack_client::{
    lbaas::{BalancerRow, Child},
    network::{FloatingIp, FloatingIps},
};

use super::{
    Context,
    error_source::{About, add_source, not_attached, not_available},
    floating,
    job::Job,
    steps::{Act, FloatingAct, Step},
};

/// Makes a change of an existing load balancer.
pub async fn make(job: &Job<'_>, row: &BalancerRow, step: Step) -> Result<(), CloudError> {
    let cx = job.cx;
    let octavia = &cx.octavia;
    let is_floating = matches!(step.act, Act::Floating(_));
    let about = if is_floating { About::FloatingIp } else { About::LoadBalancer };
    if !is_floating {
        cx.memory.forget_pools(&row.id);
    }
    if step.act.changes_configuration() && !matches!(step.act, Act::Balancer(_)) {
        cx.memory.touch(&row.id);
    }
    let made = match step.act {
        Act::Create(child, mut body) => {
            if child == Child::Listener {
                body["loadbalancer_id"] = row.id.clone().into();
            }
            let made = octavia.create_child(child, body, cx.call).await;
            let may_be_there = made.as_ref().err().is_none_or(|error| error.maybe_done);
            if child == Child::Monitor && may_be_there {
                cx.memory.change(&row.id, |known| (known.tried, known.unmonitored) = (None, None));
            }
            made.map(drop)
        }
        Act::Update(child, id, body) => octavia.update_child(child, &id, body, cx.call).await,
        Act::Delete(child, id) => octavia.delete_child(child, &id, cx.call).await.map(drop),
        Act::Members { pool, members } => octavia.set_members(&pool, members, cx.call).await,
        Act::Balancer(body) | Act::TakeBack(body) => octavia.update(&row.id, body, cx.call).await,
        Act::Floating(act) => {
            let owner = &job.wanted.front_end.owner;
            make_floating(cx, act, owner, row.vip_port_id.as_deref()).await.map(drop)
        }
        Act::Later => {
            let what = format!("{}: an earlier change comes first", step.line);
            Err(CloudError::new(ErrorKind::Busy, what))
        }
    };
    made.map_err(|error| add_source(error, about, &job.settings))
}

/// Makes a change of a floating IP. Returns the one that is attached to the virtual address now.
pub async fn make_floating(
    cx: Context<'_>,
    act: FloatingAct,
    owner: &Owner,
    port: Option<&str>,
) -> Result<Option<FloatingIp>, CloudError> {
    let neutron = &cx.neutron;
    match act {
        FloatingAct::Create(mut body) => {
            if let Some(port) = port {
                body["port_id"] = port.into();
            }
            let address = body["floating_ip_address"].as_str().map(str::to_owned);
            let made = neutron.create_floating_ip(body, cx.call).await;
            let made = made.map_err(|error| match &address {
                Some(address) => not_available(error, address),
                None => error,
            })?;
            let tags = floating::tags(&made.tags, owner, address.is_some());
            neutron.tag_floating_ip(&made.id, &tags, cx.call).await?;
            Ok(Some(made))
        }
        FloatingAct::Attach(ip) => attach(cx, &ip, port).await.map(Some),
        FloatingAct::Wished { ip, instead_of } => {
            let made = exchange(cx, &ip, instead_of.map(|ip| *ip), port).await;
            made.map(Some).map_err(|error| not_attached(error, ip.address))
        }
        FloatingAct::Detach(ip) => {
            neutron.update_floating_ip(&ip, None, cx.call).await.map(|_| None)
        }
        FloatingAct::Release(id) => release(cx, &id).await.map(|_| None),
        FloatingAct::Tag(id, tags) => {
            neutron.tag_floating_ip(&id, &tags, cx.call).await.map(|()| None)
        }
    }
}

/// Deletes a floating IP. Returns false if it stays because something else uses it: port forwardings
/// of a user, for instance.
pub async fn release(cx: Context<'_>, id: &str) -> Result<bool, CloudError> {
    match cx.neutron.delete_floating_ip(id, cx.call).await {
        Err(error) if error.kind == ErrorKind::Conflict => {
            tracing::warn!("floating IP {id} is kept: something else uses it: {error}");
            Ok(false)
        }
        outcome => outcome.map(|_| true),
    }
}

async fn attach(
    cx: Context<'_>,
    ip: &FloatingIp,
    port: Option<&str>,
) -> Result<FloatingIp, CloudError> {
    cx.neutron.update_floating_ip(ip, port, cx.call).await?.ok_or_else(|| {
        let what = format!("floating IP {} was deleted in the meantime", ip.address);
        CloudError::new(ErrorKind::Busy, what).about(format!("address {}", ip.address))
    })
}

/// Attaches a floating IP instead of another one, which comes back if that fails.
async fn exchange(
    cx: Context<'_>,
    ip: &FloatingIp,
    instead_of: Option<FloatingIp>,
    port: Option<&str>,
) -> Result<FloatingIp, CloudError> {
    let before = match instead_of {
        Some(before) if !floating::is_free(&before) => {
            cx.neutron.update_floating_ip(&before, None, cx.call).await?
        }
        before => before,
    };
    let error = match attach(cx, ip, port).await {
        Ok(attached) => return Ok(attached),
        Err(error) => error,
    };
    if error.maybe_done
        && let Some(port) = port
    {
        let port = [port.to_owned()];
        let there = cx.neutron.floating_ips(FloatingIps::Ports(&port), cx.call).await;
        let attached = there.ok().into_iter().flatten().find(|there| there.id == ip.id);
        if let Some(attached) = attached {
            return Ok(attached);
        }
    }
    if let Some(before) = before
        && let Err(again) = attach(cx, &before, port).await
    {
        let message = format!(
            "{}; floating IP {} could not be attached again: {}",
            error.message, before.address, again.message
        );
        return Err(CloudError { message, ..error });
    }
    Err(error)
}
