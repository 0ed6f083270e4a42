//! A fleet over virtual time, with a truthful cloud.

use super::*;

/// How long a node stays Ready after its instance is gone, in seconds.
const SILENCE: u64 = 40;

/// Nodes, and when their instances go.
pub struct Fleet {
    pub views: Vec<NodeView>,
    /// By the number of the node: when its instance goes, in seconds.
    pub ends: HashMap<usize, u64>,
    /// Nodes that are missing in lists although nothing is wrong with them.
    pub unlisted: BTreeSet<usize>,
    /// The answer about those.
    pub about_unlisted: LookupResult,
    pub lists: bool,
    pub policy: Policy,
    pub decider: Decider,
    /// When each node was deleted, in seconds.
    pub deleted: Vec<u64>,
    /// When a pass held a node because of the breaker.
    pub held: Vec<u64>,
    pub witnesses: usize,
    removed: BTreeSet<usize>,
}

impl Fleet {
    /// Returns this many Ready nodes.
    pub fn of(size: usize) -> Self {
        Self {
            views: (0..size).map(|number| ready(&format!("n-{number:02}"))).collect(),
            ends: HashMap::new(),
            unlisted: BTreeSet::new(),
            about_unlisted: Ok(Lookup::NotOurs("another region".to_owned())),
            lists: true,
            policy: Policy::default(),
            decider: Decider::new(),
            deleted: Vec::new(),
            held: Vec::new(),
            witnesses: 0,
            removed: BTreeSet::new(),
        }
    }

    /// Removes the instances of the first ones, one after another within a minute.
    pub fn lose(&mut self, count: usize) {
        let count = u64::try_from(count).unwrap();
        self.ends = (0..count)
            .map(|number| (usize::try_from(number).unwrap(), number * 60 / count))
            .collect();
    }

    /// Returns the same fleet again, with a new leader.
    pub fn again(self) -> Self {
        let Self { views, ends, unlisted, about_unlisted, lists, policy, .. } = self;
        Self { views, ends, unlisted, about_unlisted, lists, policy, ..Self::of(0) }
    }

    fn is_gone(&self, number: usize, now: u64) -> bool {
        self.ends.get(&number).is_some_and(|end| *end <= now)
    }

    fn views(&self, now: u64) -> Vec<NodeView> {
        let view = |(number, view): (usize, &NodeView)| {
            let is_silent = self.is_gone(number, now.saturating_sub(SILENCE)) && now >= SILENCE;
            NodeView { ready: view.ready && !is_silent, ..view.clone() }
        };
        let there =
            self.views.iter().enumerate().filter(|(number, _)| !self.removed.contains(number));
        there.map(view).collect()
    }

    fn look_up(&self, name: &str, now: u64) -> LookedUp {
        let number = self.views.iter().position(|view| &*view.name == name).unwrap();
        let result = match number {
            _ if self.is_gone(number, now) => gone(),
            _ if self.unlisted.contains(&number) => self.about_unlisted.clone(),
            _ => running(),
        };
        let (name, uid) = (self.views[number].name.clone(), self.views[number].uid.clone());
        let heartbeat = Some(Heartbeat::default());
        LookedUp { name, uid, answered: at_second(now), result, heartbeat }
    }

    fn list(&self, now: u64) -> Listing {
        if !self.lists {
            return Listing::Witnesses;
        }
        let is_missing =
            |number: &usize| self.is_gone(*number, now) || self.unlisted.contains(number);
        let missing: Vec<usize> = (0..self.views.len()).filter(is_missing).collect();
        let names = missing.iter().map(|number| self.views[*number].name.clone()).collect();
        let (asked, instances) = (at_second(now), self.views.len() - missing.len());
        Listing::Read { asked, answered: asked, instances, malformed: 0, missing: names }
    }

    /// Runs a pass each second until this second, if the policy has something to ask.
    pub fn run(&mut self, until: u64) {
        for now in 0..until {
            let views = self.views(now);
            let abilities = Abilities { lists: self.lists, seed: now, ..Abilities::default() };
            self.decider.adapt_to(abilities);
            let agenda = self.decider.agenda(at_second(now), &views, &self.policy);
            if agenda.is_empty() {
                continue;
            }
            self.witnesses += agenda.witnesses.len();
            let answers = Answers {
                asked: at_second(now),
                lookups: agenda.look_up.iter().map(|name| self.look_up(name, now)).collect(),
                witnesses: agenda.witnesses.iter().map(|name| self.look_up(name, now)).collect(),
                list: agenda.list.then(|| self.list(now)),
            };
            let decisions = self.decider.decide(at_second(now), &views, answers, &self.policy);
            for decision in decisions {
                match decision.verdict {
                    Verdict::Delete => {
                        let number = self.views.iter().position(|view| view.name == decision.name);
                        self.removed.extend(number);
                        self.deleted.push(now);
                        let done = DeletionOutcome::Done;
                        self.decider.deleted(at_second(now), &decision, done, &self.policy);
                    }
                    Verdict::BreakerOpen => self.held.push(now),
                    _ => {}
                }
            }
        }
    }

    /// Returns how many were deleted, by the ten minutes since the first one.
    pub fn rounds(&self) -> Vec<usize> {
        let mut rounds = Vec::new();
        for at in &self.deleted {
            let round = usize::try_from((at - self.deleted[0]) / 600).unwrap();
            rounds.resize(rounds.len().max(round + 1), 0);
            rounds[round] += 1;
        }
        rounds
    }
}

fn at_second(second: u64) -> At {
    At(Duration::from_secs(second))
}
