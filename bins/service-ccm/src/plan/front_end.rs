//! The front end that a Service asks for.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use ccm_base::message::one_line;
use ccm_cloud::{
    ClusterId, Digest, FrontEnd, FrontEndPort, IpFamily, LoadBalancerTraits, Owner, Protocol,
    Traffic,
};
use ccm_objects::{
    LARGEST_SERVICE, OWN_ANNOTATIONS, Service, ServiceDetails, TooLarge, service_keys,
};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use super::{ADOPT, by_provider};

/// The version of [`digest`]. Raise it when the same Service gives another hash.
const DIGEST_VERSION: u32 = 1;

/// The `ipFamilyPolicy` of a Service that needs both IP families.
const REQUIRE: &str = "RequireDualStack";
/// The beginning of kubectl's own annotations.
const KUBECTL_ANNOTATIONS: &str = "kubectl.kubernetes.io/";
/// The number of characters of a user's text that a message quotes.
const QUOTED: usize = 60;
/// The most characters of the ID of a load balancer.
const LONGEST_ID: usize = 256;
/// How many problems a text names.
const NAMED: usize = 5;

/// The reason why a Service cannot have a load balancer, or not everything that it asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SpecProblem {
    /// The field or annotation: `spec.ports[1].protocol`.
    pub field: String,
    /// The mistake, and what would be right.
    pub message: String,
    /// True if nothing can be configured until it is fixed.
    pub fatal: bool,
}

impl SpecProblem {
    fn fatal(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), message: message.into(), fatal: true }
    }

    pub(super) fn remark(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { fatal: false, ..Self::fatal(field, message) }
    }
}

/// Returns a user's text in a message: short, and on one line.
fn quoted(text: &str) -> String {
    match text.char_indices().nth(QUOTED) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}…", text.get(..end).unwrap_or_default()),
    }
}

/// Returns problems in words, few enough for a condition or an event.
pub fn in_words(problems: &[&SpecProblem]) -> String {
    let named = problems.iter().take(NAMED);
    let mut lines: Vec<String> =
        named.map(|problem| format!("{}: {}", problem.field, problem.message)).collect();
    if problems.len() > NAMED {
        lines.push(format!("and {} more", problems.len() - NAMED));
    }
    lines.join("; ")
}

/// The front end that the spec and the annotations of a Service ask for.
#[derive(Clone, Debug, PartialEq)]
pub struct SpecFrontEnd {
    /// The front end; `None` if a problem is fatal.
    pub front_end: Option<Arc<FrontEnd>>,
    /// The mistakes in the Service.
    pub problems: Vec<SpecProblem>,
}

/// Returns the front end that this Service asks for, from a provider with these traits.
pub fn spec_front_end(
    service: &Service,
    cluster: &ClusterId,
    traits: &LoadBalancerTraits,
) -> SpecFrontEnd {
    let Some(details) = service.details.as_deref() else {
        return SpecFrontEnd { front_end: None, problems: Vec::new() };
    };
    let mut reading = Reading { details, traits, problems: Vec::new() };
    let mut front_end = FrontEnd {
        owner: owner(service, cluster),
        digest: Digest { version: DIGEST_VERSION, hash: 0 },
        families: reading.families(),
        requires_families: details.ip_families.len() > 1
            && details.ip_family_policy.as_deref() == Some(REQUIRE),
        ports: reading.ports(),
        source_ranges: reading.source_ranges(),
        address: reading.address(),
        affinity: details.client_ip_affinity.map(|seconds| Duration::from_secs(seconds.into())),
        traffic: reading.traffic(),
        class: details.class.as_deref().map(str::to_owned),
        settings: settings(details, traits),
        service: traits.wants_service.then(|| service.json.clone()).flatten(),
    };
    front_end.digest = digest(&front_end, traits);
    reading.adoption();
    reading.sharing(service);
    reading.size();
    let problems = reading.problems;
    let front_end = (!problems.iter().any(|problem| problem.fatal)).then(|| Arc::new(front_end));
    SpecFrontEnd { front_end, problems }
}

