//! The cloud: routes, and instances with their networks.

use ccm_cloud::{
    AbsenceProof, CloudError, ErrorKind, Instance, Lookup, LookupResult, ProofMethod, ProviderId,
};
use ccm_objects::{Node, Shared as Name};
use ipnet::IpNet;

use super::{super::super::Event, Kind, Variant, servers::is_anothers, world::World};
use crate::networks::network;

impl World {
    /// Returns a new instance with a network that no other one has, or without.
    pub(super) fn new_instance(&mut self) -> Name {
        self.made += 1;
        let kind = match self.has_faults {
            true => {
                self.dice.one_of(&["other://m", "sim://elsewhere", "sim://m", "sim://m", "sim://m"])
            }
            false => "sim://m",
        };
        let id: Name = format!("{kind}{}", self.made).into();
        self.name_cidr(&id);
        id
    }

    pub(super) fn joins_instance(&mut self, name: &Name) -> Option<Name> {
        if self.kind != Kind::Cloud {
            return None;
        }
        // A node returns under its name with the instance that it had.
        let before = self.view.get(name).and_then(|node| node.provider_id.clone());
        Some(before.filter(|_| self.dice.one_in(2)).unwrap_or_else(|| self.new_instance()))
    }

    /// Gives the instance another network, or takes it away.
    pub(super) fn name_cidr(&mut self, id: &Name) {
        let given: Vec<IpNet> = match self.has_faults && self.dice.one_in(5) {
            true => Vec::new(),
            false => vec![self.free_cidr(id)],
        };
        self.instances.insert(Name::clone(id), given);
    }

    fn free_cidr(&mut self, id: &Name) -> IpNet {
        let others = self.instances.iter().filter(|(other, _)| *other != id);
        let mut taken: Vec<IpNet> = others.flat_map(|(_, cidrs)| cidrs.clone()).collect();
        if !self.has_faults {
            let shown = self.api.values().flat_map(|node| node.pod_cidrs.iter());
            taken.extend(shown.filter_map(|text| network(text)));
        }
        let free = (0..250).map(|third| format!("10.0.{third}.0/24").parse().unwrap());
        let free: Vec<IpNet> = free.filter(|cidr| !taken.contains(cidr)).take(3).collect();
        self.dice.one_of(&free)
    }

    pub(super) fn look_up(&mut self, asked: &Node) -> LookupResult {
        let id = asked.provider_id.clone().unwrap_or_else(|| "sim://none".into());
        if is_elsewhere(&id) {
            return Ok(Lookup::NotOurs("another region".to_owned()));
        }
        if self.has_faults {
            let kinds = [ErrorKind::Unavailable, ErrorKind::Forbidden, ErrorKind::Timeout];
            match self.dice.below(24) {
                0 | 1 => return Err(CloudError::new(self.dice.one_of(&kinds), "no")),
                2 => {
                    let (method, evidence) = (ProofMethod::ById, "404".to_owned());
                    return Ok(Lookup::Gone(AbsenceProof {
                        method,
                        evidence,
                        request_id: None,
                        kept: None,
                    }));
                }
                _ => {}
            }
        }
        let mut instance = Instance::new(ProviderId::parse(&id).unwrap(), asked.name.to_string());
        instance.pod_cidrs = self.instances.get(&id).cloned().unwrap_or_default();
        Ok(Lookup::Found(Box::new(instance)))
    }

