//! A small machine of the usual form: objects, memory about all of them, and effects.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use ccm_base::At;
use ccm_objects::{Address, Node};
use serde::{Deserialize, Serialize};

use crate::{machine::Machine, record::Recorded};

/// An instance of the cloud.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Instance {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) address: IpAddr,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Event {
    Seen(Arc<Node>),
    Gone { name: String },
    Listed { instances: Vec<Instance> },
    Answered { name: String, answer: Result<(), String> },
    Configured { deletions: usize, network: String },
    Passed,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) enum Effect {
    Delete { name: String, uid: String },
    Held { name: String, why: String, until: At },
    Place { name: String, address: IpAddr, is_inside: bool },
    Say { name: String, message: String },
    Wake { at: At },
    Count(usize),
}

/// The memory of one node.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Entry {
    node: Arc<Node>,
    is_missing: bool,
    placed: Option<(IpAddr, bool)>,
    failures: u32,
    next: Option<At>,
    last_word: Option<String>,
}

/// The machine. Its nodes are in the order of their names.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Toy {
    nodes: BTreeMap<String, Entry>,
    instances: BTreeMap<String, Instance>,
    /// The budget of deletions: when there were some.
    spent: Vec<At>,
    deletions: usize,
    network: Option<String>,
    /// A rule that another version has differently.
    #[serde(default)]
    is_hasty: bool,
}

/// The time after which a deletion is forgotten.
const WINDOW: Duration = Duration::from_mins(10);

impl Toy {
    pub(super) fn new(deletions: usize) -> Self {
        Self { deletions, ..Self::default() }
    }

    fn listed(&mut self, instances: Vec<Instance>, now: At) -> Vec<Effect> {
        self.instances = instances.into_iter().map(|one| (one.name.clone(), one)).collect();
        let mut effects = vec![Effect::Count(self.instances.len())];
        let names: Vec<String> = self.nodes.keys().cloned().collect();
        effects.extend(names.iter().flat_map(|name| self.judged(name, now)));
        effects
    }

    /// Compares a node with its instance.
    fn judged(&mut self, name: &str, now: At) -> Vec<Effect> {
        let Some(entry) = self.nodes.get_mut(name) else { return Vec::new() };
        if entry.next.is_some_and(|next| now < next) {
            return Vec::new();
        }
        let name = name.to_owned();
        if let Some(instance) = self.instances.get(&name) {
            entry.is_missing = false;
            let address = instance.address;
            let is_inside =
                self.network.as_deref().is_some_and(|network| contains(network, address));
            if entry.placed.replace((address, is_inside)) == Some((address, is_inside)) {
                return Vec::new();
            }
            return vec![Effect::Place { name, address, is_inside }];
        }
        if !std::mem::replace(&mut entry.is_missing, true) && !self.is_hasty {
            let message = format!("the cloud does not list {name} of {}", entry.node.uid);
            return vec![Effect::Say { name, message }, Effect::Wake { at: now + WINDOW / 10 }];
        }
        self.spent.retain(|at| now.since(*at) < WINDOW);
        if self.spent.len() >= self.deletions {
            let until = self.spent.first().copied().unwrap_or(now) + WINDOW;
            return vec![Effect::Held { name, why: "the budget is used up".to_owned(), until }];
        }
        self.spent.push(now);
        // The text uses the wall clock, as it does for others.
        let message = format!("deleted at {now}, created {:?}", entry.node.created.map(At::from));
        let uid = entry.node.uid.to_string();
        vec![Effect::Delete { name: name.clone(), uid }, Effect::Say { name, message }]
    }

    fn answered(&mut self, name: String, answer: Result<(), String>, now: At) -> Vec<Effect> {
        let Some(entry) = self.nodes.get_mut(&name) else { return Vec::new() };
        match answer {
            Ok(()) => {
                entry.failures = 0;
                Vec::new()
            }
            Err(why) => {
                entry.failures += 1;
                let next = now + Duration::from_secs(1 << entry.failures.min(8));
                entry.next = Some(next);
                let message = format!("{} failed: {why}", entry.node.name);
                entry.last_word = Some(message.clone());
                vec![Effect::Say { name, message }, Effect::Wake { at: next }]
            }
        }
    }
}

