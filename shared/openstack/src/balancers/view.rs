//! Makes the controller's view of a load balancer: its state, its addresses, and what the provider
//! waits for.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use ccm_base::clock;
use ccm_cloud::{
    ClusterId, Cure, Ingress, IngressAddress, IpMode, LoadBalancer, Phase, Progress, Title, Waiting,
};
use ccm_openstack_client::{
    lbaas::{BalancerRow, Provisioning},
    network::FloatingIp,
};
use jiff::Timestamp;

use super::{
    Context,
    annotations::{ADDRESS, ID, Settings},
    current::{self, since, vips},
    job::Job,
    memory::Verified,
    names, ownership,
};
use crate::config::Config;

/// The time until the next look at a load balancer on which Octavia works.
const CHECK_AFTER: Duration = Duration::from_secs(1);
/// The cloud's work that takes longer than this needs a person.
const LONG: Duration = Duration::from_mins(10);

/// Returns the entries of the status for these addresses.
pub fn ingress(addresses: &[IpAddr], settings: &Settings, config: &Config) -> Vec<Ingress> {
    let entry = |address, ip_mode| Ingress { address, ip_mode, failed_ports: Vec::new() };
    if let Some(name) = &settings.hostname {
        return vec![entry(IngressAddress::Hostname(name.clone()), IpMode::Vip)];
    }
    let of = |ip: &IpAddr| match settings.proxy {
        Some(_) if config.load_balancer.enable_ingress_hostname => {
            let suffix = &config.load_balancer.ingress_hostname_suffix;
            entry(IngressAddress::Hostname(format!("{ip}.{suffix}")), IpMode::Vip)
        }
        Some(_) => entry(IngressAddress::Ip(*ip), IpMode::Proxy),
        None => entry(IngressAddress::Ip(*ip), IpMode::Vip),
    };
    addresses.iter().map(of).collect()
}

/// Returns the annotations by which openstack-cloud-controller-manager finds the load balancer.
pub fn annotations(id: &str, address: Option<IpAddr>) -> BTreeMap<String, Option<String>> {
    let address = address.map(|address| address.to_string());
    [(ID.to_owned(), Some(id.to_owned())), (ADDRESS.to_owned(), address)].into()
}

/// Returns Octavia's current work, and since when.
pub fn waiting(row: &BalancerRow, more: Option<&str>, now: Timestamp) -> Waiting {
    let status = &row.provisioning_status;
    let begun = row.updated_at.as_deref().or(row.created_at.as_deref());
    let takes = since(begun, now).filter(|takes| *takes >= LONG);
    let what = match (takes, more) {
        (Some(takes), _) => format!(
            "{status} for {} min; only the operator of the cloud can end this: no one else can \
             change or delete load balancer {} until then",
            takes.as_secs() / 60,
            row.id
        ),
        (None, Some(more)) => format!("{status}: {more}"),
        (None, None) => status.to_string(),
    };
    waiting_for(row, what, CHECK_AFTER)
}

/// Returns a wait for the cloud.
pub fn waiting_for(row: &BalancerRow, what: String, check_after: Duration) -> Waiting {
    Waiting { what, check_after, id: Some(row.id.clone()), request_id: None, changed: false }
}

/// Returns the answer that the provider waits for Octavia's current work.
pub fn in_progress<T>(row: &BalancerRow, more: Option<&str>) -> Progress<T> {
    Progress::InProgress(waiting(row, more, clock::wall()))
}

/// Returns the wait after a change.
pub fn after_change(row: &BalancerRow, line: String) -> Waiting {
    after(&Provisioning::Pending("PENDING_UPDATE".to_owned()), row, line)
}

/// Returns the wait for this state after a change.
pub fn after(state: &Provisioning, row: &BalancerRow, line: String) -> Waiting {
    Waiting { changed: true, ..waiting_for(row, format!("{state}: {line}"), CHECK_AFTER) }
}

/// Returns a load balancer as a row of Octavia and the memory show it. What only annotations and
/// floating IPs tell is empty until this process has compared it with what is wanted.
pub fn view(cx: Context<'_>, row: &BalancerRow, cluster: &ClusterId) -> LoadBalancer {
    let now = clock::wall();
    let (owner, title) = ownership::owner_and_title(row, cluster);
    let mut balancer = LoadBalancer::new(&row.id, &row.name, owner);
    balancer.digest = names::digest(&row.tags).filter(|_| title == Title::Ours);
    balancer.phase = phase(row, &title, cx.failures.others(&row.id), now);
    balancer.version.clone_from(&row.updated_at);
    // A load balancer that was never changed has the time of its creation.
    balancer.version = balancer.version.or_else(|| row.created_at.clone());
    balancer.age = current::since(row.created_at.as_deref(), now);
    let driver = row.provider.as_deref().unwrap_or("load balancer");
    balancer.cost = Some(driver.to_owned());
    if let Some(verified) = cx.memory.verified(&row.id).filter(|_| title == Title::Ours) {
        if verified.floating {
            balancer.cost = Some(format!("{driver} with floating IP"));
        }
        balancer.annotations = annotations(&row.id, verified.address);
        balancer.ingress = verified.ingress;
        balancer.notes = verified.notes;
        balancer.pools = verified.created;
    }
    balancer.title = title;
    balancer
}

/// Adds the addresses to the record of a load balancer that is as wanted.
pub fn with_addresses(
    job: &Job<'_>,
    row: &BalancerRow,
    floating: &[FloatingIp],
    verified: Verified,
) -> Verified {
    let stands =
        |ip: &&FloatingIp| ip.fixed_address.is_none() || ip.fixed_address == row.vip_address;
    let wished = job.wanted.front_end.address;
    let attached = floating.iter().filter(stands);
    // Two floating IPs are attached while one is exchanged for another.
    let attached = attached.min_by_key(|ip| wished != Some(ip.address));
    let mut addresses = vips(row);
    if let (Some(ip), Some(first)) = (attached, addresses.first_mut()) {
        *first = ip.address;
    }
    let ingress = ingress(&addresses, &job.settings, &job.cx.config);
    let (address, floating) = (addresses.first().copied(), attached.is_some());
    Verified { ingress, address, floating, ..verified }
}

/// Returns the state of a load balancer. `others` is what others have on it.
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
