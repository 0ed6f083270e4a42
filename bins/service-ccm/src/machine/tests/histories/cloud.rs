//! A cloud with load balancers, as simple as possible.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

use ccm_base::At;
use ccm_cloud::{
    AbsenceProof, ClusterId, Depth, Digest, Ingress, IngressAddress, IpMode, LoadBalancer,
    LoadBalancerList, Loss, Member, MemberChange, Members, MembersSet, NodeSelector, Owner, Phase,
    Pool, Progress, ProofMethod, Protocol, Title, Unwanted, Waiting, Wanted,
};

use super::labels::POOL;

/// A load balancer in the cloud.
#[derive(Clone, Debug)]
pub(super) struct Balancer {
    pub(super) owner: Owner,
    pub(super) digest: Option<Digest>,
    pub(super) members: BTreeMap<String, Member>,
    pub(super) ports: Vec<u16>,
    pub(super) version: u64,
    /// Until then the cloud works on it.
    pub(super) works_until: At,
    pub(super) made: At,
    number: u8,
    /// True if it is gone when the cloud has ended its work.
    is_going: bool,
    /// True if its pools have lost their members, which only a full call restores.
    pub(super) is_drained: bool,
    /// True if another client has removed its ports, or its creation broke off, which a full read
    /// shows.
    pub(super) is_bare: bool,
    pub(super) is_partial: bool,
    /// True if it belongs to another cluster.
    pub(super) is_foreign: bool,
}

/// The load balancers by ID.
#[derive(Default)]
pub(super) struct Cloud {
    pub(super) balancers: BTreeMap<String, Balancer>,
    /// The load balancers that it does not show.
    hidden: BTreeMap<String, Balancer>,
    /// The owners of those that it has shown again.
    returned: BTreeSet<String>,
    made: u8,
    versions: u64,
    /// How long the cloud works on a change.
    pub(super) takes: Duration,
    /// The nodes that it selects where a Service does not choose.
    pub(super) selector: NodeSelector,
    /// True if calls do not see or change the members.
    pub(super) is_blind: bool,
}

impl Balancer {
    pub(super) fn address(&self) -> IpAddr {
        [192, 0, 2, self.number].into()
    }

    fn show(&self, id: &str, depth: Depth, now: At) -> LoadBalancer {
        let mut shown = LoadBalancer::new(id, id, Some(self.owner.clone()));
        shown.digest = self.digest;
        shown.version = Some(self.version.to_string());
        shown.age = Some(now.since(self.made));
        shown.ingress = vec![Ingress {
            address: IngressAddress::Ip(self.address()),
            ip_mode: IpMode::Vip,
            failed_ports: Vec::new(),
        }];
        if now < self.works_until {
            shown.phase = Phase::Pending(self.waiting(id, now, false));
        }
        if depth == Depth::Members {
            shown.members = Some(self.members.values().cloned().collect());
            shown.pools = Some(self.pools());
            shown.digest = self.digest.filter(|_| !self.is_bare && !self.is_partial);
        }
        shown
    }

    fn pools(&self) -> Vec<Pool> {
        let members = if self.is_drained { 0 } else { self.members.len() };
        let protocol = Protocol::Tcp;
        let pool = |port: &u16| Pool { protocol, port: *port, members, why_empty: None };
        self.ports.iter().map(pool).collect()
    }

    fn waiting(&self, id: &str, now: At, changed: bool) -> Waiting {
        Waiting {
            what: "it is PENDING_UPDATE".to_owned(),
            check_after: self.works_until.since(now).max(Duration::from_secs(1)),
            id: Some(id.to_owned()),
            request_id: None,
            changed,
        }
    }

    /// Changes the members as a provider does. Returns true if any has changed.
    /// One whose labels it does not select leaves, but not the last one.
    fn change(&mut self, change: &Members, by: &NodeSelector) -> bool {
        let before = self.members.clone();
        for member in change.present.iter() {
            if by.matches(&member.labels) {
                self.members.insert(member.node.clone(), member.clone());
            }
        }
        for member in change.present.iter().filter(|member| !by.matches(&member.labels)) {
            if self.members.len() > 1 {
                self.members.remove(&member.node);
            }
        }
        for member in change.absent.iter() {
            if by.is_empty() || self.members.len() > 1 {
                self.members.remove(&member.node);
            }
        }
        before != self.members
    }
}

impl Cloud {
    /// Removes what the cloud has ended to delete.
    pub(super) fn work(&mut self, now: At) {
        self.balancers.retain(|_, one| !one.is_going || now < one.works_until);
    }

    fn version(&mut self) -> u64 {
        self.versions += 1;
        self.versions
    }

