//! Floating IPs: the public addresses of load balancers.

use std::net::IpAddr;

use ccm_cloud::{Call, CloudError};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Neutron, readable};
use crate::{
    api::{Deletion, Request, Service},
    text::{paths, query},
};

const FIELDS: &str = "fields=id&fields=floating_ip_address&fields=fixed_ip_address&fields=port_id\
                      &fields=floating_network_id&fields=description&fields=tags\
                      &fields=revision_number";

/// A floating IP.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[expect(missing_docs, reason = "fields are named as in the API of Neutron")]
pub struct FloatingIp {
    #[serde(deserialize_with = "crate::text::id")]
    pub id: String,
    #[serde(rename = "floating_ip_address")]
    pub address: IpAddr,
    /// The address of the port that it is attached to.
    #[serde(rename = "fixed_ip_address")]
    pub fixed_address: Option<IpAddr>,
    /// The port that it is attached to; `None` if it is free.
    #[serde(default, deserialize_with = "crate::text::id_or_none")]
    pub port_id: Option<String>,
    #[serde(deserialize_with = "crate::text::id")]
    pub floating_network_id: String,
    #[serde(default)]
    pub description: String,
    #[serde(default)]
    pub tags: Vec<String>,
    /// Changes with every write, if Neutron has the extension for it.
    #[serde(rename = "revision_number")]
    pub revision: Option<u64>,
}

/// The floating IPs to list.
#[derive(Clone, Copy, Debug)]
pub enum FloatingIps<'a> {
    /// Floating IPs of these ports, in any project: an administrator may have attached one of
    /// another project.
    Ports(&'a [String]),
    /// The project's floating IP with this address.
    Address(IpAddr),
    /// The project's floating IPs with all of these tags.
    Tags(&'a [&'a str]),
}

/// A quota and what is used of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Quota {
    /// The limit; negative if Neutron does not limit it.
    pub limit: i64,
    pub used: usize,
}

#[derive(Deserialize)]
struct Quotas {
    floatingip: Quota,
}

impl Neutron {
    /// Lists floating IPs. Fails if one cannot be parsed. All filters except `Ports` name the
    /// project: Neutron shows an administrator the floating IPs of all projects.
    pub async fn floating_ips(
        &self,
        which: FloatingIps<'_>,
        call: Call,
    ) -> Result<Vec<FloatingIp>, CloudError> {
        let mut base = format!("/floatingips?{FIELDS}");
        if !matches!(which, FloatingIps::Ports(_)) {
            let project = self.api.project_id(call).await?;
            base = format!("{base}&project_id={}", query(&project));
        }
        let parts = match which {
            FloatingIps::Ports(ids) => paths(&base, "port_id", ids.iter().map(String::as_str)),
            FloatingIps::Address(address) => {
                vec![format!("{base}&floating_ip_address={}", query(&address.to_string()))]
            }
            // Neutron takes all required tags in one value.
            FloatingIps::Tags(tags) => vec![format!("{base}&tags={}", query(&tags.join(",")))],
        };
        readable("floating IP", &self.entries_of("floatingips", parts, call).await?)
    }

    /// Returns how many floating IPs the project may have, and how many it has.
    pub async fn floating_quota(&self, call: Call) -> Result<Quota, CloudError> {
        let project = self.api.project_id(call).await?;
        let path = format!("/quotas/{}/details", query(&project));
        let request = Request::get(Service::Network, "quota_get", &path);
        let answer = self.api.send(request, call).await?.found()?;
        answer.object("quota").map(|quotas: Quotas| quotas.floatingip)
    }

    /// Makes a floating IP. After an error that may have taken effect, first look for what it
    /// may have made.
    pub async fn create_floating_ip(
        &self,
        body: Value,
        call: Call,
    ) -> Result<FloatingIp, CloudError> {
        let body = json!({ "floatingip": body });
        let request = Request::post(Service::Network, "floating_ip_create", "/floatingips", body);
        let answer = self.api.send(request, call).await?.found()?;
        // The floating IP exists, although the answer is wrong.
        answer.object("floatingip").map_err(CloudError::that_may_be_done)
    }

    /// Attaches a floating IP, with this revision if it has one, to this port, or detaches it;
    /// `None` if Neutron itself says that it does not exist.
    pub async fn update_floating_ip(
        &self,
        ip: &FloatingIp,
        port: Option<&str>,
        call: Call,
    ) -> Result<Option<FloatingIp>, CloudError> {
        let path = format!("/floatingips/{}", query(&ip.id));
        let body = json!({ "floatingip": { "port_id": port } });
        let request = Request::put(Service::Network, "floating_ip_update", &path, body);
        let answer = self.api.send(request.at_revision(ip.revision), call).await?;
        // The missing object may be the port.
        let answer = if answer.denies(&ip.id) { answer } else { answer.found()? };
        answer.object_or_none("floatingip")
    }

    /// Deletes a floating IP.
    pub async fn delete_floating_ip(&self, id: &str, call: Call) -> Result<Deletion, CloudError> {
        let path = format!("/floatingips/{}", query(id));
        let request = Request::delete(Service::Network, "floating_ip_delete", &path);
        Deletion::from_answer(&self.api.send(request, call).await?)
    }

    /// Replaces all tags of a floating IP.
    pub async fn tag_floating_ip(
        &self,
        id: &str,
        tags: &[String],
        call: Call,
    ) -> Result<(), CloudError> {
        let (path, body) = (format!("/floatingips/{}/tags", query(id)), json!({ "tags": tags }));
        let request = Request::put(Service::Network, "floating_ip_tags_update", &path, body);
        self.api.send(request, call).await?.found().map(drop)
    }
}
