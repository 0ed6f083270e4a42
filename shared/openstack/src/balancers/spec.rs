//! Listeners, pools and health monitors as a Service wants them. Pure.

mod body;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
    time::Duration,
};

use ccm_cloud::{CloudError, FrontEnd, FrontEndPort, IpFamily, Note, Protocol, Traffic};
use ccm_openstack_client::lbaas::ListenerRow;
use ipnet::IpNet;

use super::{
    annotations::{Checks, Given, PREFIX, Proxy, Settings, Timeouts, remark},
    features::Features,
    job::invalid,
    names,
};

/// The affinity that Kubernetes gives when a Service names no time.
pub const USUAL_AFFINITY: u32 = 10_800;
/// The kind of monitor that checks members at another port.
pub const HTTP: &str = "HTTP";

/// The children of a load balancer.
#[derive(Clone, Debug, PartialEq)]
pub struct Tree {
    pub listeners: Vec<Listener>,
    pub notes: Vec<Note>,
}

/// A listener with its pool.
#[derive(Clone, Debug, PartialEq)]
pub struct Listener {
    /// The protocol of the Service's port.
    pub transport: Protocol,
    pub port: u16,
    pub name: String,
    /// Octavia's name of the protocol.
    pub protocol: &'static str,
    pub connection_limit: i64,
    pub timeouts: Option<Timeouts>,
    pub headers: BTreeMap<String, String>,
    /// `None` if the driver does not support them.
    pub allowed_cidrs: Option<BTreeSet<IpNet>>,
    pub tags: Vec<String>,
    pub pool: Pool,
}

/// A pool.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    pub name: String,
    pub protocol: &'static str,
    pub algorithm: String,
    /// True if connections of a client go to the same member.
    pub affinity: bool,
    /// The number of seconds, if Octavia can be told.
    pub affinity_timeout: Option<u32>,
    pub tags: Vec<String>,
    /// `None` if it has no members.
    pub member_port: Option<u16>,
    /// The port at which the members are checked, if that is another one.
    pub monitor_port: Option<u16>,
    pub monitor: Option<Monitor>,
    /// True if an existing monitor stays although the configuration does not want one.
    pub keeps_monitor: bool,
}

/// A health monitor.
#[derive(Clone, Debug, PartialEq)]
pub struct Monitor {
    pub name: String,
    pub kind: &'static str,
    pub checks: Checks,
}

/// Returns the error about a setting whose name begins the message.
fn invalid_named(setting: impl Into<String>, what: impl Display) -> CloudError {
    let setting = setting.into();
    let message = format!("{setting}: {what}");
    invalid(setting, message)
}

impl Tree {
    /// Returns the children that this front end wants of a load balancer with this name and virtual
    /// addresses of these families.
    pub fn new(
        balancer: String,
        front_end: &FrontEnd,
        settings: &Settings,
        features: Features,
        families: &[IpFamily],
        unasked: Unasked,
    ) -> Result<Self, CloudError> {
        let mut notes = Vec::new();
        check_layer_7(settings, features)?;
        let allowed_cidrs = allowed_cidrs(front_end, features, families, &mut notes)?;
        let algorithm = algorithm(settings, features, &mut notes);
        notes.extend(ignored(settings, features));
        notes.extend(unchecked(front_end, settings, features));
        let all =
            Rules { front_end, settings, features, allowed_cidrs, algorithm, balancer, unasked };
        let ports = front_end.ports.iter().enumerate();
        let listeners = ports.map(|(place, port)| all.listener(place, port)).collect();
        Ok(Self { listeners, notes })
    }
}

/// Refuses settings that read the content of a connection if the driver does not end connections.
fn check_layer_7(settings: &Settings, features: Features) -> Result<(), CloudError> {
    let annotation = |key: &str| format!("annotation {PREFIX}{key}");
    if features.ovn && settings.proxy.is_some() {
        let what = "the driver ovn has no PROXY protocol, and members see the client's address \
                    without it: remove it";
        return Err(invalid_named(annotation("proxy-protocol"), what));
    }
    if features.ovn && settings.forwarded_for {
        let what = "the driver ovn does not change requests, and members see the client's address \
                    without it: remove it";
        return Err(invalid_named(annotation("x-forwarded-for"), what));
    }
    if settings.proxy == Some(Proxy::V2) && !features.proxy_v2() {
        let what = "version 2 needs version 2.22 of Octavia's API: use v1";
        return Err(invalid_named(annotation("proxy-protocol"), what));
    }
    Ok(())
}

