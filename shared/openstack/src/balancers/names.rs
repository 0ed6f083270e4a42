//! Names, descriptions and tags. Names and descriptions are the same as
//! openstack-cloud-controller-manager's, so that each controller can continue with the other one's
//! objects. Tags with UIDs record the owner, because a name cannot prove it.

use std::{fmt::Display, str::FromStr};

use ccm_cloud::{Digest, Owner};

/// The most bytes of a name and of a description.
const LONGEST: usize = 255;
/// The prefix of the names of all load balancers of openstack-cloud-controller-manager.
pub const PREFIX: &str = "kube_service_";
/// The tag with the UID of the cluster, which all its load balancers have.
pub const CLUSTER: &str = "kubernetes-cluster-id=";
/// The tag with the UID of the Service.
const SERVICE: &str = "kubernetes-service-uid=";
/// The tag with the digest of the configuration.
pub const DIGEST: &str = "quartet-config=";
/// The tag with the digest of the configuration for which the provider took back health monitors.
pub const TAKEN_BACK: &str = "quartet-monitors-taken-back=";
/// The tag of a floating IP with the virtual address that its next load balancer should have.
pub const VIP: &str = "quartet-vip=";
/// The tag of a floating IP whose address a Service has asked for. The provider never deletes it.
pub const ASKED_FOR: &str = "quartet-asked-for";
/// The prefix of the description of a floating IP that was made for a load balancer. It tells
/// openstack-cloud-controller-manager that the floating IP may be deleted.
const FLOATING: &str = "Floating IP for Kubernetes external service";

/// Returns true if Octavia may have assigned this ID. A user may write any text in place of an ID.
pub fn is_id(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_graphic() && !b"/?#%.".contains(&byte);
    !text.is_empty() && text.len() <= LONGEST && text.bytes().all(fits)
}

/// Returns the text, cut to what OpenStack stores.
pub fn cut(mut text: String) -> String {
    let mut end = text.len().min(LONGEST);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}

/// Returns the name of a load balancer.
pub fn balancer(owner: &Owner) -> String {
    let Owner { cluster, namespace, name, .. } = owner;
    cut(format!("{PREFIX}{}_{namespace}_{name}", cluster.name))
}

/// Returns the name of an existing load balancer, for its tags and for its children: the name in
/// its tags, else its own if it was made for this Service. So a new name of the cluster renames
/// nothing, and openstack-cloud-controller-manager finds one name everywhere.
pub fn of_existing(name: &str, tags: &[String], owner: &Owner) -> String {
    let end = format!("_{}_{}", owner.namespace, owner.name);
    let is_made_for =
        |name: &&str| name.starts_with(PREFIX) && (name.ends_with(&end) || name.len() >= LONGEST);
    let mut names = tags.iter().map(String::as_str).chain([name]);
    names.find(is_made_for).map_or_else(|| balancer(owner), str::to_owned)
}

/// Returns true if the name of a listener or pool, `kind`, says that it was made with a load
/// balancer of one of these names: `kind_place_balancer`, or `kind_balancer_place` of old versions
/// of openstack-cloud-controller-manager. The ends of long names are cut off.
pub fn is_child<'a>(kind: &str, child: &str, balancers: impl IntoIterator<Item = &'a str>) -> bool {
    let is_place = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let Some(rest) = child.strip_prefix(kind).and_then(|rest| rest.strip_prefix('_')) else {
        return false;
    };
    let after = rest.split_once('_').filter(|(place, _)| is_place(place));
    let before = rest.rsplit_once('_').filter(|(_, place)| is_place(place));
    let is_cut = child.len() >= LONGEST;
    balancers.into_iter().any(|balancer| {
        after.is_some_and(|(_, name)| balancer == name || is_cut && balancer.starts_with(name))
            || before.is_some_and(|(name, _)| balancer == name)
    })
}

/// Returns the name of a listener, pool or monitor: `kind` and its place among the ports.
pub fn child(kind: &str, place: usize, balancer: &str) -> String {
    cut(format!("{kind}_{place}_{balancer}"))
}

/// Returns the description of a load balancer.
pub fn description(owner: &Owner) -> String {
    cut(format!("Kubernetes external service {owner} from cluster {}", owner.cluster.name))
}

/// Returns the description of a floating IP.
pub fn floating(owner: &Owner) -> String {
    cut(format!("{FLOATING} {owner} from cluster {}", owner.cluster.name))
}

/// Returns true if a floating IP with this description was made for a load balancer.
pub fn is_made_floating(description: &str) -> bool {
    description.contains(FLOATING)
}

/// Parses the description of a floating IP: returns the namespace and name of the Service, and the name
/// of the cluster, whose end may be cut off.
pub fn floating_service(description: &str) -> Option<(&str, &str)> {
    let (_, rest) = description.split_once(FLOATING)?;
    rest.trim_start().split_once(" from cluster ")
}