    /// Adds a load balancer of another cluster for a Service of this name.
    pub(super) fn add_foreign(&mut self, name: &str, now: At) {
        self.made += 1;
        let owner = Owner {
            cluster: ClusterId { name: "c".to_owned(), uid: "uid-theirs".to_owned() },
            uid: format!("uid-of-{name}"),
            namespace: "shop".to_owned(),
            name: name.to_owned(),
        };
        let one = Balancer {
            owner,
            digest: None,
            members: BTreeMap::new(),
            ports: Vec::new(),
            version: self.version(),
            works_until: now,
            made: now,
            number: self.made,
            is_going: false,
            is_drained: false,
            is_bare: false,
            is_partial: false,
            is_foreign: true,
        };
        self.balancers.insert(format!("theirs-{name}"), one);
    }

    /// Returns the load balancers of all clusters.
    pub(super) fn list_all(&self, now: At) -> Vec<LoadBalancer> {
        let show = |(id, one): (&String, &Balancer)| {
            let shown = one.show(id, Depth::Summary, now);
            let title = if one.is_foreign { Title::Foreign } else { Title::Ours };
            LoadBalancer { title, ..shown }
        };
        self.balancers.iter().map(show).collect()
    }

    /// Returns the IDs of the load balancers of this owner, the oldest first.
    pub(super) fn of(&self, uid: &str) -> Vec<String> {
        let own = self.balancers.iter().filter(|(_, one)| one.owner.uid == uid);
        let mut own: Vec<_> = own.map(|(id, one)| (one.made, id.clone())).collect();
        own.sort();
        own.into_iter().map(|(_, id)| id).collect()
    }

    /// Returns the IDs of the load balancers of this cluster, and the UIDs of their owners.
    pub(super) fn owners(&self) -> impl Iterator<Item = (&String, &str)> {
        let ours = self.balancers.iter().filter(|(_, one)| !one.is_foreign);
        ours.map(|(id, one)| (id, &*one.owner.uid))
    }

    /// Returns all load balancers of this cluster, or those with these IDs.
    pub(super) fn list(&self, ids: Option<&[String]>, depth: Depth, now: At) -> LoadBalancerList {
        let wanted = |id: &String| ids.is_none_or(|ids| ids.contains(id));
        let all = self.balancers.iter().filter(|(id, one)| wanted(id) && !one.is_foreign);
        let load_balancers = all.map(|(id, one)| one.show(id, depth, now)).collect();
        LoadBalancerList { load_balancers, ..LoadBalancerList::default() }
    }

    pub(super) fn ensure(&mut self, wanted: &Wanted, now: At) -> Progress<LoadBalancer> {
        let front_end = &wanted.front_end;
        let owner = front_end.owner.clone();
        let own = self.of(&owner.uid);
        let known = wanted.known.clone().filter(|id| own.contains(id));
        let Some(id) = known.or_else(|| own.into_iter().next()) else {
            if wanted.known.is_some() && !wanted.may_replace {
                let why = "it does not exist".to_owned();
                return Progress::Lost(Loss { why, is_gone: true });
            }
            return self.create(wanted, owner, now);
        };
        let by = self.selector_of(&front_end.settings);
        let (version, takes, is_blind) = (self.version(), self.takes, self.is_blind);
        let Some(one) = self.balancers.get_mut(&id) else { unreachable!("{id}") };
        if now < one.works_until {
            return Progress::InProgress(one.waiting(&id, now, false));
        }
        let ports: Vec<u16> = front_end.ports.iter().map(|port| port.port).collect();
        let is_whole = one.ports == ports && !one.is_drained;
        let is_same = one.digest == Some(front_end.digest) && is_whole;
        (one.is_drained, one.is_bare, one.is_partial) = (false, false, false);
        let has_changed = !is_blind && one.change(&wanted.members, &by);
        if is_same && !has_changed {
            return Progress::Done(one.show(&id, Depth::Members, now));
        }
        (one.digest, one.ports, one.version) = (Some(front_end.digest), ports, version);
        if takes.is_zero() {
            return Progress::Done(one.show(&id, Depth::Members, now));
        }
        one.works_until = now + takes;
        Progress::InProgress(one.waiting(&id, now, true))
    }

    fn selector_of(&self, settings: &BTreeMap<String, String>) -> NodeSelector {
        settings.get(POOL).map_or_else(|| self.selector.clone(), |pool| NodeSelector::parse(pool))
    }

    fn create(&mut self, wanted: &Wanted, owner: Owner, now: At) -> Progress<LoadBalancer> {
        self.made = self.made.wrapping_add(1);
        let (id, version) = (format!("lb-{}", self.made), self.version());
        let front_end = &wanted.front_end;
        let by = self.selector_of(&front_end.settings);
        let present = wanted.members.present.iter().filter(|one| by.matches(&one.labels));
        let one = Balancer {
            owner,
            digest: Some(front_end.digest),
            members: present.map(|member| (member.node.clone(), member.clone())).collect(),
            ports: front_end.ports.iter().map(|port| port.port).collect(),
            version,
            works_until: now + self.takes,
            made: now,
            number: self.made,
            is_going: false,
            is_drained: false,
            is_bare: false,
            is_partial: false,
            is_foreign: false,
        };
        let progress = match self.takes.is_zero() {
            true => Progress::Done(one.show(&id, Depth::Members, now)),
            false => Progress::InProgress(one.waiting(&id, now, true)),
        };
        self.balancers.insert(id, one);
        progress
    }