fn contains(network: &str, address: IpAddr) -> bool {
    let Some((first, length)) = network.split_once('/') else { return false };
    let (Ok(IpAddr::V4(first)), Ok(length)) = (first.parse(), length.parse::<u32>()) else {
        return false;
    };
    let IpAddr::V4(address) = address else { return false };
    (first.to_bits() ^ address.to_bits()).leading_zeros() >= length
}

impl Machine for Toy {
    type Event = Event;
    type Effect = Effect;

    fn apply(&mut self, event: Event, now: At) -> Vec<Effect> {
        match event {
            Event::Seen(node) => {
                let name = node.name.to_string();
                self.nodes.entry(name.clone()).or_default().node = node;
                self.judged(&name, now)
            }
            Event::Gone { name } => {
                self.nodes.remove(&name);
                Vec::new()
            }
            Event::Listed { instances } => self.listed(instances, now),
            Event::Answered { name, answer } => self.answered(name, answer, now),
            Event::Configured { deletions, network } => {
                (self.deletions, self.network) = (deletions, Some(network));
                Vec::new()
            }
            Event::Passed => {
                let missing = self.nodes.iter().filter(|(_, entry)| entry.is_missing);
                let missing: Vec<String> = missing.map(|(name, _)| name.clone()).collect();
                missing.iter().flat_map(|name| self.judged(name, now)).collect()
            }
        }
    }
}

impl Recorded for Toy {
    const NAME: &'static str = "toy-ccm";

    fn about(event: &Event) -> Option<Cow<'_, str>> {
        match event {
            Event::Seen(node) => Some((&*node.name).into()),
            Event::Gone { name } | Event::Answered { name, .. } => Some(name.into()),
            Event::Listed { .. } | Event::Configured { .. } | Event::Passed => None,
        }
    }

    fn effect_about(effect: &Effect) -> Option<Cow<'_, str>> {
        match effect {
            Effect::Delete { name, .. }
            | Effect::Held { name, .. }
            | Effect::Place { name, .. }
            | Effect::Say { name, .. } => Some(name.into()),
            Effect::Wake { .. } | Effect::Count(_) => None,
        }
    }

    fn only(mut self, name: &str) -> Self {
        self.nodes.retain(|key, _| key == name);
        self.instances.retain(|key, _| key == name);
        self
    }

    fn only_event(event: Event, name: &str) -> Option<Event> {
        if let Event::Listed { mut instances } = event {
            instances.retain(|instance| instance.name == name);
            return Some(Event::Listed { instances });
        }
        let is_kept = Self::about(&event).is_none_or(|object| object == name);
        is_kept.then_some(event)
    }
}

/// Another version, which does not need a second look.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Hasty(Toy);

impl Machine for Hasty {
    type Event = Event;
    type Effect = Effect;

    fn apply(&mut self, event: Event, now: At) -> Vec<Effect> {
        self.0.is_hasty = true;
        self.0.apply(event, now)
    }
}

impl Recorded for Hasty {
    const NAME: &'static str = "toy-ccm";

    fn about(_: &Self::Event) -> Option<Cow<'_, str>> {
        None
    }

    fn effect_about(_: &Self::Effect) -> Option<Cow<'_, str>> {
        None
    }

    fn only(self, _: &str) -> Self {
        unreachable!("no record of one object")
    }
}

/// Yields numbers that look random and are the same each time.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn roll(&mut self, sides: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % sides
    }
}

/// A cluster that produces events: nodes that come and go, lists of the cloud, answers.
pub(super) struct World {
    dice: Dice,
    size: usize,
    pub(super) instances: BTreeMap<String, Instance>,
    pub(super) nodes: BTreeMap<String, Arc<Node>>,
    version: u32,
}

/// The names and addresses of a cluster that an anonymous record must not show.
pub(super) const SECRETS: [&str; 9] = [
    "acme",
    "bigbank",
    "acme-bigbank-7",
    "acme-bigbank-7.corp.bigbank.example",
    "10.77.11.7",
    "10.77.0.0/16",
    "5f0c71aa-0000-4e1c-9a55-000000000007",
    "teamsecret",
    "openstack:///9b3f",
];

