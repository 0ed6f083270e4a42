//! A cluster as plain values: an API server, an informer that is late, a queue, a cloud with routes and instances, other
//! clients, and one leader at a time.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use ccm_base::At;
use ccm_controller::machine::Machine as _;
use ccm_objects::{Node, Shared as Name};
use ccm_tests::{dice::Dice, queue::Queue};
use ipnet::IpNet;

use super::{
    super::{
        super::{Begin, Effect, Event, Fixed, Machine},
        GRACE,
    },
    Kind, Variant,
    model::Model,
    rules::Rules,
    servers::{Lookup, Write},
};
use crate::{
    networks::{AllocatorType, BlockSizes, ClusterRange, Config},
    node_ipam::ipam::{HeldBlocks, HoldUntil},
};

/// The longest sleep of the task that checks the time.
const IDLE: Duration = Duration::from_mins(1);

/// The whole world.
pub(super) struct World {
    pub(super) kind: Kind,
    pub(super) variant: Variant,
    pub(super) dice: Dice,
    pub(super) now: At,
    pub(super) machine: Machine,
    /// A machine that was not written and read. It must have the same effects for this number of
    /// events.
    twin: Option<(Machine, u32)>,
    pub(super) model: Model,
    pub(super) rules: Rules,
    pub(super) queue: Queue,
    /// The nodes of the API server, and those that the leader's informer has seen.
    pub(super) api: BTreeMap<Name, Arc<Node>>,
    pub(super) view: BTreeMap<Name, Arc<Node>>,
    pub(super) made: u64,
    pub(super) writes: Vec<Write>,
    /// Writes whose answer is lost, and that may be carried out.
    pub(super) late: Vec<Write>,
    pub(super) lookups: Vec<Lookup>,
    /// The pod CIDRs of instances, by the provider ID.
    pub(super) instances: BTreeMap<Name, Vec<IpNet>>,
    pub(super) has_routes: bool,
    /// Routes with the UID of their node, and those that are being made.
    pub(super) routes: BTreeMap<IpNet, Box<str>>,
    pub(super) making: BTreeMap<IpNet, Box<str>>,
    /// A list of routes that is under way.
    pub(super) listing: Option<(Vec<IpNet>, At)>,
    /// The nodes that the informer has lost by mistake, and since when.
    pub(super) lost: BTreeMap<Name, At>,
    /// The ends of nodes, which the informer reports again.
    ended: Vec<Arc<Node>>,
    /// When the task checks the time.
    time: At,
    note: Vec<HeldBlocks>,
    sizes: Option<(BlockSizes, u8, At)>,
    pub(super) has_faults: bool,
    pub(super) events: u64,
}

/// Returns the fixed inputs of a history. `has_routes` decides whether node IPAM waits for routes.
fn fixed(kind: Kind, variant: Variant, mask: u8, has_routes: bool) -> Fixed {
    let range = |text: &str, mask| ClusterRange { network: text.parse().unwrap(), mask };
    let (allocator, ranges, services) = match kind {
        Kind::Cloud => (AllocatorType::CloudAllocator, vec![range("10.0.0.0/16", 16)], Vec::new()),
        // The networks have 8 or 16 blocks of IPv4, one of them for Services, and 6 of IPv6.
        _ => {
            let services = ["10.0.7.0/25", "fd00:0:0:7::/64", "fd00:0:0:6::/64"];
            let ranges = vec![range("10.0.0.0/21", mask), range("fd00::/61", 64)];
            let services = services.iter().map(|one| one.parse().unwrap());
            (AllocatorType::RangeAllocator, ranges, services.collect())
        }
    };
    Fixed {
        config: Config { allocator, ranges, services, since: None },
        hold: HoldUntil {
            grace: if variant == Variant::NoGrace { Duration::ZERO } else { GRACE },
            routes: has_routes && variant != Variant::UnheldRoutes,
        },
        is_observing: kind == Kind::Observer && variant != Variant::WritingObserver,
    }
}

