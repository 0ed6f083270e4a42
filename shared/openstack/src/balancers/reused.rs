//! The addresses of an earlier load balancer, reused by its replacement. Pure.

use std::{fmt, net::IpAddr};

use ccm_cloud::{CloudError, ErrorKind};
use serde_json::Value;

use super::memory::Vip;

/// Addresses to ask for again. If the cloud refuses them, the load balancer is created without them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// The main virtual address.
    pub vip: Option<Vip>,
    /// The addresses of the other families, in their order.
    pub others: Vec<Option<IpAddr>>,
}

impl Kept {
    fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.vip.iter().map(|vip| vip.address).chain(self.others.iter().flatten().copied())
    }

    /// The creation with these addresses.
    pub fn added_to(&self, mut body: Value) -> Value {
        if let Some(Vip { address, subnet }) = &self.vip {
            body["vip_address"] = address.to_string().into();
            if let Some(subnet) = subnet {
                body["vip_subnet_id"] = subnet.clone().into();
            }
        }
        if let Some(more) = body.get_mut("additional_vips").and_then(Value::as_array_mut) {
            for (vip, address) in more.iter_mut().zip(&self.others) {
                if let Some(address) = address {
                    vip["ip_address"] = address.to_string().into();
                }
            }
        }
        body
    }

    /// Returns true if the cloud refuses the creation because of one of them.
    pub fn is_refused_by(&self, error: &CloudError) -> bool {
        let is_refusal = matches!(error.kind, ErrorKind::Conflict | ErrorKind::Invalid);
        let is_named = |address: IpAddr| error.message.contains(&address.to_string());
        is_refusal && !error.maybe_done && self.addresses().any(is_named)
    }
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self.addresses().map(|address| address.to_string()).collect();
        write!(f, "address {}", all.join(" and "))
    }
}