/// Returns true if a floating IP with this description was made for a Service with this namespace and
/// name in a cluster with this name.
pub fn is_floating_of(description: &str, owner: &Owner) -> bool {
    let own = &owner.cluster.name;
    floating_service(description).is_some_and(|(service, cluster)| {
        let is_cut = description.len() >= LONGEST && own.starts_with(cluster);
        service == owner.to_string() && (cluster == own || is_cut)
    })
}

/// Returns the tags that record an owner.
pub fn owner_tags(owner: &Owner) -> [String; 2] {
    [format!("{CLUSTER}{}", owner.cluster.uid), format!("{SERVICE}{}", owner.uid)]
}

/// The number of [`tags`], which come before those that a user adds.
pub const OWN_TAGS: usize = 3;

/// Returns the tags of a load balancer of this name, and of what is below it.
pub fn tags(balancer: String, owner: &Owner) -> [String; OWN_TAGS] {
    let [cluster, service] = owner_tags(owner);
    [balancer, cluster, service]
}

/// Returns the tag of this kind with a value.
pub fn tag(kind: &str, value: impl Display) -> String {
    format!("{kind}{value}")
}

/// Returns the first value in the tags of this kind that can be parsed.
pub fn value<T: FromStr>(tags: &[String], kind: &'static str) -> Option<T> {
    values(tags, kind).find_map(|text| text.parse().ok())
}

/// Returns the digest in these tags.
pub fn digest(tags: &[String]) -> Option<Digest> {
    value(tags, DIGEST)
}

/// Returns the configuration for which these tags prevent health monitors.
pub fn taken_back(tags: &[String]) -> Option<Digest> {
    value(tags, TAKEN_BACK)
}

/// Returns the UIDs of clusters in these tags.
pub fn clusters(tags: &[String]) -> impl Iterator<Item = &str> {
    values(tags, CLUSTER)
}

/// Returns the UIDs of Services in these tags.
pub fn services(tags: &[String]) -> impl Iterator<Item = &str> {
    values(tags, SERVICE)
}

/// Returns true if this tag records an owner, no matter which.
pub fn is_owner_tag(tag: &str) -> bool {
    tag.starts_with(CLUSTER) || tag.starts_with(SERVICE)
}

fn values<'a>(tags: &'a [String], prefix: &'static str) -> impl Iterator<Item = &'a str> {
    tags.iter().filter_map(move |tag| tag.strip_prefix(prefix))
}

/// Returns namespace and name of the Service in the description of a load balancer, and the name of
/// the cluster.
fn parts(description: &str) -> Option<((&str, &str), &str)> {
    let text = description.strip_prefix("Kubernetes external service ")?;
    let (service, cluster) = text.split_once(" from cluster ")?;
    Some((service.split_once('/')?, cluster))
}

/// Returns namespace and name of the Service in the description of a load balancer.
pub fn service(description: &str) -> Option<(&str, &str)> {
    parts(description).map(|(service, _)| service)
}

/// Returns the namespace and name of the Service if the description names a cluster of this name.
pub fn described<'a>(description: &'a str, cluster: &str) -> Option<(&'a str, &'a str)> {
    parts(description).filter(|(_, named)| *named == cluster).map(|(service, _)| service)
}

/// Returns namespace and name of the Service in the name of a load balancer of a cluster of this
/// name. Neither of them has an underscore; the cluster's name may have some.
pub fn named<'a>(name: &'a str, cluster: &str) -> Option<(&'a str, &'a str)> {
    let rest = name.strip_prefix(PREFIX)?.strip_prefix(cluster)?.strip_prefix('_')?;
    let (namespace, service) = rest.split_once('_')?;
    let is_whole = name.len() < LONGEST && !service.contains('_');
    is_whole.then_some((namespace, service))
}