impl World {
    pub(super) fn new(seed: u64, kind: Kind, variant: Variant, only: Option<&'static str>) -> Self {
        let mut dice = Dice::new(seed);
        let has_routes = !dice.one_in(3);
        let fixed = fixed(kind, variant, 24, has_routes);
        let model = Model::new(fixed.config.clone(), has_routes, kind == Kind::Observer);
        let mut world = Self {
            kind,
            variant,
            dice,
            now: At(Duration::from_secs(1_000_000)),
            machine: Machine::new(fixed),
            twin: None,
            model,
            rules: Rules::new(only),
            queue: Queue::default(),
            api: BTreeMap::new(),
            view: BTreeMap::new(),
            made: 0,
            writes: Vec::new(),
            late: Vec::new(),
            lookups: Vec::new(),
            instances: BTreeMap::new(),
            has_routes,
            routes: BTreeMap::new(),
            making: BTreeMap::new(),
            listing: None,
            lost: BTreeMap::new(),
            ended: Vec::new(),
            time: At::default(),
            note: Vec::new(),
            sizes: None,
            has_faults: true,
            events: 0,
        };
        (0..4).for_each(|_| world.join());
        world.change_leader();
        world
    }

    /// Lets one thing happen.
    pub(super) fn step(&mut self) {
        let most = [1, 8, 40, 900][self.dice.place(&[70, 20, 9, 1])];
        let time = Duration::from_secs(self.dice.within(0, most + 1));
        self.pass(time);
        if self.variant == Variant::EndOfOthers && self.dice.one_in(8) {
            self.tell_end_again();
        }
        match self.dice.below(100) {
            0..12 => self.join(),
            12..19 => self.leave(),
            19..22 => self.alter(),
            22..43 => self.look_at_one(),
            43..62 => self.turn(),
            62..80 => self.carry_out(),
            80..89 => self.route(),
            89..93 => self.of_others(),
            _ if self.rules.is_stopped && self.dice.one_in(8) => self.of_others(),
            93 => self.tell_end_again(),
            94 => self.lose(),
            95..97 => self.write_and_read(),
            97 => self.change_leader(),
            98 if self.dice.one_in(4) => self.restore(),
            _ => self.look_at_all(),
        }
    }

