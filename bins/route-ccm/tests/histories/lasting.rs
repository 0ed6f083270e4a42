//! For how long a condition is wrong, and how often it is written.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use ccm_sim::apiserver::Verb;
use ipnet::IpNet;
use tokio::time::Instant;

use crate::{
    rival,
    rules::{Broken, Rule},
    truth::{self, TrueNode},
    world::World,
};

/// How long a condition with a reason of ours may be wrong. A list finds what others have changed, and a write that
/// is repeated waits for five minutes at most.
const WRONG: Duration = Duration::from_mins(20);
const WINDOW: Duration = Duration::from_mins(10);
/// How often one leader may write the condition of one node within the window: twelve times the same, and more where
/// the route itself comes and goes, since a write of another status does not wait.
const WRITES: usize = 24;

#[derive(Default)]
pub(crate) struct Lasting {
    /// Since when the condition of a node has been wrong, by its UID.
    wrong: BTreeMap<String, Instant>,
    /// When the condition of each node was written.
    writes: BTreeMap<String, VecDeque<Instant>>,
}

impl Lasting {
    /// Another process leads.
    pub(crate) fn restarted(&mut self) {
        self.writes.clear();
    }

    /// Looks at the conditions.
    pub(crate) fn look(&mut self, world: &World, broken: &Broken) {
        self.count(world, broken);
        let now = Instant::now();
        if world.truth.may_be_lied_to() {
            return self.wrong.clear();
        }
        let nodes = truth::nodes(&world.api);
        let (wanted, _) = truth::wanted(&nodes, &world.cloud.router().settings());
        let is_wrong = |node: &&TrueNode| {
            let lacks =
                node.cidrs.iter().map(IpNet::trunc).any(|cidr| {
                    wanted.get(&cidr) != Some(&node.name) || !has_route(world, node, cidr)
                });
            let expect = if lacks { "True" } else { "False" };
            node.reason != rival::REASON
                && node.unavailable.as_deref().is_some_and(|is| is != expect)
        };
        let wrong: Vec<&TrueNode> = nodes.iter().filter(is_wrong).collect();
        self.wrong.retain(|uid, _| wrong.iter().any(|node| node.uid == *uid));
        for node in wrong {
            let since = *self.wrong.entry(node.uid.clone()).or_insert(now);
            if since + WRONG < now {
                self.wrong.clear();
                let (name, shown) = (&node.name, &node.unavailable);
                return broken.add(
                    Rule::Lasting,
                    format!("{name}: NetworkUnavailable={shown:?} is wrong for {WRONG:?}"),
                );
            }
        }
    }

    fn count(&mut self, world: &World, broken: &Broken) {
        let now = Instant::now();
        let records = world.api.audit().records();
        world.api.audit().reset();
        for record in records {
            let is_own = record.user_agent.starts_with("route-ccm/");
            if !is_own || record.verb != Verb::Patch || record.subresource != "status" {
                continue;
            }
            let times = self.writes.entry(record.name.clone()).or_default();
            times.push_back(now);
            while times.front().is_some_and(|first| *first + WINDOW < now) {
                times.pop_front();
            }
            let count = times.len();
            if count > WRITES {
                times.clear();
                broken
                    .add(Rule::Writes, format!("{count} writes of {} in ten minutes", record.name));
            }
        }
    }
}

/// Returns true if the node has a working route of this pod CIDR.
fn has_route(world: &World, node: &TrueNode, cidr: IpNet) -> bool {
    world.cloud.router().to(cidr).iter().any(|route| {
        route.defect.is_none() && route.target.as_ref().is_some_and(|target| node.has(target))
    })
}
