//! Taints that an earlier controller has left: nothing removes them, so no pod is scheduled on their nodes. A program
//! names them and leaves them alone, because they are another controller's.
//!
//! The controller of such a taint removes it within seconds, so only one that stays for much longer counts.

use std::{collections::HashMap, mem, sync::Arc, time::Duration};

use ccm_base::{At, clock::Timeline, duration::in_words};
use ccm_kube::store::Store;
use ccm_metrics::{Every, Family, Gauge, label, level, metrics};
use ccm_objects::{Node, node_keys};
use ccm_runtime::{
    health::{Condition, Scope},
    metrics::Metrics,
    program::{Context, Program},
};
use strum::{IntoStaticStr, VariantArray, VariantNames};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::reports::{LogLine, Report, Reports, When};

/// How long a taint stays before it counts as left over.
const LONG: Duration = Duration::from_mins(15);
/// The time between two looks.
const PERIOD: Duration = Duration::from_mins(1);
/// The reason of the event.
const REASON: &str = "TaintLeftOver";

/// A taint that only one kind of controller removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr, VariantArray, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum LeftOver {
    /// The kubelet sets it, and the controller that initialises nodes removes it.
    Uninitialized,
    /// The controller of the end of nodes sets it, and removes it from a node that is Ready.
    Shutdown,
}

label!(LeftOver);

impl LeftOver {
    /// Returns the key of the taint.
    const fn key(self) -> &'static str {
        match self {
            Self::Uninitialized => node_keys::UNINITIALIZED,
            Self::Shutdown => node_keys::SHUTDOWN,
        }
    }

    /// Returns the cause, and the remedy.
    const fn what(self) -> &'static str {
        match self {
            Self::Uninitialized => {
                "no controller has initialised it: node-ccm does not run, or its page /plan says why it does not"
            }
            Self::Shutdown => {
                "the node is Ready, and no controller removes the taint: lifecycle-ccm does not run, or it does not serve this node; if its machine runs, remove the taint"
            }
        }
    }
}

metrics! {
    /// Counts nodes with such taints.
    struct LeftOverMetrics {
        /// Nodes with a taint that nothing has removed for 15 minutes although a cloud controller should have, on the leader
        [ALPHA] ccm_left_over_taints { taint } => nodes: Family<Gauge, LeftOver>, begin Every;
    }
}

/// The time of the first look that showed a taint, and true if it was reported, by the UID of the node.
#[derive(Debug, Default)]
struct TaintedNodes(HashMap<(Box<str>, LeftOver), (At, bool)>);

/// A node whose taint stays.
#[derive(Debug)]
struct LeftOverTaint {
    node: Arc<Node>,
    taint: LeftOver,
    is_news: bool,
}

impl TaintedNodes {
    /// Takes the nodes that have such a taint now. Returns the nodes that have had it for long.
    fn look(
        &mut self,
        now: At,
        tainted: impl Iterator<Item = (Arc<Node>, LeftOver)>,
    ) -> Vec<LeftOverTaint> {
        let before = mem::take(&mut self.0);
        let mut found = Vec::new();
        for (node, taint) in tainted {
            let key = (node.uid.clone(), taint);
            let (since, is_told) = before.get(&key).copied().unwrap_or((now, false));
            let is_left = now.since(since) >= LONG;
            self.0.insert(key, (since, is_told || is_left));
            if is_left {
                found.push(LeftOverTaint { node, taint, is_news: !is_told });
            }
        }
        found
    }
}

/// Looks for taints that an earlier controller has left.
pub struct Survey {
    line: Condition,
    metrics: LeftOverMetrics,
    reports: Reports,
}

impl Survey {
    /// Creates the survey of a program whose [`log_here`](crate::log_here) is `log`. Its line of
    /// `/readyz?verbose` and its metric appear at once.
    pub fn new<P: Program>(context: &Context<P>, log: fn(&LogLine<'_>)) -> Self {
        let line = context.health.condition("left-over-taints", Scope::Information, "");
        line.pass("not looked yet: this replica does not lead");
        let reports = Reports::new(context.events.clone(), Duration::ZERO, log);
        Self { line, metrics: LeftOverMetrics::new(&context.metrics), reports }
    }

    /// Looks until the token is cancelled. `taint` says which taint of a node concerns this
    /// program: only one program should report each taint.
    pub async fn run(
        self: Arc<Self>,
        store: Store<Node>,
        taint: impl Fn(&Node) -> Option<LeftOver> + Send,
        token: CancellationToken,
    ) {
        let look = async {
            let (timeline, mut seen) = (Timeline::begin(), TaintedNodes::default());
            loop {
                let nodes = store.list().into_iter().filter(|node| !node.deleting);
                let tainted = nodes.filter_map(|node| Some((taint(&node)?, node)));
                let tainted = tainted.map(|(taint, node)| (node, taint));
                self.show(&seen.look(timeline.now(), tainted));
                sleep(PERIOD).await;
            }
        };
        token.run_until_cancelled(look).await;
    }

    fn show(&self, found: &[LeftOverTaint]) {
        for one in found.iter().filter(|one| one.is_news) {
            let key = one.taint.key();
            let (long, what) = (in_words(LONG), one.taint.what());
            let text = format!("the taint {key} has stayed for {long}: {what}");
            let report = Report::of_node(&one.node, REASON, one.taint.into(), &text);
            self.reports.report(&one.node.reference(), When::Always, report);
        }
        let texts: Vec<_> = <LeftOver as VariantArray>::VARIANTS
            .iter()
            .filter_map(|taint| {
                let mut nodes = found.iter().filter(|one| one.taint == *taint);
                self.metrics.nodes.series(*taint).set(level(nodes.clone().count()));
                let (count, first) = (nodes.clone().count(), nodes.next()?);
                let (name, key) = (&first.node.name, taint.key());
                Some(format!("{count} nodes keep the taint {key}, first {name}: {}", taint.what()))
            })
            .collect();
        match texts.is_empty() {
            true => self.line.pass("none"),
            false => self.line.fail(texts.join(". ")),
        }
    }
}

/// Registers the metric, for the metrics reference.
pub fn specimens(metrics: &Metrics) {
    LeftOverMetrics::new(metrics).specimens();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> Arc<Node> {
        Arc::new(Node { name: name.into(), uid: name.into(), ..Node::default() })
    }

    fn at(minutes: u64) -> At {
        At(Duration::from_mins(minutes))
    }

    #[test]
    fn only_what_stays_for_long_is_left_over_and_is_told_once() {
        let mut seen = TaintedNodes::default();
        let mut look = |minutes, names: &[&str]| {
            let tainted = names.iter().map(|name| (node(name), LeftOver::Shutdown));
            let found = seen.look(at(minutes), tainted);
            let texts = found.iter().map(|one| format!("{} {}", one.node.name, one.is_news));
            texts.collect::<Vec<_>>().join(", ")
        };
        assert_eq!(look(0, &["a"]), "");
        assert_eq!(look(14, &["a", "b"]), "");
        assert_eq!(look(15, &["a", "b"]), "a true");
        assert_eq!(look(16, &["a", "b"]), "a false");
        assert_eq!(look(29, &["b"]), "b true");
        assert_eq!(look(30, &["a"]), "", "it was removed in between");
        assert_eq!(look(45, &["a"]), "a true");
    }
}
