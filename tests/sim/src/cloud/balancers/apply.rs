//! Applies changes.

use std::{mem, net::IpAddr};

use ccm_cloud::{Digest, FrontEnd, IpFamily, Wanted};

use super::{
    Applied, WriteKind,
    changes::{Change, created, same, wants_floating},
    describe::configured,
    store::{Context, Floating, Store},
};

impl Store {
    /// Makes the first of these changes, and returns the ID of the load balancer. The last change
    /// of the configuration also stores the digest.
    pub(super) fn make(
        &mut self,
        target: Option<String>,
        changes: &[Change],
        wanted: &Wanted,
        context: &Context,
    ) -> String {
        let id = target.unwrap_or_else(|| self.create(wanted));
        if let Some((first, rest)) = changes.split_first() {
            let last = first.configures() && !rest.iter().any(Change::configures);
            let digest = last.then_some(wanted.front_end.digest);
            self.apply(&id, first, digest, Some(&wanted.front_end), context);
        }
        id
    }

    fn create(&mut self, wanted: &Wanted) -> String {
        let front_end = &*wanted.front_end;
        let id = format!("lb-{:05}", self.number());
        let asked = front_end.address.filter(|_| !wants_floating(front_end));
        let mut addresses: Vec<IpAddr> = Vec::new();
        for family in &front_end.families {
            let asked = asked.filter(|address| IpFamily::from_address(*address) == *family);
            addresses.push(asked.unwrap_or_else(|| self.new_address(*family)));
        }
        let balancer = created(wanted, id.clone(), addresses, &self.settings);
        self.balancers.insert(id.clone(), balancer);
        id
    }

    /// Makes one change.
    pub(super) fn apply(
        &mut self,
        id: &str,
        change: &Change,
        digest: Option<Digest>,
        front_end: Option<&FrontEnd>,
        context: &Context,
    ) {
        match (change, front_end) {
            (Change::Release(address), _) => {
                self.release(*address, false);
            }
            (Change::Attach(asked), Some(front_end)) => self.attach(id, *asked, front_end),
            (Change::Addresses(families), _) => self.readdress(id, families),
            _ => self.change(id, change, front_end),
        }
        if change.configures() {
            let floating = self.floating_of(id);
            if let Some(balancer) = self.balancers.get_mut(id) {
                let configured = configured(balancer, floating);
                balancer.applied = digest.map(|digest| Applied { digest, configured });
            }
        }
        let kind = match change {
            Change::Create { .. } | Change::Repair(_) => WriteKind::Create,
            Change::Members { .. } => WriteKind::Members,
            _ => WriteKind::Configure,
        };
        self.record(id, kind, change.to_string(), context);
    }

    /// Changes the data that is stored with the load balancer itself.
    fn change(&mut self, id: &str, change: &Change, front_end: Option<&FrontEnd>) {
        let Some(balancer) = self.balancers.get_mut(id) else { return };
        let configuration = &mut balancer.configuration;
        match (change, front_end) {
            (Change::Listen(port), _) => {
                configuration.listeners.insert((port.protocol, port.port), port.clone());
            }
            (Change::Close(protocol, port), _) => {
                configuration.listeners.remove(&(*protocol, *port));
            }
            (Change::Options(_), Some(front_end)) => {
                configuration.source_ranges = front_end.source_ranges.clone();
                configuration.affinity = front_end.affinity;
                configuration.traffic = front_end.traffic;
                configuration.settings = front_end.settings.clone();
            }
            (Change::Adopt { .. }, Some(front_end)) => {
                balancer.made_for = None;
                balancer.owners = vec![front_end.owner.clone()];
            }
            (Change::Members { add, remove }, _) => {
                let gone = |it: &_| add.iter().chain(remove).any(|member| same(member, it));
                balancer.members.retain(|member| !gone(member));
                balancer.members.extend(add.iter().cloned());
            }
            _ => {}
        }
    }

    /// Attaches a floating address: the requested one, otherwise one that the owner has, otherwise
    /// a new one.
    fn attach(&mut self, id: &str, asked: Option<IpAddr>, front_end: &FrontEnd) {
        let owner = &front_end.owner;
        let address =
            asked.or_else(|| self.unattached(owner)).unwrap_or_else(|| self.new_floating());
        let is_asked_for =
            asked.is_some() || self.floating.get(&address).is_some_and(|it| it.is_asked_for);
        let (owner, to) = (owner.clone(), Some(id.to_owned()));
        self.floating.insert(address, Floating { owner, to, is_kept: false, is_asked_for });
    }

    /// Gives a load balancer addresses of these families, and keeps those that it has.
    fn readdress(&mut self, id: &str, families: &[IpFamily]) {
        let Some(balancer) = self.balancers.get_mut(id) else { return };
        let old = mem::take(&mut balancer.addresses);
        let mut addresses = Vec::new();
        for family in families {
            let same =
                old.iter().find(|address| IpFamily::from_address(**address) == *family).copied();
            addresses.push(same.unwrap_or_else(|| self.new_address(*family)));
        }
        if let Some(balancer) = self.balancers.get_mut(id) {
            balancer.addresses = addresses;
        }
    }
}
