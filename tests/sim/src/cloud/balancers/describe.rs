//! A load balancer as the provider shows it.

use std::{collections::BTreeMap, net::IpAddr};

use ccm_cloud::{
    CloudError, ClusterId, Depth, Digest, ErrorKind, Ingress, IngressAddress, IpMode, LoadBalancer,
    Note, Owner, Phase, Scope, Title,
};
use tokio::time::Instant;

use super::{FLOATING, NOTE, OWN_ID, SimBalancer, State, store::Store};

impl SimBalancer {
    /// Returns the ownership, as this cluster sees it.
    pub(super) fn title(&self, cluster: &ClusterId) -> Title {
        let ours = |owner: &Owner| owner.cluster.uid == cluster.uid;
        let is_named =
            |names: &Owner| names.cluster.uid.is_empty() && names.cluster.name == cluster.name;
        match self.owners.as_slice() {
            [owner] if ours(owner) => Title::Ours,
            [owner] if owner.cluster.name == cluster.name => Title::Adoptable {
                why: format!("made for a cluster of this name with UID {}", owner.cluster.uid),
            },
            [] if self
                .made_for
                .as_ref()
                .is_some_and(|names| names.cluster.name == cluster.name) =>
            {
                Title::Adoptable { why: "made for a cluster of this name".to_owned() }
            }
            owners if owners.len() > 1 && owners.iter().any(|one| ours(one) || is_named(one)) => {
                Title::Shared { others: u32::try_from(owners.len() - 1).unwrap_or(u32::MAX) }
            }
            _ => Title::Foreign,
        }
    }

    /// Returns its version as the provider shows it.
    pub(super) fn shown_version(&self) -> String {
        self.version.to_string()
    }

    /// Returns true if a list of this scope shows it.
    pub(super) fn is_in(&self, scope: &Scope, cluster: &ClusterId) -> bool {
        match scope {
            Scope::All => true,
            Scope::Cluster => self.owners.iter().any(|owner| owner.cluster.uid == cluster.uid),
            Scope::Ids(ids) => ids.contains(&self.id),
        }
    }
}

impl Store {
    /// Returns the load balancer with this ID, as this cluster sees it.
    pub(super) fn describe(
        &self,
        id: &str,
        cluster: &ClusterId,
        depth: Depth,
        now: Instant,
    ) -> Result<LoadBalancer, CloudError> {
        let Some(balancer) = self.balancers.get(id) else { return Err(missing(id)) };
        let floating = self.floating_of(id);
        let settings = &balancer.configuration.settings;
        let mut owners = balancer.owners.iter();
        let owner = owners
            .find(|owner| owner.cluster.uid == cluster.uid)
            .or(balancer.owners.first())
            .or(balancer.made_for.as_ref())
            .cloned();
        let deep = depth == Depth::Members;
        let phase = match &balancer.state {
            State::Ready => Phase::Ready,
            State::Pending { .. } => Phase::Pending(self.waiting(id)),
            State::Failed { why, cure } => Phase::Failed { why: why.clone(), cure: *cure },
        };
        let note = settings.get(NOTE).map(|message| Note {
            reason: "SimNote".to_owned(),
            message: message.clone(),
            warning: false,
        });
        let cost = if floating.is_some() { "with a floating address" } else { "internal" };
        let annotations = ["sim-status/load-balancer-id", OWN_ID]
            .map(|key| (key.to_owned(), Some(id.to_owned())));
        Ok(LoadBalancer {
            title: balancer.title(cluster),
            digest: self.digest(balancer, floating, deep),
            phase,
            version: Some(balancer.shown_version()),
            members: deep.then(|| balancer.members.as_slice().into()),
            pools: deep.then(|| balancer.pools()),
            ingress: self.ingress(balancer, floating),
            annotations: BTreeMap::from(annotations),
            notes: note.into_iter().collect(),
            age: Some(now.saturating_duration_since(balancer.created)),
            cost: Some(cost.to_owned()),
            ..LoadBalancer::new(id, &balancer.name, owner)
        })
    }

    /// Returns the stored digest. A deep look checks its content.
    fn digest(
        &self,
        balancer: &SimBalancer,
        floating: Option<IpAddr>,
        deep: bool,
    ) -> Option<Digest> {
        let applied = balancer.applied.as_ref().filter(|_| self.settings.traits.stores_digest)?;
        let holds = !deep || applied.configured == configured(balancer, floating);
        holds.then_some(applied.digest)
    }

    /// Returns where clients reach it. While it waits for its floating address they do not reach
    /// it.
    fn ingress(&self, balancer: &SimBalancer, floating: Option<IpAddr>) -> Vec<Ingress> {
        let floats = balancer.configuration.settings.get(FLOATING).is_some_and(|it| it == "true");
        let addresses = match (floats, floating) {
            (true, floating) => floating.into_iter().collect(),
            (false, _) => balancer.addresses.clone(),
        };
        let at = |address| Ingress { address, ip_mode: IpMode::Vip, failed_ports: Vec::new() };
        if self.settings.hostnames && !addresses.is_empty() {
            return vec![at(IngressAddress::Hostname(format!("{}.sim.example", balancer.id)))];
        }
        addresses.into_iter().map(|ip| at(IngressAddress::Ip(ip))).collect()
    }
}

/// Returns the current configuration, to compare it with the one that a digest was stored for.
pub(super) fn configured(balancer: &SimBalancer, floating: Option<IpAddr>) -> String {
    format!("{:?} {:?} {floating:?}", balancer.configuration, balancer.addresses)
}

/// Returns the cloud's 404.
pub(super) fn missing(id: &str) -> CloudError {
    CloudError::new(ErrorKind::NotFound, format!("load balancer {id} not found")).about(about(id))
}

/// Returns the subject of an error.
pub(super) fn about(id: &str) -> String {
    format!("load balancer {id}")
}
