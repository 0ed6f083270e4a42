//! Where clients reach a load balancer, and what is shown of it. Pure.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use ccm_cloud::{Cure, Ingress, IngressAddress, IpMode, Phase, Title, Waiting};
use ccm_openstack_client::lbaas::{BalancerRow, Provisioning};
use jiff::Timestamp;

use super::{
    annotations::{ADDRESS, ID, Settings},
    seen::since,
};
use crate::config::LoadBalancer as Options;

/// When it is worth to look again at what Octavia works on.
pub const CHECK_AFTER: Duration = Duration::from_secs(1);
/// The cloud's work that takes longer than this needs a person.
const LONG: Duration = Duration::from_mins(10);

/// The entries of the status for these addresses.
pub fn ingress(addresses: &[IpAddr], settings: &Settings, options: &Options) -> Vec<Ingress> {
    let entry = |address, ip_mode| Ingress { address, ip_mode, failed_ports: Vec::new() };
    if let Some(name) = &settings.hostname {
        return vec![entry(IngressAddress::Hostname(name.clone()), IpMode::Vip)];
    }
    let of = |ip: &IpAddr| match settings.proxy {
        Some(_) if options.enable_ingress_hostname => {
            let suffix = &options.ingress_hostname_suffix;
            entry(IngressAddress::Hostname(format!("{ip}.{suffix}")), IpMode::Vip)
        }
        Some(_) => entry(IngressAddress::Ip(*ip), IpMode::Proxy),
        None => entry(IngressAddress::Ip(*ip), IpMode::Vip),
    };
    addresses.iter().map(of).collect()
}

/// The annotations by which openstack-cloud-controller-manager finds the load balancer.
pub fn annotations(id: &str, address: Option<IpAddr>) -> BTreeMap<String, Option<String>> {
    let address = address.map(|address| address.to_string());
    [(ID.to_owned(), Some(id.to_owned())), (ADDRESS.to_owned(), address)].into()
}

/// What Octavia is doing, and since when.
pub fn waiting(row: &BalancerRow, more: Option<&str>, now: Timestamp) -> Waiting {
    let status = &row.provisioning_status;
    let begun = row.updated_at.as_deref().or(row.created_at.as_deref());
    let takes = since(begun, now).filter(|takes| *takes >= LONG);
    let what = match (takes, more) {
        (Some(takes), _) => format!(
            "{status} for {} min; only the operator of the cloud can end this: no one else can \
             change or delete load balancer {} meanwhile",
            takes.as_secs() / 60,
            row.id
        ),
        (None, Some(more)) => format!("{status}: {more}"),
        (None, None) => status.to_string(),
    };
    let id = Some(row.id.clone());
    Waiting { what, check_after: CHECK_AFTER, id, request_id: None, changed: false }
}

/// The state of a load balancer. `others` is what others have on it.
pub fn phase(row: &BalancerRow, title: &Title, others: Option<String>, now: Timestamp) -> Phase {
    match &row.provisioning_status {
        Provisioning::Active => Phase::Ready,
        Provisioning::Error | Provisioning::Deleted => {
            let is_its = *title == Title::Ours && others.is_none();
            let cure = if is_its { Cure::Ensure } else { Cure::Person };
            let others = others.map_or_else(String::new, |others| format!(", and has {others}"));
            let why = format!("load balancer {} is {}{others}", row.id, row.provisioning_status);
            Phase::Failed { why, cure }
        }
        Provisioning::PendingDelete | Provisioning::Pending(_) => {
            Phase::Pending(waiting(row, None, now))
        }
    }
}
