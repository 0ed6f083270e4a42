//! The contents of the cloud, and the effect of a write on them.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use ccm_cloud::{CloudError, ErrorKind, IpFamily, Owner, Waiting};
use tokio::time::Instant;

use super::{BalancerSettings, Outcome, SimBalancer, State, Write, WriteKind};
use crate::faults::Trouble;

/// Load balancers, floating addresses, and the record of writes.
#[derive(Default)]
pub(super) struct Store {
    pub(super) settings: BalancerSettings,
    pub(super) balancers: BTreeMap<String, SimBalancer>,
    pub(super) floating: BTreeMap<IpAddr, Floating>,
    pub(super) writes: Vec<Write>,
    /// Requests that arrive later, the next one first.
    late: BTreeMap<Instant, Vec<Late>>,
    /// The latest term of each cluster, by its UID.
    terms: BTreeMap<String, u64>,
    /// How many objects were ever created, for IDs and addresses.
    created: u32,
}

/// A request that arrives later. Its answer is dropped.
pub(super) type Late = Box<dyn FnOnce(&mut Store, Instant) + Send>;

/// A floating address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Floating {
    /// The owner, or the last owner of a kept address.
    pub(super) owner: Owner,
    /// True if it has outlived its load balancer. Only a Service of the same name may ask for it.
    pub(super) is_kept: bool,
    /// True if a Service has asked for this address. The cloud then keeps it without its load balancer.
    pub(super) is_asked_for: bool,
    /// The ID of the load balancer that it leads to.
    pub(super) to: Option<String>,
}

/// The circumstances of a request.
#[derive(Clone, Debug)]
pub(super) struct Context {
    pub(super) now: Instant,
    pub(super) term: Option<u64>,
    pub(super) trouble: Option<Trouble>,
    /// True if a load balancer of this owner was found when the request began.
    pub(super) found: bool,
    /// True if the request is sent to the wrong project.
    pub(super) wrong_project: bool,
}

impl Store {
    /// Carries out everything that was due until now.
    pub(super) fn settle(&mut self, now: Instant) {
        while let Some(first) = self.late.first_entry().filter(|first| *first.key() <= now) {
            let (due, late) = first.remove_entry();
            for request in late {
                self.end_work(due);
                request(self, due);
            }
        }
        self.end_work(now);
    }

    /// Carries out a request when its time has come.
    pub(super) fn delay(&mut self, due: Instant, request: Late) {
        self.late.entry(due).or_default().push(request);
    }

    /// Ends the work whose time is over.
    fn end_work(&mut self, now: Instant) {
        let mut deleted = Vec::new();
        for (id, balancer) in &mut self.balancers {
            let State::Pending { what, until: Some(until), then } = &balancer.state else {
                continue;
            };
            if *until > now {
                continue;
            }
            balancer.state = match *then {
                Outcome::Done => State::Ready,
                Outcome::Fails(cure) => {
                    let why = format!("ERROR after {what}: no compute node could be reached");
                    State::Failed { why, cure }
                }
                Outcome::Deleted => {
                    deleted.push(id.clone());
                    State::Ready
                }
            };
        }
        for id in deleted {
            self.take(&id);
        }
    }

    /// Removes a load balancer. Its floating address remains.
    pub(super) fn take(&mut self, id: &str) -> Option<SimBalancer> {
        for floating in self.floating.values_mut() {
            floating.to.take_if(|to| to == id);
        }
        self.balancers.remove(id)
    }

