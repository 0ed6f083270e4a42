//! The memory of service-ccm, and the events that change it: pure.
//!
//! Only events change it. `translate` turns objects, lists and answers into events, and `perform`
//! turns effects into requests.
//!
//! | module | what it holds |
//! |---|---|
//! | `event`, `effect` | what the machine is told, and what follows |
//! | `balancers`, `entry` | the memory of all load balancers, and of one |
//! | `services`, `reading` | changes of Services and of what they depend on; the parts of them that are read |
//! | `nodes` | the nodes that load balancers should have |
//! | `due` | a Service is due: what is done next |
//! | `planned`, `page` | the plan of a Service; how the page `/plan` shows it |
//! | `last_plan` | what the last plan of a Service leaves for its explanation and for metrics |
//! | `rooms`, `unclaimed` | the room in namespaces; finalizers that no controller removes |
//! | `asks`, `answers`, `answered` | calls: the questions; what follows from answers for all, and for one |
//! | `writes` | the API server answers writes: what follows |
//! | `audits`, `adoptable`, `listed` | lists, the load balancers of others, and what a list says about one |
//! | `polls`, `polled` | polls, and what one says about a load balancer |
//! | `orphans` | load balancers without a Service |
//! | `left`, `note` | the note to the next leader, and when it is left |
//! | `explain` | what the page `/explain` says about one Service or load balancer |
//! | `counts` | what metrics and `/readyz?verbose` show |
//! | `recorded` | which Service an event or effect is about |

mod adoptable;
mod answered;
mod answers;
mod asks;
mod audits;
mod balancers;
mod counts;
mod due;
pub(crate) mod effect;
mod entry;
pub(crate) mod event;
mod explain;
mod last_plan;
pub(crate) mod left;
mod listed;
mod nodes;
mod note;
mod orphans;
mod page;
mod planned;
mod polled;
mod polls;
mod reading;
mod recorded;
mod rooms;
mod services;
mod unclaimed;
pub(crate) mod writes;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use ccm_base::{At, Backoff};
use ccm_cloud::{CloudError, ClusterId, ErrorKind, LoadBalancerTraits};
use ccm_controller::{brake::approval::SetApproval, machine};
use serde::{Deserialize, Serialize};

pub(crate) use self::counts::Numbers;
use self::{
    audits::Audits,
    balancers::Balancers,
    effect::{Effect, Task},
    event::{Event, Offer, Parameters},
    nodes::Nodes,
    note::NoteMemory,
    orphans::LastDecision,
    unclaimed::Unclaimed,
};
use crate::plan::{hangs::Hangs, losses::Losses, orphans::Orphans, shown::InUse};

/// The back-off after failures: upstream's.
pub(crate) const RETRY: Backoff =
    Backoff { first: Duration::from_secs(5), longest: Duration::from_mins(5) };

/// The memory.
#[derive(Serialize, Deserialize)]
pub(crate) struct Machine {
    cluster: ClusterId,
    /// True if this process only observes.
    is_observing: bool,
    parameters: Parameters,
    /// The offer of the provider, and the traits of its load balancers; default traits while the offer is not known.
    offer: Result<Arc<Offer>, CloudError>,
    traits: Arc<LoadBalancerTraits>,
    /// See [`Inputs::revision`](crate::plan::Inputs::revision).
    revision: u64,
    /// How often the settings and the provider have changed. A Service that was read before is read again.
    changes: u64,
    /// True if this replica leads, so that Services are queued.
    leads: bool,
    /// The sets that the Lease approves: for members that leave, and for load balancers that are
    /// replaced.
    approved: [Option<SetApproval>; 2],
    balancers: Balancers,
    nodes: Nodes,
    unclaimed: Unclaimed,
    hangs: Hangs,
    losses: Losses,
    orphans: Orphans,
    last_decision: LastDecision,
    audits: Audits,
    note: NoteMemory,
    /// No poll begins before this time.
    polls_from: At,
    /// The addresses that the cluster itself uses.
    in_use: InUse,
    /// The annotations that the provider has written although its traits do not name them.
    learnt: BTreeSet<String>,
}

