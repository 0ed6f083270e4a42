//! The API server, its informer, and the clients that write pod CIDRs.

use std::{sync::Arc, time::Duration};

use ccm_controller::machine::Machine as _;
use ccm_kube::ApiError;
use ccm_objects::{Node, Shared as Name};
use ipnet::IpNet;

use super::{
    super::super::{Event, Found, Written, needs_cidrs},
    Kind, Variant,
    world::World,
};

/// The nodes that there are at most, and their names.
const NODES: usize = 9;
const NAMES: usize = 14;

/// The answer of the API server.
pub(super) type Answer = Result<Arc<Node>, Option<ApiError>>;

/// A write that is under way.
pub(super) struct Write {
    pub(super) asked: Arc<Node>,
    pub(super) cidrs: Vec<IpNet>,
    pub(super) answer: Option<Answer>,
}

impl Write {
    pub(super) const fn new(asked: Arc<Node>, cidrs: Vec<IpNet>) -> Self {
        Self { asked, cidrs, answer: None }
    }
}

/// A question to the cloud that is under way.
pub(super) struct Lookup {
    pub(super) asked: Arc<Node>,
}

impl World {
    fn any_name(&mut self) -> Name {
        format!("n{}", self.dice.below(NAMES)).into()
    }

    /// Returns a node that the informer or the API server shows.
    pub(super) fn any_node(&mut self) -> Option<Name> {
        let known =
            self.api.keys().chain(self.view.keys().filter(|name| !self.api.contains_key(*name)));
        let names: Vec<Name> = known.cloned().collect();
        (!names.is_empty()).then(|| self.dice.one_of(&names))
    }

    fn version(&mut self) -> Box<str> {
        self.made += 1;
        self.made.to_string().into()
    }

    /// Registers a node, at times with its own pod CIDRs.
    pub(super) fn join(&mut self) {
        let name = self.any_name();
        if self.api.len() >= NODES || self.api.contains_key(&name) {
            return;
        }
        let version = self.version();
        let uid: Box<str> = format!("u{version}").into();
        let brings = self.has_faults && matches!(self.kind, Kind::Others | Kind::Cloud);
        let brought = if brings && self.dice.one_in(6) { self.brought() } else { Vec::new() };
        let age = match self.dice.one_in(5) && !brought.is_empty() {
            true => Duration::from_hours(24),
            false => Duration::ZERO,
        };
        if !brought.is_empty() {
            self.rules.foreign.insert(uid.clone());
        }
        let node = Node {
            name: Name::clone(&name),
            uid,
            resource_version: version,
            created: (self.now - age).to_string().parse().ok(),
            provider_id: self.joins_instance(&name),
            pod_cidrs: brought,
            ..Node::default()
        };
        self.api.insert(name, Arc::new(node));
    }

    /// Returns pod CIDRs that do not match blocks.
    fn brought(&mut self) -> Vec<Box<str>> {
        let third = self.dice.below(8);
        let one = match self.dice.below(8) {
            0 => format!("10.99.{third}.0/24"),
            1 => format!("10.0.{third}.128/25"),
            2 => format!("10.0.{}.0/22", third / 4 * 4),
            3 => "10.0.0.0/21".to_owned(),
            4 => "0.0.0.0/0".to_owned(),
            5 => format!("x{third}"),
            6 => format!("fd00::{third}:0:0:0:0/62"),
            _ => format!("10.0.{third}.0/24"),
        };
        vec![one.into()]
    }

    pub(super) fn leave(&mut self) {
        let names: Vec<Name> = self.api.keys().cloned().collect();
        if !names.is_empty() {
            let name = self.dice.one_of(&names);
            self.remove(&name);
        }
    }

    pub(super) fn remove(&mut self, name: &Name) {
        if let Some(node) = self.api.remove(name) {
            self.rules.doubted.remove(&node.uid);
        }
    }

    pub(super) fn change(
        &mut self,
        name: &Name,
        change: impl FnOnce(&mut Node),
    ) -> Option<Arc<Node>> {
        let version = self.version();
        let node = self.api.get_mut(name)?;
        let mut new = Node { resource_version: version, ..Node::clone(node) };
        change(&mut new);
        *node = Arc::new(new);
        Some(Arc::clone(node))
    }

    /// Shows an older copy of a node, without its pod CIDRs.
    pub(super) fn restore(&mut self) {
        if let Some(name) = self.any_node() {
            self.change(&name, |node| node.pod_cidrs.clear());
        }
    }

    /// Changes a node otherwise: a heartbeat, the beginning of its end, another instance.
    pub(super) fn alter(&mut self) {
        let Some(name) = self.any_node() else { return };
        match self.dice.below(4) {
            0 => drop(self.change(&name, |node| node.deleting = true)),
            1 if self.kind == Kind::Cloud => {
                let other = self.new_instance();
                self.change(&name, |node| node.provider_id = Some(other));
            }
            _ => drop(self.change(&name, |node| node.unschedulable = !node.unschedulable)),
        }
    }

