//! Makes one change.

use ccm_cloud::{Call, CloudError, ErrorKind, Owner};
use ccm_openstack_client::{
    lbaas::{BalancerRow, Child},
    network::{FloatingIp, FloatingIps},
};

use super::{
    OctaviaBalancers,
    blame::{About, blamed, unattached, wished},
    floating,
    job::Job,
    steps::{Act, FloatingAct, Step},
};

impl OctaviaBalancers {
    /// Makes a change of an existing load balancer.
    pub async fn make(
        &self,
        row: &BalancerRow,
        job: &Job<'_>,
        step: Step,
        call: Call,
    ) -> Result<(), CloudError> {
        let octavia = &self.octavia;
        let about = match &step.act {
            Act::Floating(_) => About::FloatingIp,
            _ => About::LoadBalancer,
        };
        let is_floating = about == About::FloatingIp;
        if !is_floating {
            self.memory.forget_pools(&row.id);
        }
        if step.act.changes_configuration() && !matches!(step.act, Act::Balancer(_)) {
            self.memory.touch(&row.id);
        }
        let made = match step.act {
            Act::Create(child, mut body) => {
                if child == Child::Listener {
                    body["loadbalancer_id"] = row.id.clone().into();
                }
                let made = octavia.create_child(child, body, call).await;
                let may_be_there = made.as_ref().err().is_none_or(|error| error.maybe_done);
                if child == Child::Monitor && may_be_there {
                    self.memory.forget_tried(&row.id);
                    self.memory.forget_unmonitored(&row.id);
                }
                made.map(drop)
            }
            Act::Update(child, id, body) => octavia.update_child(child, &id, body, call).await,
            Act::Delete(child, id) => octavia.delete_child(child, &id, call).await.map(drop),
            Act::Members { pool, members } => octavia.set_members(&pool, members, call).await,
            Act::Balancer(body) | Act::TakeBack(body) => octavia.update(&row.id, body, call).await,
            Act::Floating(act) => {
                let owner = &job.wanted.front_end.owner;
                self.make_floating(act, owner, row.vip_port_id.as_deref(), call).await.map(drop)
            }
            Act::Later => {
                let what = format!("{}: an earlier change comes first", step.line);
                Err(CloudError::new(ErrorKind::Busy, what))
            }
        };
        made.map_err(|error| blamed(error, about, &job.settings))
    }

    /// Makes a change of a floating IP. Returns the one that stands for the virtual address now.
    pub async fn make_floating(
        &self,
        act: FloatingAct,
        owner: &Owner,
        port: Option<&str>,
        call: Call,
    ) -> Result<Option<FloatingIp>, CloudError> {
        let neutron = &self.neutron;
        match act {
            FloatingAct::Create(mut body) => {
                if let Some(port) = port {
                    body["port_id"] = port.into();
                }
                let address = body["floating_ip_address"].as_str().map(str::to_owned);
                let made = neutron.create_floating_ip(body, call).await;
                let made = made.map_err(|error| match &address {
                    Some(address) => wished(error, address),
                    None => error,
                })?;
                let tags = floating::tags(&made.tags, owner, address.is_some());
                neutron.tag_floating_ip(&made.id, &tags, call).await?;
                Ok(Some(made))
            }
            FloatingAct::Attach(ip) => self.attach(&ip, port, call).await.map(Some),
            FloatingAct::Wished { ip, instead_of } => {
                let made = self.exchange(&ip, instead_of.map(|ip| *ip), port, call).await;
                made.map(Some).map_err(|error| unattached(error, ip.address))
            }
            FloatingAct::Detach(ip) => {
                neutron.update_floating_ip(&ip, None, call).await?;
                Ok(None)
            }
            FloatingAct::Release(id) => match neutron.delete_floating_ip(&id, call).await {
                Err(error) if error.kind == ErrorKind::Conflict => {
                    // Port forwardings of a user, for instance.
                    tracing::warn!("floating IP {id} is kept: something else uses it: {error}");
                    Ok(None)
                }
                outcome => outcome.map(|_| None),
            },
            FloatingAct::Tag(id, tags) => {
                neutron.tag_floating_ip(&id, &tags, call).await?;
                Ok(None)
            }
        }
    }

    async fn attach(
        &self,
        ip: &FloatingIp,
        port: Option<&str>,
        call: Call,
    ) -> Result<FloatingIp, CloudError> {
        self.neutron.update_floating_ip(ip, port, call).await?.ok_or_else(|| {
            let what = format!("floating IP {} was deleted in the meantime", ip.address);
            CloudError::new(ErrorKind::Busy, what).about(format!("address {}", ip.address))
        })
    }

    /// Attaches a floating IP instead of another one, which comes back if that fails.
    async fn exchange(
        &self,
        ip: &FloatingIp,
        instead_of: Option<FloatingIp>,
        port: Option<&str>,
        call: Call,
    ) -> Result<FloatingIp, CloudError> {
        let before = match instead_of {
            Some(before) if !floating::is_free(&before) => {
                self.neutron.update_floating_ip(&before, None, call).await?
            }
            before => before,
        };
        let error = match self.attach(ip, port, call).await {
            Ok(attached) => return Ok(attached),
            Err(error) => error,
        };
        if error.maybe_done
            && let Some(port) = port
        {
            let port = [port.to_owned()];
            let there = self.neutron.floating_ips(FloatingIps::Ports(&port), call).await;
            let attached = there.ok().into_iter().flatten().find(|there| there.id == ip.id);
            if let Some(attached) = attached {
                return Ok(attached);
            }
        }
        if let Some(before) = before
            && let Err(again) = self.attach(&before, port, call).await
        {
            let message = format!(
                "{}; floating IP {} could not be attached again: {}",
                error.message, before.address, again.message
            );
            return Err(CloudError { message, ..error });
        }
        Err(error)
    }
}
