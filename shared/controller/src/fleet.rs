//! Notices what is odd about the nodes as a whole: each of them may look fine, and the program has
//! nothing to do because it looks at the wrong cloud.

use std::{collections::BTreeSet, mem, sync::Arc};

use ccm_base::message::one_line;
use ccm_cloud::{Claim, Cloud};
use ccm_objects::Node;
use ccm_runtime::health::Condition;
use strum::Display;

use crate::instances;

/// The longest scheme that is shown.
const SCHEME: usize = 32;

/// The longest text about the first node that is not served here.
const FIRST: usize = 400;

/// An oddity of the nodes of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Display)]
pub enum Oddity {
    /// Most nodes belong to another provider.
    #[strum(
        to_string = "{nodes} of {of} nodes have provider IDs of {schemes}; is its cloud controller still on?"
    )]
    OtherProvider {
        /// The number of such nodes.
        nodes: usize,
        /// The number of all nodes.
        of: usize,
        /// The schemes of their provider IDs.
        schemes: String,
    },
    /// Most nodes have this provider's scheme, but are in a part of the cloud that it does not
    /// serve.
    #[strum(to_string = "{nodes} of {of} nodes are not served here; the first: {first}")]
    OtherPart {
        /// The number of such nodes.
        nodes: usize,
        /// The number of all nodes.
        of: usize,
        /// The first of them: its provider ID, and why it is another part's.
        first: String,
    },
    /// The cloud knows the instance of no initialised node.
    #[strum(to_string = "0 of {of} initialised nodes found: wrong project, region or credentials?")]
    NoneFound {
        /// The number of initialised nodes.
        of: usize,
    },
}

impl Oddity {
    /// Judges the provider IDs of the nodes that the settings select: most of them may belong to
    /// another provider.
    pub fn of_ids(cloud: &dyn Cloud, nodes: &[Arc<Node>]) -> Option<Self> {
        let is_foreign = |node: &&Arc<Node>| instances::claim(cloud, node) == Some(Claim::Foreign);
        let foreign = nodes.iter().filter(is_foreign);
        let ids: Vec<&str> = foreign.filter_map(|node| node.provider_id.as_deref()).collect();
        Self::of_foreign(&ids, nodes.len(), &cloud.schemes(), |id| cloud.why_foreign(id))
    }

    /// Judges these provider IDs among `of` nodes, which are foreign to a provider with these
    /// schemes.
    fn of_foreign(
        ids: &[&str],
        of: usize,
        own: &[String],
        why: impl FnOnce(&str) -> String,
    ) -> Option<Self> {
        let count = ids.len();
        if count * 2 <= of {
            return None;
        }
        let schemes = ids.iter().map(|id| one_line(id.split("://").next().unwrap_or(id), SCHEME));
        let others = schemes.filter(|scheme| !own.contains(scheme)).collect::<BTreeSet<_>>();
        if others.is_empty() {
            let id = ids.first()?;
            let first = one_line(&format!("provider ID {id} {}", why(id)), FIRST);
            return Some(Self::OtherPart { nodes: count, of, first });
        }
        let schemes = Vec::from_iter(others).join(", ");
        Some(Self::OtherProvider { nodes: count, of, schemes })
    }

    /// Judges the cloud's answers about `of` initialised nodes, of which it knows this many.
    pub fn of_answers(found: usize, of: usize) -> Option<Self> {
        (found == 0 && of > 0).then_some(Self::NoneFound { of })
    }
}

/// The line of `/readyz?verbose` about the fleet. A new oddity is one line of the log as well.
pub struct FleetLine {
    condition: Condition,
    last: Option<mem::Discriminant<Oddity>>,
}

impl FleetLine {
    /// Registers the line.
    pub fn new(condition: Condition) -> Self {
        Self { condition, last: None }
    }

    /// Shows what is odd, or else this text.
    pub fn show(&mut self, oddity: Option<&Oddity>, text: impl Into<String>) {
        let Some(what) = oddity else {
            self.last = None;
            return self.condition.pass(text);
        };
        self.condition.fail(what.to_string());
        // The numbers change while nodes come and go.
        if self.last.replace(mem::discriminant(what)) != Some(mem::discriminant(what)) {
            tracing::warn!("the fleet: {what}");
        }
    }

    /// Shows that nothing is known, and why.
    pub fn fail(&self, why: String) {
        self.condition.fail(why);
    }
}

#[cfg(test)]
mod tests {
    use ccm_runtime::health::{Health, Scope};
    use ccm_testing::Log;

    use super::*;

    fn odd(ids: &[&str], of: usize) -> Option<String> {
        let why = |_: &str| "names the region b".to_owned();
        Oddity::of_foreign(ids, of, &["sim".to_owned()], why).map(|oddity| oddity.to_string())
    }

    #[test]
    fn most_nodes_of_another_provider_are_odd() {
        let k3s = |count: usize, of: usize| {
            let what = "nodes have provider IDs of k3s; is its cloud controller still on?";
            Some(format!("{count} of {of} {what}"))
        };
        assert_eq!(odd(&["k3s://a", "k3s://b"], 2), k3s(2, 2));
        assert_eq!(odd(&["k3s://a", "k3s://b"], 3), k3s(2, 3));
        assert_eq!(odd(&["k3s://a"], 2), None, "half of them");
        assert_eq!(odd(&[], 3), None);
        assert_eq!(odd(&[], 0), None);
        let several = odd(&["aws:///z/i-1", "k3s://b", "aws:///z/i-2"], 3).unwrap();
        assert!(several.contains("3 of 3 nodes have provider IDs of aws, k3s;"), "{several}");
        assert!(odd(&["no id"], 1).is_some_and(|text| text.contains("of no id;")));
        let elsewhere = odd(&["sim://b/i-1"], 1).unwrap();
        let what = "1 of 1 nodes are not served here; the first: provider ID sim://b/i-1 names the region b";
        assert_eq!(elsewhere, what);
        let forged = odd(&["sim://b/i-1\nERROR forged\u{1b}[31m"], 1).unwrap();
        assert!(forged.contains("provider ID sim://b/i-1 ERROR forged [31m names"), "{forged:?}");
    }

    #[test]
    fn an_oddity_is_told_once() {
        let (log, health) = (Log::new(), Health::default());
        let _listening = log.listen(tracing::Level::WARN);
        let condition = health.condition("fleet", Scope::Information, "");
        let mut line = FleetLine::new(condition.clone());
        for of in 1..4 {
            line.show(Oddity::of_answers(0, of).as_ref(), "well");
        }
        let what = "0 of 3 initialised nodes found: wrong project, region or credentials?";
        assert_eq!(condition.verdict().detail(), what);
        assert_eq!(log.text().matches("initialised nodes found").count(), 1, "{}", log.text());
        line.show(Oddity::of_answers(1, 3).as_ref(), "well");
        assert!(condition.verdict().is_passed());
        assert_eq!(Oddity::of_answers(0, 0), None, "no node is initialised yet");
    }
}
