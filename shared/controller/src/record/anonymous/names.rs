//! Replaces the texts of a cluster.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    net::IpAddr,
};

use ccm_cloud::Digest;
use jiff::Timestamp;

use super::addresses::Addresses;

/// Words of Kubernetes and of clouds that machines compare with. They are not replaced, because
/// they say nothing about a cluster, even if an object has such a name.
const WORDS: &str = "\
    true false True False Unknown None none yes no on off v1 io dev com org local cluster svc \
    Ready NetworkUnavailable NodeReady KubeletReady KubeletNotReady NodeStatusUnknown NoRouteCreated RouteCreated \
    InternalIP ExternalIP Hostname InternalDNS ExternalDNS IPv4 IPv6 ipv4 ipv6 SingleStack PreferDualStack RequireDualStack \
    NoSchedule PreferNoSchedule NoExecute TCP UDP SCTP tcp udp sctp http https HTTP HTTPS Cluster Local \
    LoadBalancer ClusterIP NodePort ExternalName VIP Proxy Node Service Lease Pod Namespace \
    key value effect timeAdded kubernetes k8s quartet beta alpha \
    node nodes service services route routes cloud cloudprovider cloudproviders topology region zone failure-domain instance-type arch os \
    hostname uninitialized shutdown not-ready unreachable unschedulable network-unavailable \
    node-role control-plane master worker exclude-from-external-load-balancers exclude-balancer \
    provided-node-ip alpha.kubernetes.io load-balancer load-balancer-cleanup service-name \
    deletion-approved deletion-protected change-approved node-label-policy instance-gone owned-labels \
    approved-selector approved-until handover cloud-identity adopt-load-balancer member-loss-approved replacement-approved \
    release-approved load-balancer-id load-balancer-digest load-balancer-controller \
    openstack external sim default kube-system kube-node-lease ACTIVE ERROR DELETED SHUTOFF \
    the a an is are was not no to of for in at by and or with from it this that has have be \
    quota exceeded limit limits too many requests request timed out timeout time error errors failed failure \
    found forbidden unauthorized denied conflict exists already invalid unknown refused reset connection closed \
    unavailable internal server gateway bad busy pending deleted gone status code response answer";

/// How texts are taken apart, from the outside to the inside.
const LEVELS: [fn(char) -> bool; 6] = [
    |c| !c.is_alphanumeric() && !matches!(c, '/' | ':' | '.' | '_' | '-'),
    |c| c == '/',
    |c| c == ':',
    |c| c == '.',
    |c| c == '_',
    |c| c == '-',
];

/// A part of a text.
enum TextPart<'a> {
    Kept(&'a str),
    Address(IpAddr),
    Network(IpAddr, u8),
    Uuid(&'a str),
    Token(&'a str),
}

/// The texts of a record and their replacements, chosen by rank, so that their order stays.
pub(super) struct Names {
    words: HashSet<&'static str>,
    tokens: BTreeMap<Box<str>, usize>,
    uuids: BTreeMap<Box<str>, usize>,
    addresses: BTreeSet<IpAddr>,
    replaced: Addresses,
    /// How all replacements begin: no text of the cluster begins like this.
    first: String,
    /// How all replacements of UUIDs begin.
    first_of_uuids: String,
}

impl Names {
    pub(super) fn new(words: &[&'static str]) -> Self {
        Self {
            words: WORDS.split_whitespace().chain(words.iter().copied()).collect(),
            tokens: BTreeMap::new(),
            uuids: BTreeMap::new(),
            addresses: BTreeSet::new(),
            replaced: Addresses::default(),
            first: String::new(),
            first_of_uuids: String::new(),
        }
    }

    /// Learns a text.
    pub(super) fn collect(&mut self, text: &str) {
        let mut parts = Vec::new();
        self.split(text, 0, &mut parts);
        for part in parts {
            match part {
                TextPart::Kept(_) => {}
                TextPart::Address(address) | TextPart::Network(address, _) => {
                    self.addresses.insert(address);
                }
                TextPart::Uuid(uuid) if !self.uuids.contains_key(uuid) => {
                    self.uuids.insert(uuid.into(), 0);
                }
                TextPart::Token(token) if !self.tokens.contains_key(token) => {
                    self.tokens.insert(token.into(), 0);
                }
                TextPart::Uuid(_) | TextPart::Token(_) => {}
            }
        }
    }

    /// Ends the collection, since all texts are known, and chooses the replacements.
    pub(super) fn seal(&mut self) {
        for map in [&mut self.tokens, &mut self.uuids] {
            map.values_mut().zip(1..).for_each(|(rank, next)| *rank = next);
        }
        let is_free = |first: &String| !self.tokens.keys().any(|it| it.starts_with(&**first));
        // This is shorter than a text that is longer than all texts of the cluster.
        let longest = self.tokens.keys().map(|token| token.len()).max().unwrap_or_default();
        let mut firsts = (1..=longest + 1).map(|count| "x".repeat(count));
        self.first = firsts.find(is_free).unwrap_or_default();
        let is_free = |first: &String| !self.uuids.keys().any(|uuid| uuid.starts_with(&**first));
        let first = (0..u32::MAX).map(|number| format!("{number:08x}")).find(is_free);
        self.first_of_uuids = first.unwrap_or_default();
        // The replacement of an address should not be an address of the cluster. In a small network
        // that may happen.
        let own = |replaced: &Addresses| {
            let replaceable = self.addresses.iter().filter(|it| !replaced.is_plain(**it));
            replaceable.filter(|it| self.addresses.contains(&replaced.replaced(**it))).count()
        };
        let tried = std::iter::repeat_with(Addresses::default).take(32);
        self.replaced = tried.min_by_key(own).unwrap_or_default();
    }

    /// Returns the text that replaces this one.
    pub(super) fn replaced(&self, text: &str) -> String {
        let mut parts = Vec::new();
        self.split(text, 0, &mut parts);
        let width = self.tokens.len().to_string().len();
        let part = |part| match part {
            TextPart::Kept(text) => text.to_owned(),
            TextPart::Address(address) => self.replaced.replaced(address).to_string(),
            TextPart::Network(address, prefix) => {
                format!("{}/{prefix}", self.replaced.replaced_network(address, prefix))
            }
            TextPart::Uuid(uuid) => {
                let rank = self.uuids.get(uuid).copied().unwrap_or_default();
                format!("{}-0000-4000-8000-{rank:012x}", self.first_of_uuids)
            }
            TextPart::Token(token) => {
                let rank = self.tokens.get(token).copied().unwrap_or_default();
                format!("{}{rank:0width$}", self.first)
            }
        };
        parts.into_iter().map(part).collect()
    }

    fn split<'a>(&self, text: &'a str, level: usize, to: &mut Vec<TextPart<'a>>) {
        if text.is_empty() {
            return;
        }
        if let Some(part) = self.whole(text) {
            return to.push(part);
        }
        let mut levels = LEVELS.iter().enumerate().skip(level);
        let found = levels.find(|(_, separates)| text.contains(**separates));
        let Some((level, separates)) = found else { return to.push(TextPart::Token(text)) };
        for piece in text.split_inclusive(separates) {
            let inner = piece.strip_suffix(separates).unwrap_or(piece);
            self.split(inner, level + 1, to);
            to.extend(
                piece.strip_prefix(inner).filter(|rest| !rest.is_empty()).map(TextPart::Kept),
            );
        }
    }

    /// Returns a text that is known as a whole.
    fn whole<'a>(&self, text: &'a str) -> Option<TextPart<'a>> {
        // A name cannot have capitals in these places, so this is not a name.
        let is_time = || text.contains('T') && text.parse::<Timestamp>().is_ok();
        // A digest must stay readable, and says nothing about a cluster.
        let is_digest = || text.parse::<Digest>().is_ok();
        if self.words.contains(text) || is_time() || is_digest() {
            return Some(TextPart::Kept(text));
        }
        if let Ok(address) = text.parse() {
            return Some(TextPart::Address(address));
        }
        if let Some((address, prefix)) = text.split_once('/')
            && let (Ok(address), Ok(prefix)) = (address.parse::<IpAddr>(), prefix.parse::<u8>())
            && prefix <= if address.is_ipv4() { 32 } else { 128 }
        {
            return Some(TextPart::Network(address, prefix));
        }
        is_uuid(text).then_some(TextPart::Uuid(text))
    }
}

