//! Routers with their extra routes, and the ports that are next hops.

use std::{collections::BTreeSet, net::IpAddr};

use ccm_cloud::{Call, CloudError, ErrorKind};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Neutron, readable};
use crate::{
    api::{Collection, Memory, Request, Service},
    text::query,
};

const ROUTER_FIELDS: &str = "fields=routes&fields=revision_number";
const HOP_FIELDS: &str = "fields=id&fields=network_id&fields=fixed_ips&fields=mac_address\
                          &fields=allowed_address_pairs&fields=port_security_enabled\
                          &fields=revision_number";
/// The name of each write to a router in metrics.
const ROUTER_UPDATE: &str = "router_update";

/// A router.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Router {
    /// Its extra routes, in no order.
    #[serde(default)]
    pub routes: Vec<ExtraRoute>,
    /// Changes with every write, if Neutron has the extension for it.
    pub revision_number: Option<u64>,
}

/// An extra route of a router, as Neutron spells it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[expect(missing_docs, reason = "fields are named as in the API of Neutron")]
pub struct ExtraRoute {
    pub destination: String,
    pub nexthop: String,
}

/// A port as the next hop of routes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[expect(missing_docs, reason = "fields are named as in the API of Neutron")]
pub struct Hop {
    #[serde(deserialize_with = "crate::text::id")]
    pub id: String,
    pub network_id: String,
    #[serde(default)]
    fixed_ips: Vec<super::port::FixedIp>,
    pub mac_address: Option<String>,
    /// The foreign addresses for which the port may send and receive, as Neutron spells them.
    #[serde(default)]
    pub allowed_address_pairs: Vec<Value>,
    /// Without the extension for this field, each port is protected.
    port_security_enabled: Option<bool>,
    pub revision_number: Option<u64>,
}

impl Hop {
    /// Returns its addresses.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.fixed_ips.iter().filter_map(|ip| ip.ip_address.parse().ok())
    }

    /// Returns true if it drops packets from and for addresses that are not allowed.
    pub fn is_protected(&self) -> bool {
        self.port_security_enabled != Some(false)
    }
}

impl Neutron {
    /// Returns the aliases of Neutron's extensions.
    pub async fn extensions(&self, call: Call) -> Result<BTreeSet<String>, CloudError> {
        #[derive(Deserialize)]
        struct Extension {
            alias: String,
        }
        let collection = Collection {
            service: Service::Network,
            operation: "network_extension_list",
            path: "/extensions?fields=alias",
            key: "extensions",
        };
        let mut aliases = BTreeSet::new();
        let take = |entry: &str| {
            aliases.extend(serde_json::from_str(entry).map(|Extension { alias }| alias));
        };
        collection.entries(&*self.api, &Memory::default(), call, take).await?;
        Ok(aliases)
    }

    /// Returns the router of this ID.
    pub async fn router(&self, id: &str, call: Call) -> Result<Router, CloudError> {
        let path = format!("/routers/{}?{ROUTER_FIELDS}", query(id));
        self.ask_router(id, Request::get(Service::Network, "router_get", &path), call).await
    }

    /// Adds routes to the router, or removes some; both are idempotent. Needs the extension
    /// `extraroute-atomic`.
    pub async fn change_routes(
        &self,
        id: &str,
        action: &str,
        routes: &[ExtraRoute],
        call: Call,
    ) -> Result<Router, CloudError> {
        let path = format!("/routers/{}/{action}_extraroutes", query(id));
        let body = json!({ "router": { "routes": routes } });
        self.ask_router(id, Request::put(Service::Network, ROUTER_UPDATE, &path, body), call).await
    }

    /// Replaces the routes of the router of this revision.
    pub async fn put_routes(
        &self,
        id: &str,
        routes: &[ExtraRoute],
        revision: Option<u64>,
        call: Call,
    ) -> Result<Router, CloudError> {
        let path = format!("/routers/{}", query(id));
        let body = json!({ "router": { "routes": routes } });
        let request = Request::put(Service::Network, ROUTER_UPDATE, &path, body);
        self.ask_router(id, request.at_revision(revision), call).await
    }

    /// Sends a request about a router, and reads the answer.
    async fn ask_router(
        &self,
        id: &str,
        request: Request<'_>,
        call: Call,
    ) -> Result<Router, CloudError> {
        let answer = self.api.send(request, call).await?;
        if answer.status == 404 {
            let what = format!("[Route] router-id: the project has no router {id:?}");
            return Err(answer.error(ErrorKind::NotFound, what).about(format!("router {id}")));
        }
        answer.object("router")
    }

    /// Returns the ports with these addresses in any network.
    pub async fn hops(
        &self,
        addresses: &BTreeSet<IpAddr>,
        call: Call,
    ) -> Result<Vec<Hop>, CloudError> {
        let values: Vec<_> = addresses.iter().map(|ip| format!("ip_address={ip}")).collect();
        let values = values.iter().map(String::as_str);
        let entries = self.entries("ports", HOP_FIELDS, "fixed_ips", values, call).await?;
        readable("port", &entries)
    }

    /// Returns the router's own ports.
    pub async fn router_ports(&self, id: &str, call: Call) -> Result<Vec<Hop>, CloudError> {
        let ids = std::iter::once(id);
        readable("port", &self.entries("ports", HOP_FIELDS, "device_id", ids, call).await?)
    }

    /// Returns the port with this ID; `None` if Neutron itself says that it does not exist.
    pub async fn hop(&self, id: &str, call: Call) -> Result<Option<Hop>, CloudError> {
        let path = format!("/ports/{}?{HOP_FIELDS}", query(id));
        let request = Request::get(Service::Network, "port_get", &path);
        self.api.send(request, call).await?.object_or_none("port")
    }

    /// Replaces the allowed address pairs of the port of this revision; `None` if Neutron itself
    /// says that there is no such port.
    pub async fn put_pairs(
        &self,
        port: &Hop,
        pairs: &[Value],
        call: Call,
    ) -> Result<Option<Hop>, CloudError> {
        let path = format!("/ports/{}", query(&port.id));
        let body = json!({ "port": { "allowed_address_pairs": pairs } });
        let request = Request::put(Service::Network, "port_update", &path, body);
        let request = request.at_revision(port.revision_number);
        self.api.send(request, call).await?.object_or_none("port")
    }
}