impl machine::Machine for Machine {
    type Event = Event;
    type Effect = Effect;

    fn apply(&mut self, event: Event, now: At) -> Vec<Effect> {
        match event {
            Event::Settings { settings, services } => self.settings_changed(*settings, &services),
            Event::Offered { offer, has_changed } => self.offered(*offer, has_changed),
            Event::ApiServer(addresses) => {
                self.in_use.set_api_server(addresses);
                Vec::new()
            }
            Event::TermBegins(left) => self.begin(*left, now),
            Event::QueueOpens => {
                self.leads = true;
                Vec::new()
            }
            Event::Services(services) => Self::services_are(&services),
            Event::Approved(approved) => {
                self.approved = approved;
                self.approved()
            }
            Event::Service(changed) => self.service_changed(&changed),
            Event::Node(changed) => self.node_changed(&changed, now),
            Event::Nodes(seen) => self.nodes_seen(seen, now),
            Event::Labels { selector, nodes } => {
                self.add_labels(&selector, &nodes);
                Vec::new()
            }
            Event::Due(due) => self.due(&due, now),
            Event::Written(written) => self.written(&written, now),
            Event::Answered(answered) => self.record_answer(answered, now),
            Event::SlowLane { begins } => {
                self.hangs.slow_lane(begins, now);
                Vec::new()
            }
            Event::NoList(services) => self.no_list(&services, now),
            Event::Listed(listed) => self.listed(*listed, now),
            Event::NotListed { error, services } => self.not_listed(error, &services),
            Event::Instance { is_shown } => self.instance_seen(is_shown, now),
            Event::Read(polled) => self.read(polled, now),
            Event::PollDue => self.poll(now),
            Event::Polled(polled) => self.polled(polled, now),
            Event::NotPolled(error) => self.not_polled(&error, now),
            Event::Confirmed(polled) => self.confirmed(polled, now),
            Event::OrphansDue(rules) => self.decide_orphans(rules, now),
            Event::OrphansCalled(owners) => {
                self.orphans.call(&owners);
                Vec::new()
            }
            Event::OrphanLookedUp { due, found } => self.orphan_looked_up(*due, found, now),
            Event::OrphanAnswered { due, answer } => self.orphan_answered(*due, answer, now),
            Event::NoteDue { gone, must } => self.leave(&gone, must, now),
        }
    }
}

impl Machine {
    /// Creates a machine that knows nothing.
    pub(crate) fn new(cluster: ClusterId, parameters: Parameters, is_observing: bool) -> Self {
        let unknown = "the offer of the provider is not known yet";
        Self {
            cluster,
            is_observing,
            parameters,
            offer: Err(CloudError::new(ErrorKind::Unavailable, unknown)),
            traits: Arc::default(),
            revision: 0,
            changes: 0,
            leads: false,
            approved: [None, None],
            balancers: Balancers::default(),
            nodes: Nodes::default(),
            unclaimed: Unclaimed::default(),
            hangs: Hangs::default(),
            losses: Losses::default(),
            orphans: Orphans::default(),
            last_decision: LastDecision::default(),
            audits: Audits::default(),
            note: NoteMemory::default(),
            polls_from: At::default(),
            in_use: InUse::default(),
            learnt: BTreeSet::new(),
        }
    }

    /// Returns true if the machine knows that the provider offers this.
    pub(crate) fn knows(&self, offer: &Result<Offer, CloudError>) -> bool {
        self.offer.as_deref() == offer.as_ref()
    }

    /// Returns the specifics of the provider's load balancers.
    fn traits(&self) -> Arc<LoadBalancerTraits> {
        Arc::clone(&self.traits)
    }

    /// Records that the note for the next leader has changed: members may leave, orphans are deleted, or
    /// load balancers are replaced.
    fn change_note(&mut self) -> Effect {
        self.note.has_changed = true;
        Effect::Wake(Task::Note)
    }
}

#[cfg(test)]
mod tests;