pub(super) fn name(number: usize) -> String {
    format!("acme-bigbank-{number}")
}

pub(super) fn instance(number: usize) -> Instance {
    let id = format!("5f0c71aa-0000-4e1c-9a55-{number:012x}");
    let [high, low] = u16::try_from(number % 1000).unwrap().to_be_bytes();
    let third = 3 + high + low % 2 * 8;
    Instance { id, name: name(number), address: IpAddr::from([10, 77, third, low]) }
}

pub(super) fn node(number: usize, version: u32, fills: usize) -> Arc<Node> {
    let host = format!("{}.corp.bigbank.example", name(number));
    let labels = [
        ("kubernetes.io/hostname", name(number)),
        ("topology.kubernetes.io/zone", format!("acme-zone-{}", number % 3)),
        ("team.bigbank.example/owner", "teamsecret".to_owned()),
    ];
    let filler = (0..fills).map(|fill| {
        (format!("bigbank.example/label-{fill}"), format!("v{}", (number * 31 + fill * 7) % 97))
    });
    let labels = labels.into_iter().map(|(key, value)| (key.to_owned(), value)).chain(filler);
    let created = format!("2026-11-2{}T10:00:{:02}Z", number % 8, number % 60);
    Arc::new(Node {
        name: name(number).as_str().into(),
        uid: format!("0c71aa5f-1111-4e1c-9a55-{number:012x}").into(),
        resource_version: format!("88{version:07}").into(),
        created: Some(created.parse().unwrap()),
        labels: labels.map(|(key, value)| (key.as_str().into(), value.as_str().into())).collect(),
        annotations: BTreeMap::from([("quartet.dev/note".into(), "teamsecret 10.77.11.7".into())]),
        provider_id: Some(format!("openstack:///9b3f-acme-{number}").as_str().into()),
        addresses: vec![Address::new("Hostname", host.as_str())],
        ..Node::default()
    })
}

impl World {
    pub(super) fn new(seed: u64, size: usize) -> Self {
        let nodes = (0..size).map(|number| (name(number), node(number, 0, 20))).collect();
        let instances = (0..size).map(|number| (name(number), instance(number))).collect();
        Self { dice: Dice(seed), size, instances, nodes, version: 0 }
    }

    pub(super) fn event(&mut self) -> Event {
        self.version += 1;
        let number = self.dice.roll(self.size);
        let name = name(number);
        match self.dice.roll(12) {
            0 => {
                self.instances.remove(&name);
                Event::Passed
            }
            1 => {
                self.instances.insert(name, instance(number));
                Event::Passed
            }
            2 | 3 => Event::Listed { instances: self.instances.values().cloned().collect() },
            4 => {
                self.nodes.remove(&name);
                Event::Gone { name }
            }
            5 => Event::Answered { name, answer: Ok(()) },
            6 => {
                let answer = Err("teamsecret has no quota at 10.77.11.7".to_owned());
                Event::Answered { name, answer }
            }
            7 => {
                let network =
                    if number.is_multiple_of(2) { "10.77.0.0/16" } else { "10.77.3.0/24" };
                Event::Configured { deletions: 1 + number % 3, network: network.to_owned() }
            }
            _ => {
                let node = node(number, self.version, 20);
                self.nodes.insert(name, Arc::clone(&node));
                Event::Seen(node)
            }
        }
    }
}

/// Returns everything of this world that must not be shown, in its written form.
pub(super) fn secrets(size: usize) -> BTreeSet<String> {
    let of = |number: usize| {
        let (instance, node) = (instance(number), node(number, 0, 0));
        let texts =
            [instance.id, instance.name, instance.address.to_string(), node.uid.to_string()];
        let ids = node.provider_id.iter().map(ToString::to_string).collect::<Vec<_>>();
        texts.into_iter().chain(ids)
    };
    let some = SECRETS.iter().map(|text| (*text).to_owned());
    (0..size).flat_map(of).chain(some).collect()
}
