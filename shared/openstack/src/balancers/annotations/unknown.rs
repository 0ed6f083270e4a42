//! Finds unknown annotations with a prefix of this cloud, and the names that the user probably
//! meant.

use ccm_base::{message::one_line, nearest};
use ccm_cloud::Note;
use ccm_openstack_client::text::MAX_VALUE;

use super::{ADDRESS, ID, INTERNAL, KNOWN, OLD_PREFIX, PREFIX, Source, remark};

/// The maximum number of unknown annotations that get a remark each.
const NAMED: usize = 10;

/// Names that users write for the annotation of an internal load balancer.
const INTERNALS: [&str; 5] = [
    "internal",
    "internal-lb",
    "internal-load-balancer",
    "load-balancer-internal",
    "openstack-internal-load-balancer",
];

/// Names that users write, each with the correct annotation or field.
const SYNONYMS: [(&str, &str); 19] = [
    ("external-ip", "spec.loadBalancerIP"),
    ("flavor", "flavor-id"),
    ("floating-ip", "spec.loadBalancerIP"),
    ("floating-ip-address", "spec.loadBalancerIP"),
    ("floating-network", "floating-network-id"),
    ("health-check", "enable-health-monitor"),
    ("health-monitor", "enable-health-monitor"),
    ("keep-floating-ip", "keep-floatingip"),
    ("load-balancer-class", "class"),
    ("load-balancer-ip", "spec.loadBalancerIP"),
    ("load-balancer-source-ranges", "spec.loadBalancerSourceRanges"),
    ("member-subnet", "member-subnet-id"),
    ("network", "network-id"),
    ("port", "port-id"),
    ("session-affinity", "spec.sessionAffinity"),
    ("source-ranges", "spec.loadBalancerSourceRanges"),
    ("subnet", "subnet-id"),
    ("tags", "load-balancer-tags"),
    ("zone", "availability-zone"),
];

/// An annotation with a prefix of this cloud that the provider does not know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown<'a> {
    key: &'a str,
    /// Its name without the prefix.
    name: &'a str,
    /// True if the user probably meant the annotation for an internal load balancer.
    pub means_internal: bool,
}

impl<'a> Unknown<'a> {
    /// Returns the annotation with this key, if the key has a prefix of this cloud and the provider
    /// does not know it.
    pub fn from_key(key: &'a str) -> Option<Self> {
        let name = match (key.strip_prefix(PREFIX), key.strip_prefix(OLD_PREFIX)) {
            (Some(name), _) if !KNOWN.contains(&name) => name,
            (_, Some(name)) if key != INTERNAL => name,
            _ => return None,
        };
        let means_internal =
            !name.to_lowercase().contains("extern") && nearest(name, &INTERNALS).is_some();
        Some(Self { key, name, means_internal })
    }

    pub fn source(&self) -> Source {
        Source::Annotation(one_line(self.key, MAX_VALUE))
    }

    fn meant(&self) -> Option<String> {
        if self.means_internal {
            return Some(INTERNAL.to_owned());
        }
        let written = |name: &&&str| [ID, ADDRESS].contains(&&*format!("{PREFIX}{name}"));
        let known = KNOWN.iter().filter(|name| !written(name)).copied();
        let all: Vec<&str> = known.chain(SYNONYMS.iter().map(|(name, _)| *name)).collect();
        let name = nearest(self.name, &all)?;
        let synonym = SYNONYMS.iter().find(|(synonym, _)| *synonym == name);
        let right = synonym.map_or(name, |(_, right)| right);
        Some(if right.starts_with("spec.") { right.to_owned() } else { format!("{PREFIX}{right}") })
    }
}

/// Returns one remark for each of the first `NAMED` annotations, and one with the number of the rest.
/// Annotations that seem to ask for an internal load balancer come first.
pub fn remarks(mut unknown: Vec<Unknown<'_>>) -> Vec<Note> {
    const REASON: &str = "UnknownAnnotation";
    unknown.sort_by_key(|one| (!one.means_internal, one.key));
    let line = |one: &Unknown<'_>| {
        let hint = one.meant().map_or_else(String::new, |it| format!("; did you mean {it}?"));
        let what = format!("{} is unknown and ignored{hint}", one.source());
        remark(REASON, what)
    };
    let mut notes: Vec<Note> = unknown.iter().take(NAMED).map(line).collect();
    if unknown.len() > NAMED {
        let more = unknown.len() - NAMED;
        let what =
            format!("and {more} more annotations are ignored: there are none of these names");
        notes.push(remark(REASON, what));
    }
    notes
}