    /// Changes something about the routes.
    pub(super) fn route(&mut self) {
        if self.kind == Kind::Cloud && self.dice.one_in(3) {
            let ids: Vec<Name> = self.instances.keys().cloned().collect();
            let seen = self.api.values().filter_map(|node| node.provider_id.clone());
            let ids: Vec<Name> = ids.into_iter().chain(seen).collect();
            if !ids.is_empty() {
                let id = self.dice.one_of(&ids);
                self.name_cidr(&id);
            }
        }
        if !self.has_routes {
            return;
        }
        match self.dice.below(10) {
            0 | 1 if self.listing.is_some() => self.tell_routes(),
            0 | 1 => self.list_routes(),
            2..5 => self.delete_route(),
            5 | 6 => self.make_route(),
            // Routes of others in a block come and go.
            7 if self.has_faults => {
                let cidr = format!("10.0.{}.128/26", self.dice.below(8)).parse().unwrap();
                if self.routes.remove(&cidr).is_none() {
                    self.routes.insert(cidr, "".into());
                }
            }
            _ => self.end_making(),
        }
    }

    /// Lists the present routes. Its answer may come late.
    pub(super) fn list_routes(&mut self) {
        let all = self.routes.keys().chain(self.making.keys());
        self.listing = Some((all.copied().collect(), self.now));
    }

    pub(super) fn tell_routes(&mut self) {
        let Some((mut destinations, read)) = self.listing.take() else { return };
        destinations.extend(self.making.keys());
        let read = if self.variant == Variant::StaleTable { self.now } else { read };
        if self.variant != Variant::UnheldRoutes {
            self.tell(Event::RoutesAre { destinations, read });
        }
    }

    /// Makes routes for the nodes that the leader sees.
    fn make_route(&mut self) {
        let shown = self.view.values().flat_map(|node| {
            let own = self.model.counted(node).into_iter();
            own.map(|cidr| (cidr, node.uid.clone()))
        });
        let new = |(cidr, _): &(IpNet, _)| {
            !self.routes.contains_key(cidr)
                && !self.making.contains_key(cidr)
                && !self.is_outside(*cidr)
        };
        let new: Vec<(IpNet, Box<str>)> = shown.filter(new).collect();
        self.making.extend(new);
    }

    fn is_outside(&self, cidr: IpNet) -> bool {
        let mut ranges = self.machine.fixed.config.ranges.iter();
        !ranges.any(|range| range.network.contains(&cidr))
    }

    pub(super) fn end_making(&mut self) {
        while let Some((cidr, uid)) = self.making.pop_first() {
            self.routes.entry(cidr).or_insert(uid);
        }
    }

    /// Deletes a route whose node the leader does not see, or that was asked about and does not
    /// exist.
    pub(super) fn delete_route(&mut self) {
        let shown: Vec<IpNet> =
            self.view.values().flat_map(|node| self.model.counted(node)).collect();
        let is_left = |cidr: &IpNet, uid: &str| !uid.is_empty() && !shown.contains(cidr);
        let left: Vec<IpNet> = self
            .routes
            .iter()
            .filter(|(cidr, uid)| is_left(cidr, uid))
            .map(|(cidr, _)| *cidr)
            .collect();
        if !left.is_empty() {
            let cidr = self.dice.one_of(&left);
            self.routes.remove(&cidr);
            if !self.making.contains_key(&cidr) {
                self.tell_gone(cidr);
            }
        }
        let awaited = self.machine.awaited();
        let is_gone =
            |cidr: &&IpNet| !self.routes.contains_key(*cidr) && !self.making.contains_key(*cidr);
        for cidr in awaited.iter().filter(is_gone).copied().collect::<Vec<_>>() {
            self.tell_gone(cidr);
        }
    }

    fn tell_gone(&mut self, cidr: IpNet) {
        if self.variant != Variant::UnheldRoutes {
            self.tell(Event::RouteGone(cidr));
        }
    }

    /// Gives each instance a network that no node shows.
    pub(super) fn name_all(&mut self) {
        for node in self.api.values().cloned().collect::<Vec<_>>() {
            if let Some(id) = node.provider_id.clone()
                && node.pod_cidrs.is_empty()
                && !is_anothers(&node)
            {
                self.name_cidr(&id);
            }
        }
    }
}

/// Returns true if the cloud says of the instance that it is not its own.
pub(super) fn is_elsewhere(id: &str) -> bool {
    id.starts_with("sim://elsewhere")
}