    /// Lets time pass. The task that looks at it may be late.
    pub(super) fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        let lost: Vec<Name> = self.lost.keys().cloned().collect();
        for name in lost {
            if self.lost.get(&name).is_some_and(|since| *since + GRACE / 2 <= self.now) {
                self.look(&name);
            }
        }
        if self.time <= self.now && (!self.has_faults || !self.dice.one_in(3)) {
            self.look_at_the_time();
        }
    }

    pub(super) fn look_at_the_time(&mut self) {
        self.time = self.now + IDLE;
        if self.variant != Variant::NoTime {
            self.tell(Event::Time);
        }
    }

    /// Returns when something is due.
    pub(super) fn next(&self) -> At {
        self.queue.next().map_or(self.time, |next| next.min(self.time)).max(self.now)
    }

    /// Tells the machine an event.
    pub(super) fn tell(&mut self, event: Event) {
        self.events += 1;
        let looks = self.rules.before(&self.model, &event);
        let turn = self.rules.turn(&self.model, &event);
        let is_stored = match &event {
            Event::Written(written) => Some(Model::is_stored(written)),
            _ => None,
        };
        let is_change = matches!(event, Event::Changed { .. } | Event::Begin(_) | Event::Found(_));
        self.model.hear(&event, self.now);
        let twin = self.twin.as_mut().map(|(twin, _)| twin.apply(event.clone(), self.now));
        let effects = self.machine.apply(event, self.now);
        if let Some(twin) = twin {
            let (twin, read) = (format!("{twin:?}"), format!("{effects:?}"));
            self.rules.must(twin == read, "Plain", || format!("{twin}, but {read}"));
            self.twin =
                self.twin.take().and_then(|(twin, left)| Some((twin, left.checked_sub(1)?)));
        }
        self.foreign_is_told(looks, &effects);
        self.answer_is_counted(is_stored, &effects);
        self.turn_has_an_end(turn, &effects);
        let wakes = is_change || self.variant != Variant::LostWakes;
        for effect in effects {
            if wakes || !matches!(effect, Effect::Queue(..)) {
                self.perform(effect);
            }
        }
        self.check();
    }

    fn perform(&mut self, effect: Effect) {
        self.see(&effect);
        match effect {
            Effect::Write { node, cidrs } => self.writes.push(Write::new(node, cidrs)),
            Effect::Queue(name, _) => self.queue.after(&name, self.now),
            Effect::Forget(name) => self.queue.forget(&name),
            Effect::Remove(name) => self.queue.remove(&name),
            Effect::RetryEvery(name, wait) => {
                let wait = if self.variant == Variant::NoPause { Duration::ZERO } else { wait };
                self.queue.after(&name, self.now + wait);
            }
            Effect::RetryAs(name, class) => self.queue.again(&name, class, self.now),
            Effect::RetryRefused { name, error, .. } => {
                self.queue.again(&name, error.class(), self.now);
            }
            Effect::Leave(held) => self.note = held,
            Effect::Due(at) => self.time = self.time.min(at),
            Effect::WakeRelease => self.time = self.now,
            _ => {}
        }
    }

    /// Writes and reads the memory. The history continues with the memory that was read.
    fn write_and_read(&mut self) {
        let text = serde_json::to_string(&self.machine).unwrap();
        let read: Machine = serde_json::from_str(&text).unwrap();
        self.twin = Some((std::mem::replace(&mut self.machine, read), 20));
        if self.variant == Variant::NotPlain {
            self.machine.core.iter_mut().for_each(|core| core.here.clear());
        }
    }

    /// Lets the informer report the end of a node again.
    fn tell_end_again(&mut self) {
        if self.ended.is_empty() {
            return;
        }
        let node = self.dice.one_of(&self.ended);
        if !self.view.contains_key(&node.name) {
            self.gone(node);
        }
    }

    /// Lets the informer report the end of a node.
    pub(super) fn gone(&mut self, node: Arc<Node>) {
        match self.variant {
            Variant::UntoldEnds if self.dice.one_in(2) => {
                return self.model.hear(&Event::Gone(node), self.now);
            }
            Variant::EndOfOthers => {
                let own = node.pod_cidrs.clone();
                let others = self
                    .view
                    .values()
                    .filter(|other| other.pod_cidrs.iter().any(|cidr| own.contains(cidr)));
                let others: Vec<Arc<Node>> = others.cloned().collect();
                for other in others {
                    self.whisper(Event::Gone(other));
                }
            }
            _ => {}
        }
        self.ended.push(Arc::clone(&node));
        self.tell(Event::Gone(node));
    }

    /// Lets another replica lead from now on. The writes of the last leader are carried out, or
    /// never.
    pub(super) fn change_leader(&mut self) {
        if self.model.has_begun && self.dice.one_in(2) {
            self.tell(Event::Ends);
        }
        let under_way = self.writes.drain(..).chain(self.late.drain(..));
        for write in under_way.collect::<Vec<_>>() {
            if write.answer.is_none() && self.dice.one_in(2) {
                drop(self.land(&write));
            }
        }
        let made = std::mem::take(&mut self.making);
        self.routes.extend(
            made.into_iter()
                .filter(|(cidr, _)| !self.routes.contains_key(cidr))
                .collect::<Vec<_>>(),
        );
        let mask = match self.sizes {
            Some((_, mask, _)) if self.kind != Kind::Others || !self.dice.one_in(3) => mask,
            Some((_, 24, _)) => 25,
            _ => 24,
        };
        let fixed = fixed(self.kind, self.variant, mask, self.has_routes);
        let (holds, observes) = (self.has_routes, self.kind == Kind::Observer);
        self.model = Model::new(fixed.config.clone(), holds, observes);
        let sizes = fixed.config.sizes(self.sizes.map(|(sizes, ..)| sizes), self.now);
        let since = match self.sizes {
            Some((_, before, since)) if mask <= before => since,
            _ => self.now,
        };
        self.sizes = Some((sizes, mask, since));
        (self.machine, self.twin, self.queue) = (Machine::new(fixed), None, Queue::default());
        self.rules.new_leader();
        (self.lookups, self.listing) = (Vec::new(), None);
        self.ended.clear();
        self.lead(sizes, since);
    }

    fn lead(&mut self, sizes: BlockSizes, since: At) {
        // Each replica learns about changes.
        self.look_at_one();
        self.rules.leads = self.kind != Kind::Observer;
        self.tell(Event::TermBegins);
        if self.has_routes && self.dice.one_in(2) {
            self.list_routes();
            self.tell_routes();
        }
        if self.variant != Variant::OldList {
            self.view = self.api.clone();
            self.lost.clear();
        }
        if self.dice.one_in(2) {
            self.join();
            self.leave();
            self.look_at_one();
        }
        let nodes: Vec<Arc<Node>> = self.view.values().cloned().collect();
        let held = match self.dice.one_in(3) {
            true => Vec::new(),
            false => self.note.clone(),
        };
        self.model.begin(&nodes, &held, since, self.now);
        let held = if self.variant == Variant::NoNote { Vec::new() } else { held };
        self.tell(Event::Begin(Begin { nodes: nodes.clone(), held, sizes }));
        self.time = self.now;
    }
}