/// Returns the owner of the load balancer of a Service.
pub fn owner(service: &Service, cluster: &ClusterId) -> Owner {
    let (namespace, name) = service.names();
    Owner {
        cluster: cluster.clone(),
        uid: service.uid.to_string(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

/// Returns the digest of a configuration. It leaves out the owner, whose names cannot change, and
/// the annotations that the provider only remarks on. If the provider gets the whole Service, the
/// digest also covers its [`configuration`].
fn digest(front_end: &FrontEnd, traits: &LoadBalancerTraits) -> Digest {
    let FrontEnd {
        owner: _,
        digest: _,
        service,
        requires_families: _,
        families,
        ports,
        source_ranges,
        address,
        affinity,
        traffic,
        class,
        settings,
    } = front_end;
    let settings: BTreeMap<_, _> =
        settings.iter().filter(|(key, _)| traits.configures(key)).collect();
    // It is written down without a map of serde_json, whose order depends on its features.
    let fields = (families, ports, source_ranges, address, affinity, traffic, class, &settings);
    let mut text = serde_json::to_vec(&fields).unwrap_or_default();
    text.extend(
        service.as_deref().and_then(|json| configuration(json, traits)).unwrap_or_default(),
    );
    let hash = Sha256::digest(&text);
    let hash = hash.iter().take(16).fold(0, |hash, byte| hash << 8 | u128::from(*byte));
    Digest { version: DIGEST_VERSION, hash }
}

/// Returns the parts that a provider with the whole Service may act on: the spec, and all
/// annotations but the provider's own, kubectl's and Quartet's. Nobody else knows which of them the
/// provider reads.
fn configuration(json: &str, traits: &LoadBalancerTraits) -> Option<Vec<u8>> {
    #[derive(Deserialize)]
    struct Metadata {
        #[serde(default)]
        annotations: BTreeMap<String, String>,
    }
    #[derive(Deserialize)]
    struct Whole<'a> {
        metadata: Metadata,
        #[serde(borrow)]
        spec: &'a RawValue,
    }
    let Whole { metadata, spec } = serde_json::from_str(json).ok()?;
    let is_own = |key: &str| {
        key.starts_with(OWN_ANNOTATIONS)
            || key.starts_with(KUBECTL_ANNOTATIONS)
            || traits.writes(key)
    };
    let annotations: BTreeMap<_, _> =
        metadata.annotations.into_iter().filter(|(key, _)| !is_own(key)).collect();
    serde_json::to_vec(&(annotations, spec)).ok()
}

/// Returns the annotations that the provider reads or remarks on, except its own ones.
pub fn settings(details: &ServiceDetails, traits: &LoadBalancerTraits) -> BTreeMap<String, String> {
    let annotations = details.annotations.iter().filter(|(key, _)| traits.passes(key));
    annotations.map(|(key, value)| (key.to_string(), value.to_string())).collect()
}

/// A Service while it is read.
struct Reading<'a> {
    details: &'a ServiceDetails,
    traits: &'a LoadBalancerTraits,
    problems: Vec<SpecProblem>,
}

impl Reading<'_> {
    fn families(&mut self) -> Vec<IpFamily> {
        let mut families: Vec<IpFamily> = Vec::new();
        for (place, family) in self.details.ip_families.iter().enumerate() {
            match &**family {
                "IPv4" => families.push(IpFamily::V4),
                "IPv6" => families.push(IpFamily::V6),
                other => self.problems.push(SpecProblem::fatal(
                    format!("spec.ipFamilies[{place}]"),
                    format!("{} is not an IP family; expected IPv4 or IPv6", quoted(other)),
                )),
            }
        }
        if families.is_empty() {
            families.push(IpFamily::V4);
        }
        if families.len() > 1 && !self.traits.dual_stack {
            let first = families.first().copied().unwrap_or(IpFamily::V4);
            let what = "the cloud does not have load balancers with addresses of both families";
            let policy = self.details.ip_family_policy.as_deref();
            self.problems.push(if policy == Some(REQUIRE) {
                let right = "set SingleStack or PreferDualStack";
                SpecProblem::fatal("spec.ipFamilyPolicy", format!("{what}; {right}"))
            } else {
                SpecProblem::remark(
                    "spec.ipFamilyPolicy",
                    format!("{what}; this one has {first} only"),
                )
            });
            families.truncate(1);
        }
        families
    }

    fn ports(&mut self) -> Vec<FrontEndPort> {
        let mut seen = BTreeSet::new();
        let mut ports = Vec::with_capacity(self.details.ports.len());
        for (place, port) in self.details.ports.iter().enumerate() {
            let field = |name: &str| format!("spec.ports[{place}].{name}");
            let Some(protocol) = self.protocol(&port.protocol, field("protocol")) else { continue };
            if !seen.insert((protocol, port.port)) {
                let what = format!("{protocol} port {} is listed twice", port.port);
                self.problems.push(SpecProblem::fatal(field("port"), what));
            }
            if port.node_port.is_none() {
                let what = if self.details.allocates_node_ports {
                    format!("{protocol} port {} has no node port yet, so no members", port.port)
                } else {
                    format!(
                        "{protocol} port {} has no node port, so no members: set spec.allocateLoadBalancerNodePorts to true, or a node port. Pods as members are not supported",
                        port.port
                    )
                };
                self.problems.push(SpecProblem::remark(field("nodePort"), what));
            }
            ports.push(FrontEndPort {
                name: port.name.to_string(),
                protocol,
                port: port.port,
                member_port: port.node_port,
                app_protocol: port.app_protocol.as_deref().map(str::to_owned),
            });
        }
        // A part that is too large was not read.
        if self.details.ports.is_empty() && self.details.too_large.is_none() {
            let what = "a load balancer needs at least one port";
            self.problems.push(SpecProblem::fatal("spec.ports", what));
        }
        ports.sort_by_key(|port| (port.protocol, port.port));
        ports
    }

    /// Returns a protocol, if it exists and the provider offers it.
    fn protocol(&mut self, text: &str, field: String) -> Option<Protocol> {
        let protocol = match text {
            "TCP" => Some(Protocol::Tcp),
            "UDP" => Some(Protocol::Udp),
            "SCTP" => Some(Protocol::Sctp),
            _ => None,
        };
        let offered = protocol.filter(|protocol| self.traits.protocols.contains(protocol));
        if offered.is_none() {
            let offers: Vec<String> =
                self.traits.protocols.iter().map(ToString::to_string).collect();
            let what = format!(
                "the cloud's load balancers do not offer {}; they offer {}",
                quoted(text),
                offers.join(", ")
            );
            self.problems.push(SpecProblem::fatal(field, what));
        }
        offered
    }

    fn source_ranges(&mut self) -> Vec<IpNet> {
        let texts: Vec<(String, &str)> = if self.details.source_ranges.is_empty() {
            let annotation = self.details.annotations.get(service_keys::SOURCE_RANGES);
            let text = annotation.map(|text| text.trim()).filter(|text| !text.is_empty());
            let parts = text.into_iter().flat_map(|text| text.split(','));
            let field = format!("annotation {}", service_keys::SOURCE_RANGES);
            parts.map(|part| (field.clone(), part)).collect()
        } else {
            let ranges = self.details.source_ranges.iter().enumerate();
            let field = |place| format!("spec.loadBalancerSourceRanges[{place}]");
            ranges.map(|(place, range)| (field(place), &**range)).collect()
        };
        let mut ranges = BTreeSet::new();
        for (field, text) in texts {
            match text.trim().parse::<IpNet>() {
                Ok(range) => {
                    ranges.insert(range.trunc());
                }
                Err(_) => self.problems.push(SpecProblem::fatal(
                    field,
                    format!("{} is not a network; expected one such as 10.0.0.0/24", quoted(text)),
                )),
            }
        }
        // All addresses of a family mean no restriction, which providers recognise on their own.
        let all: [IpNet; 2] = ["0.0.0.0/0", "::/0"].map(|all| all.parse().unwrap_or_default());
        if all.iter().all(|all| ranges.contains(all)) {
            ranges.clear();
        }
        ranges.into_iter().collect()
    }

    fn address(&mut self) -> Option<IpAddr> {
        let text = self.details.load_balancer_ip.as_deref()?;
        let address = text.parse().ok();
        if address.is_none() {
            let what = format!("{} is not an IP address", quoted(text));
            self.problems.push(SpecProblem::fatal("spec.loadBalancerIP", what));
        }
        address
    }

    /// Checks that the load balancer to adopt, which other parts of the plan read, has an ID.
    fn adoption(&mut self) {
        let Some(id) = self.details.annotations.get(ADOPT) else { return };
        if id.is_empty() || one_line(id, LONGEST_ID) != **id {
            let what =
                format!("{} is not a load balancer ID; see /plan for the right one", quoted(id));
            self.problems.push(SpecProblem::fatal(format!("annotation {ADOPT}"), what));
        }
    }

    /// Reports a new Service that asks for an existing load balancer. A Service with the finalizer
    /// may have it by another controller: the cloud says whether it exists.
    fn sharing(&mut self, service: &Service) {
        let Some((key, id)) = by_provider(service, self.traits) else { return };
        if service.has_finalizer {
            return;
        }
        let what = format!(
            "load balancer {} was not made for this Service, and Services cannot share one yet; remove the annotation, and the Service gets its own",
            quoted(id)
        );
        self.problems.push(SpecProblem::fatal(format!("annotation {key}"), what));
    }

    /// Checks the size. A Service without its left-out part is not configured at all.
    fn size(&mut self) {
        let Some(TooLarge { part, bytes, others }) = &self.details.too_large else { return };
        let others = match others {
            0 => String::new(),
            others => format!(" ({others} more parts are too large as well)"),
        };
        let what = format!(
            "has {bytes} bytes{others}: service-ccm reads at most {LARGEST_SERVICE} of one Service. Until it is smaller, load balancer and members do not change"
        );
        self.problems.push(SpecProblem::fatal(&**part, what));
    }

    fn traffic(&mut self) -> Traffic {
        match (self.details.local_traffic, self.details.health_check_node_port) {
            (false, _) => Traffic::Cluster,
            (true, Some(health_check_port)) => Traffic::Local { health_check_port },
            (true, None) => {
                let what = "spec.externalTrafficPolicy is Local, but the Service has no health check port yet";
                self.problems.push(SpecProblem::fatal("spec.healthCheckNodePort", what));
                Traffic::Cluster
            }
        }
    }
}

#[cfg(test)]
mod tests;