    /// Lets the informer show one node as it is, or its end.
    pub(super) fn look(&mut self, name: &Name) {
        let (now, seen) = (self.api.get(name).cloned(), self.view.get(name).cloned());
        self.lost.remove(name);
        match (seen, now) {
            (Some(seen), Some(now)) if seen.uid == now.uid => {
                if *seen == *now {
                    self.view.insert(Name::clone(name), now);
                } else {
                    self.shows(Some(seen), now);
                }
            }
            (seen, now) => {
                if let Some(seen) = seen {
                    self.view.remove(name);
                    self.gone(seen);
                }
                if let Some(now) = now {
                    self.shows(None, now);
                }
            }
        }
    }

    fn shows(&mut self, before: Option<Arc<Node>>, after: Arc<Node>) {
        self.view.insert(Name::clone(&after.name), Arc::clone(&after));
        self.tell(Event::Changed { before, after });
    }

    pub(super) fn look_at_one(&mut self) {
        if let Some(name) = self.any_node() {
            self.look(&name);
        }
    }

    pub(super) fn look_at_all(&mut self) {
        let names: Vec<Name> = self.api.keys().chain(self.view.keys()).cloned().collect();
        for name in &names {
            self.look(name);
        }
    }

    /// Gives the informer a wrong list: it does not have a node that exists.
    pub(super) fn lose(&mut self) {
        let names: Vec<Name> =
            self.view.keys().filter(|name| self.api.contains_key(*name)).cloned().collect();
        if names.is_empty() {
            return;
        }
        let name = self.dice.one_of(&names);
        if let Some(seen) = self.view.remove(&name) {
            // It is shown again before the grace time ends, or much later, when another node may
            // have its blocks.
            let is_long = self.dice.one_in(3);
            if is_long || self.kind == Kind::Cloud {
                self.rules.doubted.insert(seen.uid.clone());
            }
            if !is_long {
                self.lost.insert(name, self.now);
            }
            self.gone(seen);
        }
    }

    /// Gives a node its turn.
    pub(super) fn turn(&mut self) {
        let due = self.queue.due(self.now);
        if due.is_empty() {
            return;
        }
        let name = self.dice.one_of(&due);
        self.queue.take(&name);
        let node = self.view.get(&name).cloned();
        if self.kind == Kind::Cloud {
            return self.ask(&name, node);
        }
        let count = self.writes.len();
        self.tell(Event::Turn { name: Name::clone(&name), node });
        if self.writes.len() == count {
            self.queue.done(&name);
        }
    }

    fn ask(&mut self, name: &Name, node: Option<Arc<Node>>) {
        match node.filter(|node| needs_cidrs(node)) {
            Some(asked) if is_anothers(&asked) => {
                self.queue.done(name);
                self.tell(Event::NotOurs(asked));
            }
            Some(asked) => self.lookups.push(Lookup { asked }),
            None => self.queue.done(name),
        }
    }

    /// Lets something arrive: a write at the API server, its answer, or an answer of the cloud.
    pub(super) fn carry_out(&mut self) {
        let count = self.writes.len() + self.lookups.len() + self.late.len();
        if count == 0 {
            return;
        }
        let number = self.dice.below(count);
        if number < self.writes.len() {
            let write = self.writes.swap_remove(number);
            self.progress(write);
        } else if number < self.writes.len() + self.lookups.len() {
            let lookup = self.lookups.swap_remove(number - self.writes.len());
            self.answer_lookup(lookup);
        } else {
            let late = self.late.swap_remove(number - self.writes.len() - self.lookups.len());
            drop(self.land(&late));
        }
    }

    fn answer_lookup(&mut self, Lookup { asked }: Lookup) {
        let name = Name::clone(&asked.name);
        let answer = self.look_up(&asked);
        let (node, failures) = (self.view.get(&name).cloned(), self.queue.failures(&name));
        let (of, count) = (asked.provider_id.clone(), self.writes.len());
        let asked = match (&node, self.variant) {
            (Some(node), Variant::AnyInstance) => Arc::clone(node),
            _ => asked,
        };
        self.tell(Event::Found(Box::new(Found { asked, node, answer, failures })));
        match self.writes.get(count) {
            None => self.queue.done(&name),
            Some(write) => {
                let is_same = write.asked.provider_id == of;
                self.must(is_same, "Instance", || format!("{name} gets what {of:?} has"));
            }
        }
    }

    fn progress(&mut self, mut write: Write) {
        if let Some(answer) = write.answer.take() {
            return self.answer(write, answer);
        }
        let answer = if self.has_faults && self.dice.one_in(3) {
            self.fails(&write)
        } else {
            self.land(&write)
        };
        if self.dice.one_in(2) {
            self.answer(write, answer);
        } else {
            self.writes.push(Write { answer: Some(answer), ..write });
        }
    }