fn is_uuid(text: &str) -> bool {
    let fits = |(at, c): (usize, char)| match at {
        8 | 13 | 18 | 23 => c == '-',
        _ => c.is_ascii_hexdigit(),
    };
    text.len() == 36 && text.char_indices().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_replaced_alike_and_in_order() {
        let mut names = Names::new(&["own-word"]);
        let texts = [
            "node-1",
            "node-10",
            "node-2",
            "node-1.example.org",
            "default/shop",
            "shop",
            "openstack:///9b3f3e6c-0f4e-4f1c-8a55-2b1d6f0a7c11",
            "9b3f3e6c-0f4e-4f1c-8a55-2b1d6f0a7c11",
            "node 10.1.2.3 is not Ready: quota exceeded (secret-project), \"10.1.2.3:443\"",
            "10.1.0.0/16",
            "2001:db8::7",
            "own-word",
            "x1",
            "2026-11-22T15:41:17Z",
            "1-260aaf1036626638e4c33e63aec8c510",
            "\u{e4}\u{f6} [::1]:5",
            "kube_service_prod_default_shop",
            "",
            "1-260aaf1036626638e4c33e63aec8c510",
        ];
        for text in texts {
            names.collect(text);
        }
        names.seal();
        let new: Vec<String> = texts.iter().map(|text| names.replaced(text)).collect();
        let [one, ten, two, host, key, shop, id, uuid, sentence, ..] = &new[..] else { panic!() };
        assert!(one < ten && ten < two, "{new:?}");
        assert!(host.starts_with(&format!("{one}.")) && host.contains(".org"), "{new:?}");
        assert_eq!(*key, format!("default/{shop}"));
        assert_eq!(*id, format!("openstack:///{uuid}"));
        assert!(sentence.contains("is not Ready: quota exceeded ("), "{sentence}");
        for original in ["secret", "project", "shop", "example", "10.1.2.3", "9b3f", "x1", "prod"] {
            let found = new.iter().find(|text| text.contains(original));
            assert!(original == "x1" || found.is_none(), "{original} in {found:?}");
            assert!(!new.iter().any(|text| text == original), "{original}");
        }
        assert_eq!(new[11..12], ["own-word"]);
        assert_eq!(new[13], "2026-11-22T15:41:17Z");
        assert_eq!(new[14], texts[14], "a digest of the own form stays");
        assert!(new[15].ends_with(&format!("[::1]:{}", names.replaced("5"))), "{}", new[15]);
        assert!(new[16].ends_with(&format!("_default_{shop}")), "{}", new[16]);
        assert_eq!(new[17..], ["", texts[18]]);
    }
}