/// Returns the clients that may connect; `None` if Octavia cannot express this.
fn allowed_cidrs(
    front_end: &FrontEnd,
    features: Features,
    families: &[IpFamily],
    notes: &mut Vec<Note>,
) -> Result<Option<BTreeSet<IpNet>>, CloudError> {
    const FIELD: &str = "spec.loadBalancerSourceRanges";
    let ranges = &front_end.source_ranges;
    if !features.allowed_cidrs() {
        if !ranges.is_empty() {
            let why = if features.ovn { "the driver ovn" } else { "this version of Octavia" };
            let what = format!(
                "{FIELD} has no effect: {why} restricts no clients; use security groups or \
                 network policies"
            );
            notes.push(remark("LoadBalancerSourceRangesIgnored", what));
        }
        return Ok(None);
    }
    let counted =
        if features.cidrs_of_all_vips() { families } else { families.get(..1).unwrap_or(families) };
    if ranges.is_empty() {
        // If the full list cannot be expressed, send no list: that also admits everyone.
        let all = families.iter().filter(|_| counted.len() == families.len());
        return Ok(Some(all.map(|family| everything(*family)).collect()));
    }
    let fits = |range: &&IpNet| counted.contains(&IpFamily::from_address(range.addr()));
    let fitting: BTreeSet<IpNet> = ranges.iter().filter(fits).copied().collect();
    let of = || counted.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ");
    if fitting.is_empty() {
        // An empty list would admit everyone.
        let what = format!("none of its networks is {}, as the load balancer's address is", of());
        return Err(invalid_named(FIELD, what));
    }
    if fitting.len() < ranges.len() {
        let what = format!(
            "{FIELD}: {} of its networks are ignored: the load balancer's address is {}",
            ranges.len() - fitting.len(),
            of()
        );
        notes.push(remark("LoadBalancerSourceRangesIgnored", what));
    }
    Ok(Some(fitting))
}

/// Returns all addresses of a family.
fn everything(family: IpFamily) -> IpNet {
    let address: std::net::IpAddr = match family {
        IpFamily::V4 => std::net::Ipv4Addr::UNSPECIFIED.into(),
        IpFamily::V6 => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    IpNet::new_assert(address, 0)
}

/// Returns the algorithm. One that the driver does not have is replaced: amphora accepts any in a
/// creation, and fails later.
fn algorithm(settings: &Settings, features: Features, notes: &mut Vec<Note>) -> String {
    const OVN: &str = "SOURCE_IP_PORT";
    let (given, is_of_ovn) = (&settings.method, settings.method.value == OVN);
    let (driver, used) = match features {
        Features { ovn: true, .. } if !is_of_ovn => ("ovn", OVN),
        Features { amphora: true, .. } if is_of_ovn => ("amphora", "ROUND_ROBIN"),
        _ => return given.value.clone(),
    };
    if given.source.is_annotation() {
        let what = format!(
            "{}: the driver {driver} does not have {}; {used} is used",
            given.source, given.value
        );
        notes.push(remark("LoadBalancerLbMethodUnknown", what));
    }
    used.to_owned()
}

/// Returns the features that a new load balancer would have if this Octavia and its driver
/// supported them.
fn ignored(settings: &Settings, features: Features) -> Vec<Note> {
    let all = [
        (&settings.flavor, features.flavors(), "LoadBalancerFlavorIgnored"),
        (&settings.zone, features.zones(), "LoadBalancerAvailabilityZonesIgnored"),
    ];
    let lacking = all.into_iter().filter(|(_, offered, _)| !offered);
    let note = |(given, _, reason): (&Option<Given>, bool, &str)| {
        let source = &given.as_ref()?.source;
        Some(remark(reason, format!("{source}: this Octavia or its driver does not support it")))
    };
    lacking.filter_map(note).collect()
}

/// Returns the ports whose members cannot be checked as the Service asks for.
fn unchecked(front_end: &FrontEnd, settings: &Settings, features: Features) -> Option<Note> {
    settings.checks?;
    let ports = front_end.ports.iter().filter(|port| !features.checks(port.protocol));
    let ports: Vec<String> = ports.map(|port| format!("{}/{}", port.port, port.protocol)).collect();
    let what = format!(
        "annotation {PREFIX}enable-health-monitor or [LoadBalancer] create-monitor: members of {} \
         are not checked: the driver ovn has health monitors for TCP and UDP only",
        ports.join(", ")
    );
    (!ports.is_empty()).then(|| remark("LoadBalancerHealthMonitorIgnored", what))
}

/// The common parts of all ports of a front end.
struct Rules<'a> {
    front_end: &'a FrontEnd,
    settings: &'a Settings,
    features: Features,
    allowed_cidrs: Option<BTreeSet<IpNet>>,
    algorithm: String,
    balancer: String,
    unasked: Unasked,
}