    /// Returns the load balancers whose only owner this is, the oldest first.
    pub(super) fn owned<'a>(
        &'a self,
        owner: &'a Owner,
    ) -> impl Iterator<Item = &'a SimBalancer> + use<'a> {
        let mut existing: Vec<_> =
            self.balancers.values().filter(|balancer| balancer.is_of(owner)).collect();
        existing.sort_by_key(|balancer| balancer.created);
        existing.into_iter()
    }

    /// Returns the floating address that leads to a load balancer.
    pub(super) fn floating_of(&self, id: &str) -> Option<IpAddr> {
        let mut all = self.floating.iter();
        all.find_map(|(ip, floating)| (floating.to.as_deref() == Some(id)).then_some(*ip))
    }

    /// Refuses a former leader, if the cloud can.
    pub(super) fn fence(&mut self, owner: &Owner, term: Option<u64>) -> Result<(), CloudError> {
        let Some(term) = term.filter(|_| self.settings.fences) else { return Ok(()) };
        let latest = self.terms.entry(owner.cluster.uid.clone()).or_insert(term);
        if term < *latest {
            let why = format!("term {term} is over: a write of term {latest} has been seen");
            return Err(CloudError::new(ErrorKind::Stale, why).about("term"));
        }
        *latest = term;
        Ok(())
    }

    /// Records a write, and has the cloud work on it.
    pub(super) fn record(&mut self, id: &str, kind: WriteKind, line: String, context: &Context) {
        let times = self.settings.times;
        let (what, time) = match kind {
            WriteKind::Create => ("PENDING_CREATE", times.create),
            WriteKind::Configure => ("PENDING_UPDATE", times.configure),
            WriteKind::Members => ("PENDING_UPDATE of the members", times.members),
            WriteKind::Delete => ("PENDING_DELETE", times.delete),
        };
        let then = match (&context.trouble, kind) {
            (Some(Trouble::Break(cure)), _) => Outcome::Fails(*cure),
            (_, WriteKind::Delete) => Outcome::Deleted,
            _ => Outcome::Done,
        };
        let stuck = context.trouble == Some(Trouble::Stick);
        let until = (!stuck).then(|| context.now + time);
        self.writes.push(Write { id: id.to_owned(), kind, line, term: context.term });
        if let Some(balancer) = self.balancers.get_mut(id) {
            balancer.version += 1;
            balancer.state = State::Pending { what, until, then };
        }
        self.settle(context.now);
    }

    /// Returns the ID of the last write.
    pub(super) fn request_id(&self) -> String {
        format!("req-{}", self.writes.len())
    }

    /// Returns the thing to wait for: the cloud's work, or only the next call.
    pub(super) fn waiting(&self, id: &str) -> Waiting {
        let (what, check_after) = match self.balancers.get(id).map(|balancer| &balancer.state) {
            Some(State::Pending { what, .. }) => ((*what).to_owned(), self.settings.check_after),
            Some(State::Failed { why, .. }) => (why.clone(), Duration::ZERO),
            _ => ("more changes will follow".to_owned(), Duration::ZERO),
        };
        let (id, request_id) = (Some(id.to_owned()), Some(self.request_id()));
        Waiting { what, check_after, id, request_id, changed: false }
    }

    /// Returns the next number, for an ID.
    pub(super) fn number(&mut self) -> u32 {
        self.created += 1;
        self.created
    }

    /// Returns a new address of a load balancer: one of 10.240.0.0/12 or fd00:240::/96.
    pub(super) fn new_address(&mut self, family: IpFamily) -> IpAddr {
        let number = self.number();
        match family {
            IpFamily::V4 => {
                let base = u32::from(Ipv4Addr::new(10, 240, 0, 0));
                IpAddr::V4(Ipv4Addr::from(base | (number & 0xf_ffff)))
            }
            IpFamily::V6 => {
                let base = u128::from(Ipv6Addr::new(0xfd00, 0x240, 0, 0, 0, 0, 0, 0));
                IpAddr::V6(Ipv6Addr::from(base | u128::from(number)))
            }
        }
    }

    /// Returns a new floating address: one of 100.64.0.0/10.
    pub(super) fn new_floating(&mut self) -> IpAddr {
        let base = u32::from(Ipv4Addr::new(100, 64, 0, 0));
        IpAddr::V4(Ipv4Addr::from(base | (self.number() & 0x3f_ffff)))
    }
}