/// Returns true if this is the name that old versions of openstack-cloud-controller-manager gave:
/// `a` and the UID of the Service, in 32 characters.
pub fn is_legacy(name: &str) -> bool {
    let digits = name.strip_prefix('a').unwrap_or_default();
    digits.len() == 31 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns the node in the name of a member: `node`, or `member_node_address_port` of the serial
/// mode.
pub fn node(member: &str) -> &str {
    let serial = || {
        let (rest, _port) = member.strip_prefix("member_")?.rsplit_once('_')?;
        rest.rsplit_once('_').map(|(node, _address)| node)
    };
    serial().unwrap_or(member)
}

#[cfg(test)]
mod tests {
    use ccm_cloud::ClusterId;

    use super::*;

    fn owner(cluster: &str, namespace: &str, name: &str) -> Owner {
        let cluster = ClusterId { name: cluster.to_owned(), uid: "c-1".to_owned() };
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        Owner { cluster, uid: "s-1".to_owned(), namespace, name }
    }

    #[test]
    fn names_are_those_of_the_other_controller() {
        let web = owner("prod", "default", "web");
        assert_eq!(balancer(&web), "kube_service_prod_default_web");
        assert_eq!(
            child("listener", 2, &balancer(&web)),
            "listener_2_kube_service_prod_default_web"
        );
        assert_eq!(description(&web), "Kubernetes external service default/web from cluster prod");
        let text = "Floating IP for Kubernetes external service default/web from cluster prod";
        assert_eq!(floating(&web), text);
        assert!(is_made_floating(text) && !is_made_floating("my address"));
        assert!(is_floating_of(text, &web) && is_floating_of(&format!("DMZ: {text}"), &web));
        for other in [
            owner("pro", "default", "web"),
            owner("prod", "default", "we"),
            owner("prod", "other", "web"),
        ] {
            assert!(!is_floating_of(text, &other), "{other:?}");
        }
        let long = owner(&"c".repeat(300), "n", "s");
        assert!(is_floating_of(&floating(&long), &long), "its end is cut off");
        assert_eq!((balancer(&long).len(), child("pool", 0, &balancer(&long)).len()), (255, 255));
        assert_eq!(cut("ü".repeat(200)).len(), 254, "no half characters");
    }

    #[test]
    fn a_name_says_for_which_service_it_was_made() {
        for (name, cluster, expect) in [
            ("kube_service_prod_default_web", "prod", Some(("default", "web"))),
            ("kube_service_a_b_ns_web", "a_b", Some(("ns", "web"))),
            // This name belongs to another cluster.
            ("kube_service_a_b_ns_web", "a", None),
            ("kube_service_prod_default_web", "pro", None),
            ("kube_service_prod_default", "prod", None),
            ("service_prod_default_web", "prod", None),
        ] {
            assert_eq!(named(name, cluster), expect, "{name}");
        }
        let cut = format!("kube_service_{}_ns_web", "c".repeat(300));
        assert_eq!(
            named(cut.get(..255).unwrap(), &"c".repeat(235)),
            None,
            "a name that is cut proves nothing"
        );
        let text = "Kubernetes external service default/web from cluster prod";
        assert_eq!(described(text, "prod"), Some(("default", "web")));
        assert_eq!(described(text, "pro"), None);
        assert!(is_legacy("a0123456789abcdef0123456789abcde"));
        assert!(!is_legacy("apple") && !is_legacy("kube_service_prod_default_web"));
    }

    #[test]
    fn tags_hold_the_uids_and_the_digest() {
        let digest_of = Digest { version: 1, hash: 7 };
        let web = owner("prod", "default", "web");
        let mut all = tags(balancer(&web), &web).to_vec();
        all.push(tag(DIGEST, digest_of));
        assert_eq!(clusters(&all).collect::<Vec<_>>(), ["c-1"]);
        assert_eq!(services(&all).collect::<Vec<_>>(), ["s-1"]);
        assert_eq!(digest(&all), Some(digest_of));
        assert_eq!(digest(&["quartet-config=nonsense".to_owned()]), None);
    }

    #[test]
    fn a_load_balancer_keeps_its_name() {
        let (web, old) = (owner("prod", "default", "web"), "kube_service_old_default_web");
        let (tagged, new) = ([old.to_owned(), "x".to_owned()], "kube_service_prod_default_web");
        for (name, tags, expect) in [
            (new, &[][..], new),
            (old, &[], old),
            ("by hand", &tagged, old),
            ("by hand", &[], new),
            // The names of another Service and of an old layout.
            ("kube_service_old_default_api", &["kube_service_prod_default_api".to_owned()], new),
            ("a0123456789abcdef0123456789abcde", &[], new),
        ] {
            assert_eq!(of_existing(name, tags, &web), expect, "{name}");
        }
    }

    #[test]
    fn a_name_says_with_which_load_balancer_it_was_made() {
        let own = "kube_service_prod_default_web";
        for (name, expect) in [
            ("pool_0_kube_service_prod_default_web", true),
            ("pool_12_kube_service_prod_default_web", true),
            ("pool_kube_service_prod_default_web_0", true),
            ("pool_0_kube_service_prod_def", false),
            ("pool_0_kube_service_prod_default_api", false),
            ("pool_x_kube_service_prod_default_web", false),
            ("pool_kube_service_prod_default_web", false),
            ("listener_0_kube_service_prod_default_web", false),
            ("pool_0_", false),
            ("pool__kube_service_prod_default_web", false),
            ("mine", false),
            ("", false),
        ] {
            assert_eq!(is_child("pool", name, ["other", own]), expect, "{name}");
        }
        let long = balancer(&owner(&"c".repeat(300), "n", "s"));
        assert!(is_child("pool", &child("pool", 3, &long), [long.as_str()]), "its end is cut off");
    }

    #[test]
    fn a_member_is_named_after_its_node() {
        for (name, expect) in [
            ("node-1", "node-1"),
            ("member_node-1_10.0.0.1_30080", "node-1"),
            ("member_x", "member_x"),
            ("", ""),
        ] {
            assert_eq!(node(name), expect);
        }
    }
}