    pub(super) fn set_members(
        &mut self,
        change: &MemberChange,
        now: At,
    ) -> Option<Progress<MembersSet>> {
        let version = self.version();
        let by = self.selector_of(&change.settings);
        let is_blind = self.is_blind;
        let one = self.balancers.get_mut(&change.id).filter(|one| one.owner.is(&change.owner))?;
        if is_blind {
            return Some(Progress::NotSeen("no member shows its port".to_owned()));
        }
        if now < one.works_until {
            return Some(Progress::InProgress(one.waiting(&change.id, now, false)));
        }
        let changed = one.change(&change.members, &by);
        if changed {
            one.version = version;
        }
        let (version, pools) = (Some(one.version.to_string()), Some(one.pools()));
        Some(Progress::Done(MembersSet { version, changed, pools }))
    }

    pub(super) fn delete(&mut self, unwanted: &Unwanted, now: At) -> Progress<AbsenceProof> {
        let own = self.of(&unwanted.owner.uid);
        let ids = match (&unwanted.known, unwanted.duplicate) {
            (Some(id), true) => own.into_iter().filter(|own| own == id).collect(),
            _ => own,
        };
        for id in ids {
            let works = self.balancers.get(&id).filter(|one| now < one.works_until);
            if let Some(one) = works {
                return Progress::InProgress(one.waiting(&id, now, false));
            }
            if let Some(one) = self.balancers.get_mut(&id).filter(|_| !self.takes.is_zero()) {
                (one.is_going, one.works_until) = (true, now + self.takes);
                return Progress::InProgress(one.waiting(&id, now, true));
            }
            self.balancers.remove(&id);
        }
        Progress::Done(AbsenceProof {
            method: ProofMethod::ById,
            evidence: "404".to_owned(),
            request_id: None,
            kept: None,
        })
    }

    /// Leaves the load balancer of this owner with its digest, and without its ports.
    pub(super) fn break_off(&mut self, uid: &str) {
        for one in self.balancers.values_mut().filter(|one| one.owner.uid == uid) {
            one.ports.clear();
            one.is_partial = true;
        }
    }

    /// Makes a second load balancer of this owner, as another client.
    pub(super) fn duplicate(&mut self, id: &str, now: At) {
        let Some(one) = self.balancers.get(id).cloned() else { return };
        self.made = self.made.wrapping_add(1);
        let (number, version) = (self.made, self.version());
        let id = format!("lb-{number}");
        self.balancers.insert(id, Balancer { number, version, made: now, ..one });
    }

    /// Adds a load balancer like this one, whose Service is gone.
    pub(super) fn abandon(&mut self, id: &str, now: At) {
        self.duplicate(id, now);
        let number = self.made;
        if let Some(one) = self.balancers.get_mut(&format!("lb-{number}")) {
            one.owner.uid = format!("uid-gone-{number}");
            one.owner.name = format!("gone-{number}");
        }
    }

    /// Removes the ports of a load balancer as another client does; the digest stays.
    pub(super) fn take_ports(&mut self, id: &str) {
        let version = self.version();
        if let Some(one) = self.balancers.get_mut(id) {
            (one.version, one.is_bare) = (version, true);
            one.ports.clear();
        }
    }

    /// Hides all load balancers of the cloud.
    pub(super) fn hide(&mut self) {
        self.hidden.append(&mut self.balancers);
    }

    /// Shows them again. `doubles`: also those whose owner has another one by now. Returns true if
    /// there is one.
    pub(super) fn bring_back(&mut self, doubles: bool) -> bool {
        let mut hidden = std::mem::take(&mut self.hidden);
        let has_other = |one: &Balancer| !one.is_foreign && !self.of(&one.owner.uid).is_empty();
        let is_double = hidden.values().any(has_other);
        hidden.retain(|_, one| doubles || !has_other(one));
        self.returned.extend(hidden.values().map(|one| one.owner.uid.clone()));
        self.balancers.append(&mut hidden);
        is_double && doubles
    }

    /// Returns true if it shows a load balancer of this owner again after it said that there is
    /// none.
    pub(super) fn has_lied(&self, uid: &str) -> bool {
        self.returned.contains(uid)
    }

    /// Returns true if it has a load balancer of this owner that it does not show.
    pub(super) fn hides(&self, uid: &str) -> bool {
        self.hidden.values().any(|one| one.owner.uid == uid)
    }

    /// Changes a load balancer as another client does.
    pub(super) fn spoil(&mut self, id: &str) {
        let version = self.version();
        if let Some(one) = self.balancers.get_mut(id) {
            (one.version, one.digest) = (version, None);
            if one.members.len() > 1 {
                one.members.pop_first();
            }
        }
    }
}
