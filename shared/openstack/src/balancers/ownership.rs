//! Finds the owner of a load balancer. Pure.

use std::collections::BTreeSet;

use ccm_base::message::{LONGEST_LINE, one_line};
use ccm_cloud::{CloudError, ClusterId, ErrorKind, Owner, Title};
use ccm_openstack_client::lbaas::BalancerRow;

use super::{balancer_error, names};

/// Returns the recorded owner and the title of a load balancer, for a cluster.
///
/// The tags with the UIDs decide. Without them a load balancer is adoptable if name and description
/// say that it was made for a Service of a cluster of this name. With the UID of another cluster it
/// belongs to that cluster: two clusters of one project may have the same name. The cluster may
/// also be this one before it was rebuilt, but nothing shows that.
pub fn owner_and_title(row: &BalancerRow, cluster: &ClusterId) -> (Option<Owner>, Title) {
    let description = row.description.as_deref().unwrap_or_default();
    let made_for = names::named(&row.name, &cluster.name).or_else(|| {
        let is_legacy = names::is_legacy(&row.name);
        names::described(description, &cluster.name).filter(|_| is_legacy)
    });
    let clusters: BTreeSet<&str> = names::clusters(&row.tags).collect();
    let services: BTreeSet<&str> = names::services(&row.tags).collect();
    let sharing: BTreeSet<&String> =
        row.tags.iter().filter(|tag| tag.starts_with(names::PREFIX)).collect();
    let others = sharing.len().max(services.len()).saturating_sub(1);
    let owner = |cluster_uid: &str, uid: &str| {
        let (namespace, name) =
            made_for.or_else(|| names::service(description)).unwrap_or_default();
        Owner {
            cluster: ClusterId { uid: cluster_uid.to_owned(), ..cluster.clone() },
            uid: uid.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    };
    let shared = || Title::Shared { others: u32::try_from(others).unwrap_or(u32::MAX) };
    if clusters.contains(&*cluster.uid) {
        let owner = services.first().map(|uid| owner(&cluster.uid, uid));
        return match owner {
            Some(owner) if others == 0 && clusters.len() == 1 => (Some(owner), Title::Ours),
            owner => (owner, shared()),
        };
    }
    if let (Some(cluster), Some(service), true) =
        (clusters.first(), services.first(), made_for.is_some() && others == 0)
    {
        return (Some(owner(cluster, service)), Title::Foreign);
    }
    if !clusters.is_empty() || !services.is_empty() || made_for.is_none() {
        return (None, Title::Foreign);
    }
    let is_described = names::described(description, &cluster.name) == made_for;
    match is_described {
        _ if others > 0 => (Some(owner("", "")), shared()),
        true => {
            let why = format!(
                "its name and description come from openstack-cloud-controller-manager in a cluster named {}",
                cluster.name
            );
            (Some(owner("", "")), Title::Adoptable { why })
        }
        false => (None, Title::Foreign),
    }
}

/// Returns true if it is this owner's alone.
pub fn is_ours(row: &BalancerRow, owner: &Owner) -> bool {
    let (recorded, title) = owner_and_title(row, &owner.cluster);
    title == Title::Ours && recorded.is_some_and(|recorded| recorded.is(owner))
}

/// Returns true if another controller made it for this Service.
pub fn is_adoptable(row: &BalancerRow, owner: &Owner) -> bool {
    let (recorded, title) = owner_and_title(row, &owner.cluster);
    let is_named =
        |made_for: Owner| (&made_for.namespace, &made_for.name) == (&owner.namespace, &owner.name);
    matches!(title, Title::Adoptable { .. }) && recorded.is_some_and(is_named)
}

/// Returns the owner in words, for an error: one line, even if its tags or its name have line breaks.
pub fn in_words(row: &BalancerRow, cluster: &ClusterId) -> String {
    let (recorded, title) = owner_and_title(row, cluster);
    let words = match (title, recorded) {
        (Title::Ours, Some(owner)) => format!("it belongs to Service {owner}"),
        (Title::Adoptable { .. }, Some(made_for)) => {
            format!("it was made for Service {made_for} by another controller, and is not adopted")
        }
        (Title::Shared { others }, _) => format!(
            "{} Services share it, which is not managed yet; it stays as it is until its tags name \
             one Service alone",
            others + 1
        ),
        (_, Some(owner)) => {
            let [cluster, service] = names::owner_tags(&owner);
            format!(
                "it belongs to Service {owner} of another cluster of this name; if that cluster \
                 does not exist any more, remove the tags {cluster} and {service} from the load \
                 balancer, and it can be adopted"
            )
        }
        _ => "its tags do not say that it belongs to this cluster".to_owned(),
    };
    one_line(&words, LONGEST_LINE)
}

/// Returns the error about a load balancer that is not this owner's alone.
pub fn not_ours(row: &BalancerRow, owner: &Owner) -> CloudError {
    let whose = in_words(row, &owner.cluster);
    let what = format!("load balancer {} is not Service {owner}'s: {whose}", row.id);
    balancer_error(ErrorKind::Conflict, &row.id, what)
}

/// Fails if a load balancer is not this owner's alone.
pub fn check(row: &BalancerRow, owner: &Owner) -> Result<(), CloudError> {
    if is_ours(row, owner) { Ok(()) } else { Err(not_ours(row, owner)) }
}

/// Returns the tags of a load balancer after its adoption: those that it has, and the owner's.
pub fn adopted(row_tags: &[String], owner: &Owner) -> Vec<String> {
    let mut tags: Vec<String> = row_tags
        .iter()
        .filter(|tag| !tag.is_empty() && !names::is_owner_tag(tag))
        .cloned()
        .collect();
    tags.extend(
        names::tags(names::balancer(owner), owner)
            .into_iter()
            .filter(|tag| !row_tags.contains(tag)),
    );
    tags
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cluster() -> ClusterId {
        ClusterId { name: "prod".to_owned(), uid: "c-1".to_owned() }
    }

    fn owner(uid: &str, name: &str) -> Owner {
        let (namespace, name) = ("default".to_owned(), name.to_owned());
        Owner { cluster: cluster(), uid: uid.to_owned(), namespace, name }
    }

    fn row(name: &str, description: &str, tags: &[&str]) -> BalancerRow {
        let row = json!({
            "id": "lb", "name": name, "description": description, "tags": tags,
            "provisioning_status": "ACTIVE",
        });
        serde_json::from_value(row).unwrap()
    }

    #[test]
    fn uids_decide_and_names_only_make_adoptable() {
        const NAME: &str = "kube_service_prod_default_web";
        const TEXT: &str = "Kubernetes external service default/web from cluster prod";
        let (ours, theirs) = ("kubernetes-cluster-id=c-1", "kubernetes-cluster-id=c-2");
        let (web, api) = ("kubernetes-service-uid=web", "kubernetes-service-uid=api");
        let other = "kube_service_prod_default_api";
        let made_for =
            Owner { cluster: ClusterId { uid: String::new(), ..cluster() }, ..owner("", "web") };
        let full = Some(owner("web", "web"));
        // A cluster of this name with another UID is this cluster before it was rebuilt, or another
        // cluster.
        let other_uid = ClusterId { uid: "c-2".to_owned(), ..cluster() };
        let before = Some(Owner { cluster: other_uid, ..owner("web", "web") });
        let shared = |others| Title::Shared { others };
        for (row, owner, expect) in [
            (row(NAME, TEXT, &[NAME, ours, web]), full.clone(), Some(Title::Ours)),
            (row("renamed", TEXT, &[ours, web]), full.clone(), Some(Title::Ours)),
            (row(NAME, TEXT, &[NAME, theirs, web]), before.clone(), Some(Title::Foreign)),
            (row("mine", TEXT, &[theirs, web]), None, Some(Title::Foreign)),
            (row(NAME, TEXT, &[NAME, web]), None, Some(Title::Foreign)),
            (row(NAME, TEXT, &[NAME]), Some(made_for.clone()), None),
            (row(NAME, TEXT, &[]), Some(made_for.clone()), None),
            (row("a0123456789abcdef0123456789abcde", TEXT, &[]), Some(made_for.clone()), None),
            (row(NAME, "my own", &[NAME]), None, Some(Title::Foreign)),
            (row("by hand", TEXT, &[]), None, Some(Title::Foreign)),
            (row(NAME, TEXT, &[NAME, other]), Some(made_for), Some(shared(1))),
            (row(NAME, TEXT, &[NAME, other, ours, web]), full, Some(shared(1))),
            (row(NAME, TEXT, &[NAME, ours, theirs, web, api]), None, Some(shared(1))),
        ] {
            let (recorded, title) = owner_and_title(&row, &cluster());
            match expect {
                Some(expect) => assert_eq!(title, expect, "{row:?}"),
                None => assert!(matches!(title, Title::Adoptable { .. }), "{title:?} {row:?}"),
            }
            if owner.is_some() || title == Title::Foreign {
                assert_eq!(recorded, owner, "{row:?}");
            }
        }
    }

    #[test]
    fn an_owner_in_words_is_one_line() {
        let name = "kube_service_prod_default_web";
        let tags = ["kubernetes-cluster-id=c\t-\n2", "kubernetes-service-uid=u\u{85}"];
        let words = in_words(&row(name, "", &tags), &cluster());
        assert!(words.contains("of another cluster") && words.contains("kubernetes-cluster-id=c"));
        assert!(!words.contains(char::is_control), "{words:?}");
    }

    #[test]
    fn only_the_service_that_it_was_made_for_adopts_it() {
        let name = "kube_service_prod_default_web";
        let text = "Kubernetes external service default/web from cluster prod";
        let row = row(name, text, &[name]);
        assert!(is_adoptable(&row, &owner("any", "web")) && !is_ours(&row, &owner("any", "web")));
        assert!(!is_adoptable(&row, &owner("any", "api")));
    }
}
