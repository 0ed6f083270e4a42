//! The answers of the cloud.

use std::collections::BTreeSet;

use super::*;

fn route_of(new: &WantedRoute) -> Route {
    let address = new.addresses.iter().find_map(|one| one.address.parse().ok());
    Route::new(new.destination, RouteTarget::Address(address.expect("a node has an address")))
}

fn is_at(target: Option<&RouteTarget>, addresses: &BTreeSet<IpAddr>) -> bool {
    matches!(target, Some(RouteTarget::Address(ip)) if addresses.contains(ip))
}

impl World {
    fn fails(&mut self) -> bool {
        self.has_faults && self.dice.random_bool(0.1)
    }

    /// Makes a random call.
    pub(super) fn call(&mut self) {
        if self.calls.is_empty() {
            return;
        }
        let place = self.dice.random_range(0..self.calls.len());
        let event = match self.calls.remove(place) {
            Call::List => Event::Listed { answer: self.list(), traits: self.traits.clone() },
            Call::Ask { targets, witnesses } => self.ask(targets, witnesses),
            Call::LookUp(claims) => {
                let answers = claims.into_iter().map(|claim| {
                    let answer = self.look_up(&claim.node);
                    (claim, answer)
                });
                Event::LookedUp(answers.collect())
            }
            Call::Apply { batch, base, by } => self.sending(batch, base, by),
            Call::Send { batch, base } => self.send(batch, base),
        };
        self.tell(event);
    }

    fn list(&mut self) -> Result<RouteTable, CloudError> {
        if self.fails() {
            return Err(CloudError::new(ErrorKind::Unavailable, "no list"));
        }
        let routes = self.table.values().cloned().collect();
        let version = self.traits.compares_version.then(|| self.version.to_string());
        Ok(RouteTable { routes, version, ..RouteTable::default() })
    }

    fn ask(&mut self, targets: Vec<RouteTarget>, witnesses: Vec<RouteTarget>) -> Event {
        let believed = self.variant == Variant::BelievedCloud;
        let witnesses = if believed { Vec::new() } else { witnesses };
        let lies = self.has_faults && (believed || self.dice.random_bool(0.05));
        let all: Vec<RouteTarget> = targets.into_iter().chain(witnesses.clone()).collect();
        let answers = all.into_iter().map(|target| {
            let gone = || {
                let method = ProofMethod::ProvidersWord;
                let evidence = "gone".to_owned();
                TargetState::Gone(AbsenceProof { method, evidence, request_id: None })
            };
            let exists = is_at(Some(&target), &self.machines) && !lies;
            let answer = if exists { TargetState::Exists } else { gone() };
            (target, Ok(answer))
        });
        let answers = answers.collect();
        Event::Asked { answers, witnesses }
    }

    fn look_up(&mut self, node: &Node) -> LookupResult {
        if self.fails() {
            return Err(CloudError::new(ErrorKind::Unavailable, "no instance"));
        }
        let id = node.provider_id.as_deref().and_then(|id| ProviderId::parse(id).ok());
        let mut instance = Instance::new(id.expect("nodes have IDs"), node.name.to_string());
        let ips = node.addresses.iter().filter_map(Address::ip);
        instance.addresses = ips
            .map(|ip| NodeAddress::new(ccm_cloud::AddressKind::InternalIp, ip.to_string()))
            .collect();
        Ok(Lookup::Found(Box::new(instance)))
    }

    fn sending(&mut self, batch: Vec<Planned>, base: Option<String>, by: Basis) -> Event {
        let (nodes, traits) = (self.nodes.values().cloned().collect(), self.traits.clone());
        Event::Sending(Box::new(Sending { batch, base, by, approval: None, nodes, traits }))
    }

    pub(super) fn send(&mut self, batch: Vec<Planned>, base: Option<String>) -> Event {
        for planned in &batch {
            let destination = planned.change.destination();
            if !self.sent.insert(destination) {
                self.breaks("Overlap", format!("two changes of {destination} at a time"));
            }
            if planned.old().is_some() && self.nodes.is_empty() {
                self.breaks("NoNodes", planned.words());
            }
        }
        let is_old = base.is_some_and(|base| base != self.version.to_string());
        for planned in batch {
            self.sent.remove(&planned.change.destination());
            let answer = match is_old {
                true => Err(CloudError::new(ErrorKind::Busy, "the table has changed")),
                false if self.fails() => self.failure(&planned),
                false => Ok(self.carry_out(&planned)),
            };
            if self.variant == Variant::LostAnswers {
                continue;
            }
            let node = planned.node.as_ref().and_then(|name| self.nodes.get(name).cloned());
            let replaces = self.traits.replaces;
            let applied = Applied { planned, answer, node, replaces };
            self.tell(Event::Applied(Box::new(applied)));
        }
        Event::Ended
    }

    fn failure(&mut self, planned: &Planned) -> Result<AppliedChange, CloudError> {
        let kinds = [ErrorKind::Unavailable, ErrorKind::QuotaExceeded, ErrorKind::Timeout];
        let error = CloudError::new(kinds[self.dice.random_range(0..kinds.len())], "no");
        if self.dice.random() {
            return Err(error);
        }
        if self.dice.random() {
            self.carry_out(planned);
        }
        Err(error.that_may_be_done())
    }

    fn carry_out(&mut self, planned: &Planned) -> AppliedChange {
        let destination = planned.change.destination();
        if let Some(old) = planned.old() {
            self.goes(planned, old);
        }
        self.version += 1;
        let route = match &planned.change {
            RouteChange::Create(new) | RouteChange::Replace { new, .. } => {
                self.table.entry(destination).or_insert_with(|| route_of(new));
                if matches!(planned.change, RouteChange::Replace { .. }) {
                    self.table.insert(destination, route_of(new));
                }
                self.table.get(&destination).cloned()
            }
            RouteChange::Delete(old) => {
                if self.table.get(&destination).is_some_and(|there| there.target == old.target) {
                    self.table.remove(&destination);
                }
                None
            }
        };
        let version = self.traits.compares_version.then(|| self.version.to_string());
        AppliedChange { route, version }
    }

    /// A route goes.
    fn goes(&mut self, planned: &Planned, old: &Route) {
        if self.foreign.contains(old) {
            self.breaks("Foreign", planned.words());
        }
        let is_there = self.table.get(&old.destination).is_some_and(|one| one.target == old.target);
        // A route that leads to a machine is lost, unless its node was marked. A destination counts once.
        let target = old.target.as_ref();
        let is_marked = target.is_some_and(|target| self.marked.contains(target));
        if is_there && planned.node.is_none() && is_at(target, &self.machines) && !is_marked {
            self.lost.insert(old.destination, self.now);
        }
        let now = self.now;
        self.lost.retain(|_, at| now < *at + WINDOW - LATE);
        if self.lost.len() > LOSS {
            self.breaks("Loss", format!("{} routes in a window", self.lost.len()));
        }
    }
}