impl Rules<'_> {
    fn listener(&self, place: usize, port: &FrontEndPort) -> Listener {
        let Settings { tls, forwarded_for, .. } = self.settings;
        // Octavia pairs UDP and SCTP listeners only with pools of the same protocol.
        let is_tcp = port.protocol == Protocol::Tcp;
        let (protocol, pool) = match port.protocol {
            Protocol::Udp => ("UDP", "UDP"),
            Protocol::Sctp => ("SCTP", "SCTP"),
            Protocol::Tcp if tls.is_some() => ("TERMINATED_HTTPS", "HTTP"),
            Protocol::Tcp if *forwarded_for => ("HTTP", "HTTP"),
            Protocol::Tcp => ("TCP", "TCP"),
        };
        let pool = match self.settings.proxy.filter(|_| is_tcp) {
            Some(Proxy::V1) => "PROXY",
            Some(Proxy::V2) => "PROXYV2",
            None => pool,
        };
        let header = ("X-Forwarded-For".to_owned(), "true".to_owned());
        Listener {
            transport: port.protocol,
            port: port.port,
            name: names::child("listener", place, &self.balancer),
            protocol,
            connection_limit: self.settings.connection_limit,
            timeouts: self.features.timeouts().then_some(self.settings.timeouts),
            headers: (is_tcp && *forwarded_for).then_some(header).into_iter().collect(),
            allowed_cidrs: self.allowed_cidrs.clone(),
            tags: self.tags(&self.settings.tags.listener),
            pool: self.pool(place, port, pool),
        }
    }

    fn tags(&self, more: &[String]) -> Vec<String> {
        let mut tags = names::tags(self.balancer.clone(), &self.front_end.owner).to_vec();
        tags.extend(more.iter().cloned());
        tags
    }

    fn pool(&self, place: usize, port: &FrontEndPort, protocol: &'static str) -> Pool {
        let affinity = self.front_end.affinity;
        let seconds = |time: Duration| u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
        let http_port = match self.front_end.traffic {
            Traffic::Local { health_check_port } if self.features.http_checks(port.protocol) => {
                Some(health_check_port)
            }
            _ => None,
        };
        let checks = self.settings.checks.filter(|_| self.features.checks(port.protocol));
        // On its own, the provider adds checks at the health check port only.
        let unasked = self.settings.local_checks.as_ref().filter(|_| http_port.is_some());
        let added = unasked.filter(|_| self.unasked == Unasked::Added).map(|local| local.checks);
        let checks = checks.or(added);
        let monitor = checks.map(|checks| Monitor {
            name: names::child("monitor", place, &self.balancer),
            kind: match port.protocol {
                _ if http_port.is_some() => "HTTP",
                Protocol::Tcp => "TCP",
                Protocol::Udp => "UDP-CONNECT",
                Protocol::Sctp => "SCTP",
            },
            checks,
        });
        Pool {
            name: names::child("pool", place, &self.balancer),
            protocol,
            algorithm: self.algorithm.clone(),
            affinity: affinity.is_some(),
            affinity_timeout: affinity.map(seconds).filter(|_| port.protocol != Protocol::Tcp),
            tags: self.tags(&self.settings.tags.pool),
            member_port: port.member_port,
            monitor_port: http_port.filter(|_| monitor.is_some()),
            monitor,
            keeps_monitor: self.settings.local_checks.is_some() && self.unasked == Unasked::Kept,
        }
    }
}

/// The handling of monitors that a Service has not requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unasked {
    /// Each pool gets a monitor.
    Added,
    /// Pools keep the monitors that they have.
    Kept,
    /// The monitors failed all members of a pool that had served: no monitors until the Service
    /// changes.
    TakenBack,
}

/// Returns the protocol of the transport layer below one of Octavia's: two listeners of one port
/// differ in it.
pub fn transport(protocol: &str) -> Protocol {
    match protocol {
        "UDP" => Protocol::Udp,
        "SCTP" => Protocol::Sctp,
        _ => Protocol::Tcp,
    }
}

/// Returns the protocol and port of a listener, by which it belongs to a port of the Service.
pub fn key(row: &ListenerRow) -> (Protocol, u16) {
    (transport(&row.protocol), row.protocol_port)
}

#[cfg(test)]
mod tests;
