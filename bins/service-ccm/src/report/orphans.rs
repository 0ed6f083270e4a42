//! Logs load balancers without a Service, and load balancers of other clusters. Kubernetes does not have an object
//! for an event.

use std::collections::BTreeMap;

use ccm_cloud::{ClusterId, LoadBalancer, Title};

use super::{NAMES, ServiceReports};
use crate::machine::effect::TellOrphan;

impl ServiceReports {
    /// Makes a report about load balancers without a Service.
    pub(crate) fn tell_orphan(&self, what: TellOrphan, cluster: &ClusterId) {
        match what {
            TellOrphan::OfOthers(all) => {
                adoptable(&all);
                rebuilt(&all, cluster);
            }
            TellOrphan::Found(all) => self.orphans(&all),
            TellOrphan::Held { line, why } => self.orphans_held(&line, &why),
            TellOrphan::Failed { id, owner, why } => self.orphan_failed(&id, &owner, &why),
        }
    }

    /// Logs load balancers of this cluster without a Service.
    fn orphans(&self, orphans: &[LoadBalancer]) {
        for orphan in orphans {
            let owner = orphan.owner.as_ref().map(ToString::to_string).unwrap_or_default();
            if self.reports.memory().changed(&orphan.id, "orphan", &owner) {
                tracing::warn!(
                    load_balancer = &*orphan.id,
                    name = &*orphan.name,
                    owner = &*owner,
                    age_seconds = orphan.age.map(|age| age.as_secs()),
                    cost = orphan.cost.as_deref(),
                    "no Service asks for this load balancer of this cluster; the page /plan says what happens to it"
                );
            }
        }
    }

    /// Logs that load balancers without a Service are not deleted, and why.
    fn orphans_held(&self, line: &str, why: &str) {
        if self.reports.memory().changed("orphans", "held", why) {
            tracing::warn!("{line}");
        }
    }

    /// Logs that an attempt to delete a load balancer without a Service has failed.
    fn orphan_failed(&self, id: &str, owner: &str, why: &str) {
        if self.reports.memory().changed(id, "orphan-failed", why) {
            tracing::warn!(load_balancer = id, owner, "the load balancer stays: {why}");
        }
    }
}

/// Logs what other controllers have made for a cluster of this name.
fn adoptable(all: &[LoadBalancer]) {
    for balancer in all {
        let (Title::Adoptable { why }, Some(made_for)) = (&balancer.title, &balancer.owner) else {
            continue;
        };
        tracing::info!(
            load_balancer = &*balancer.id,
            service = %made_for,
            "found an adoptable load balancer: {why}"
        );
    }
}

/// Returns load balancers of other clusters with the name of this one, by the UID of the cluster.
fn namesakes<'a>(all: &'a [LoadBalancer], cluster: &ClusterId) -> BTreeMap<&'a str, Vec<&'a str>> {
    let mut by_uid: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for balancer in all.iter().filter(|one| one.title == Title::Foreign) {
        let Some(owner) = &balancer.owner else { continue };
        if owner.cluster.name == cluster.name && owner.cluster.uid != cluster.uid {
            by_uid.entry(&owner.cluster.uid).or_default().push(&balancer.id);
        }
    }
    by_uid
}

/// Logs load balancers of other clusters with the name of this one: of a neighbour, or of this
/// cluster before it was rebuilt.
fn rebuilt(all: &[LoadBalancer], cluster: &ClusterId) {
    for (uid, ids) in namesakes(all, cluster) {
        let first: Vec<&str> = ids.iter().take(NAMES).copied().collect();
        tracing::warn!(
            cluster_uid = uid,
            load_balancers = first.join(" "),
            "{} load balancers of a cluster named {} with another UID are not touched; if they are from before a rebuild of this cluster, adopt or delete them: docs/how-to/restore.md",
            ids.len(),
            cluster.name
        );
    }
}

#[cfg(test)]
mod tests {
    use ccm_cloud::Owner;

    use super::*;

    #[test]
    fn load_balancers_of_another_uid_are_told_by_cluster() {
        let named = |name: &str, uid: &str| ClusterId { name: name.into(), uid: uid.into() };
        let balancer = |id: &str, cluster: Option<ClusterId>, title: Title| {
            let owner = |cluster| Owner {
                cluster,
                uid: "u".into(),
                namespace: "default".into(),
                name: "web".into(),
            };
            LoadBalancer { title, ..LoadBalancer::new(id, "", cluster.map(owner)) }
        };
        let all = [
            balancer("a", Some(named("prod", "old")), Title::Foreign),
            balancer("b", Some(named("prod", "own")), Title::Ours),
            balancer("c", Some(named("other", "x")), Title::Foreign),
            balancer("d", None, Title::Foreign),
            balancer("e", Some(named("prod", "older")), Title::Foreign),
            balancer("f", Some(named("prod", "old")), Title::Foreign),
            balancer("g", Some(named("prod", "")), Title::Adoptable { why: "names".into() }),
        ];
        let expect = [("old", vec!["a", "f"]), ("older", vec!["e"])];
        assert_eq!(namesakes(&all, &named("prod", "own")), expect.into());
    }
}
