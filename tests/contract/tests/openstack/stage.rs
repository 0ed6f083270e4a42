//! OpenStack's services in memory, and processes of its provider.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use ccm_cloud::{Call, Cloud, CloudError, Instances, LoadBalancers, Routes};
use ccm_contract::{BalancerSide, MachineSide, Need, Rig, RouterSide, Stage};
use ccm_openstack::scripted::Capabilities;
use ccm_openstack_client::scripted::{Scripted, port, subnet, uuid};
use serde_json::{Value, json};

/// The subnet of the virtual addresses, and the external network.
pub const SUBNET: usize = 1;
pub const EXTERNAL: usize = 50;
/// The region of the machines.
pub const REGION: &str = "bench";

/// The OpenStack provider.
pub struct OpenStack;

#[async_trait]
impl Stage for OpenStack {
    fn name(&self) -> &'static str {
        "openstack"
    }

    fn lacks(&self, need: Need) -> Option<&'static str> {
        match need {
            Need::Steps | Need::Twins | Need::HidesEmptyPools | Need::TableVersions => None,
            Need::WholeCloud => Some("the services in memory are below its client"),
            Need::Fences => Some("Octavia and Neutron do not know terms of leadership"),
            Need::OtherControllers => {
                Some("annotations do not make another controller responsible")
            }
            Need::Rebuilt => Some("by its tags it belongs to the previous cluster"),
            Need::FailsForGood => {
                Some("a load balancer that Octavia has put into ERROR can be replaced")
            }
            Need::SeveralTargets => Some("a destination with another next hop is left alone"),
            Need::RouteOwners => Some("Neutron does not record the owner of a route"),
        }
    }

    async fn rig(&self, needs: &[Need]) -> Box<dyn Rig> {
        let services = Scripted::default();
        {
            let mut world = services.world.lock();
            world.subnets.push(subnet(SUBNET, "10.8.0.0/24"));
            let mut outer = subnet(3, "172.24.0.0/16");
            outer["network_id"] = json!(uuid(EXTERNAL));
            world.subnets.push(outer);
            world.networks.push(json!({
                "id": uuid(EXTERNAL), "name": "public", "router:external": true,
                "subnets": [uuid(3)],
            }));
            world.floating.may_choose = true;
            world.router.extensions = match needs.contains(&Need::TableVersions) {
                true => vec!["extraroute", "allowed-address-pairs"],
                false => vec!["extraroute", "extraroute-atomic", "allowed-address-pairs"],
            };
            // These are the next hops of routes, and the router's own port.
            let mut ports: Vec<Value> = (0..9).map(port).collect();
            for port in &mut ports {
                port["revision_number"] = json!(1);
                port["port_security_enabled"] = json!(true);
                port["allowed_address_pairs"] = json!([]);
            }
            let mut own = port(8_000_000);
            own["device_id"] = json!(world.router.id);
            own["fixed_ips"] = json!([{ "ip_address": "10.0.255.254" }]);
            ports.push(own);
            world.ports = ports;
        }
        Box::new(Side(Arc::new(services)))
    }

    fn is_paused(&self) -> bool {
        true
    }
}

/// The services.
pub struct Side(pub Arc<Scripted>);

impl Rig for Side {
    fn process(&self) -> Arc<dyn Cloud> {
        let router = self.0.world.lock().router.id.clone();
        let (subnet, external) = (uuid(SUBNET), uuid(EXTERNAL));
        let conf = format!(
            "region={REGION}\n\
             [LoadBalancer]\nsubnet-id={subnet}\nfloating-network-id={external}\n\
             [Route]\nrouter-id={router}\n"
        );
        Arc::new(Process(Capabilities::new(&self.0, &conf)))
    }

    fn lose_answers(&self, lost: bool) {
        self.0.lose_answers(move |request| lost && request.method.as_str() != "GET");
    }

    fn refuse(&self, error: Option<CloudError>) {
        self.0.refuse(move |_| error.clone());
    }

    fn slow(&self, time: Duration) {
        self.0.world.lock().delay = time;
    }

    fn machines(&self) -> &dyn MachineSide {
        self
    }

    fn balancers(&self) -> &dyn BalancerSide {
        self
    }

    fn router(&self) -> &dyn RouterSide {
        self
    }
}

/// The capabilities of one process.
struct Process(Capabilities);

#[async_trait]
impl Cloud for Process {
    fn name(&self) -> &str {
        ccm_openstack::NAME
    }

    fn schemes(&self) -> Vec<String> {
        vec![ccm_openstack::NAME.to_owned()]
    }

    fn instances(&self) -> Result<Option<Arc<dyn Instances>>, CloudError> {
        Ok(Some(Arc::clone(&self.0.instances)))
    }

    fn load_balancers(&self) -> Result<Option<Arc<dyn LoadBalancers>>, CloudError> {
        Ok(Some(Arc::clone(&self.0.load_balancers)))
    }

    fn routes(&self) -> Result<Option<Arc<dyn Routes>>, CloudError> {
        Ok(Some(Arc::clone(&self.0.routes)))
    }

    async fn health(&self, _: Call) -> Result<(), CloudError> {
        Ok(())
    }
}