    /// Returns a wrong answer or the error of a write that fails.
    fn fails(&mut self, write: &Write) -> Answer {
        let uncertain = [
            ApiError::Timeout,
            ApiError::Unavailable("down".to_owned()),
            ApiError::Decode("what".to_owned()),
        ];
        let refused = [
            ApiError::Forbidden("no".to_owned()),
            ApiError::Conflict,
            ApiError::Invalid("no".to_owned()),
            ApiError::Throttled { retry_after: Some(Duration::from_secs(7)) },
        ];
        match self.dice.below(7) {
            0 => Err(None),
            1 => Err(Some(self.dice.one_of(&refused))),
            2 | 3 => {
                let (asked, cidrs) = (Arc::clone(&write.asked), write.cidrs.clone());
                self.late.push(Write::new(asked, cidrs));
                {
                    let error = self.dice.one_of(&uncertain);
                    self.unknown(error)
                }
            }
            4 => {
                drop(self.land(write));
                {
                    let error = self.dice.one_of(&uncertain);
                    self.unknown(error)
                }
            }
            // A policy removes them from the write, or a webhook removes them from the answer or
            // replaces them.
            5 => Ok(Arc::clone(&write.asked)),
            _ if self.kind == Kind::Others && self.dice.one_in(2) => {
                let other: IpNet = format!("10.98.{}.0/24", self.made % 256).parse().unwrap();
                let cidrs = vec![other];
                let answer = self.land(&Write::new(Arc::clone(&write.asked), cidrs));
                self.rules.foreign.extend(answer.as_ref().ok().map(|node| node.uid.clone()));
                answer
            }
            _ => self
                .land(write)
                .map(|node| Arc::new(Node { pod_cidrs: Vec::new(), ..Node::clone(&node) })),
        }
    }

    fn unknown(&self, error: ApiError) -> Answer {
        Err(Some(match self.variant {
            Variant::Certain | Variant::Forgetful => ApiError::Forbidden("sent".to_owned()),
            _ => error,
        }))
    }

    /// Carries out a write as the API server, if the node is the one that was written.
    pub(super) fn land(&mut self, write: &Write) -> Answer {
        let Write { asked, cidrs, .. } = write;
        match self.api.get(&asked.name) {
            None => return Err(Some(ApiError::NotFound)),
            Some(node)
                if node.uid != asked.uid || node.resource_version != asked.resource_version =>
            {
                return Err(Some(ApiError::Conflict));
            }
            Some(_) => {}
        }
        let shown = cidrs.iter().map(|cidr| cidr.to_string().into()).collect();
        let node = self.change(&asked.name, |node| node.pod_cidrs = shown);
        self.are_distinct();
        node.ok_or(Some(ApiError::NotFound))
    }

    /// Lets the answer arrive. The store has the node of the answer before the machine hears of it.
    fn answer(&mut self, write: Write, answer: Answer) {
        let Write { asked, cidrs, .. } = write;
        let name = Name::clone(&asked.name);
        if self.variant == Variant::LostAnswers {
            return self.queue.done(&name);
        }
        if let Ok(new) = &answer {
            let is_later = |seen: &Arc<Node>| {
                let version = |node: &Node| node.resource_version.parse::<u64>().unwrap();
                seen.uid == new.uid && version(seen) < version(new)
            };
            if self.view.get(&name).is_some_and(is_later) {
                self.view.insert(Name::clone(&name), Arc::clone(new));
            }
        }
        let node = self.view.get(&name).cloned();
        let shown = answer.clone().ok();
        let was_sent = matches!(&answer, Err(Some(ApiError::Forbidden(why))) if why == "sent");
        self.tell(Event::Written(Box::new(Written {
            asked: Arc::clone(&asked),
            cidrs,
            node: node.clone(),
            answer,
        })));
        match (self.variant, shown, node) {
            (Variant::Reviving, Some(after), None) => {
                self.whisper(Event::Changed { before: None, after });
            }
            (Variant::Forgetful, _, Some(after)) if was_sent => {
                self.whisper(Event::Gone(asked));
                self.whisper(Event::Changed { before: None, after });
                self.queue.after(&name, self.now);
            }
            _ => {}
        }
        self.queue.done(&name);
    }

    /// Tells the machine of a variant something false.
    pub(super) fn whisper(&mut self, event: Event) {
        drop(self.machine.apply(event, self.now));
    }

    /// Lets other clients change nodes. Another allocator writes to several.
    pub(super) fn of_others(&mut self) {
        let count = if self.dice.one_in(3) { 3 } else { 1 };
        (0..count).for_each(|_| self.another_writes());
    }

    fn another_writes(&mut self) {
        let bare = self.api.iter().filter(|(_, node)| needs_cidrs(node));
        let bare: Vec<Name> = bare.map(|(name, _)| Name::clone(name)).collect();
        if bare.is_empty() {
            return;
        }
        let name = self.dice.one_of(&bare);
        let cidrs = match self.kind {
            Kind::Blocks => return,
            Kind::Observer => vec![format!("10.0.{}.0/24", self.dice.below(7)).into()],
            Kind::Others if self.dice.one_in(2) => {
                vec![format!("10.0.{}.0/24", self.dice.below(8)).into()]
            }
            _ => self.brought(),
        };
        if let Some(node) = self.change(&name, |node| node.pod_cidrs = cidrs) {
            self.rules.foreign.insert(node.uid.clone());
        }
    }
}

/// Returns true if the node is another provider's.
pub(super) fn is_anothers(node: &Node) -> bool {
    node.provider_id.as_deref().is_some_and(|id| id.starts_with("other://"))
}
