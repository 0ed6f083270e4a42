use ccm_cloud::{ClusterId, Owner};

use super::*;

#[test]
fn only_load_balancers_of_this_cluster_count() {
    let of = |id: &str, cluster: &str, title: Title| {
        let cluster = ClusterId { name: "c".to_owned(), uid: cluster.to_owned() };
        let (uid, namespace, name) = ("uid-1".to_owned(), "default".to_owned(), "web".to_owned());
        let owner = Owner { cluster, uid, namespace, name };
        LoadBalancer { title, ..LoadBalancer::new(id, "", Some(owner)) }
    };
    let why = "its name".to_owned();
    let all = vec![
        of("ours", "own", Title::Ours),
        of("other", "another", Title::Ours),
        of("adoptable", "own", Title::Adoptable { why }),
        of("foreign", "own", Title::Foreign),
        LoadBalancer::new("without-owner", "", None),
    ];
    let found = by_owner(all, "own");
    let ids: Vec<&str> = found["uid-1"].iter().map(|one| one.id.as_str()).collect();
    assert_eq!((found.len(), ids), (1, vec!["ours"]));
}
