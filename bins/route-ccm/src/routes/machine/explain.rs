//! Explains a node or a route on the page `/explain`. It rehearses the plan, so it shows what
//! route-ccm would decide now.

mod changes;
mod whose;

use std::time::Duration;

use ccm_base::At;
use ccm_cloud::Route;
use ccm_objects::ObjectRef;
use ccm_runtime::explain::{Explanation, NOTHING, ObjectState, moment};
use ipnet::IpNet;

use self::{changes::explain_failure, whose::there};
use super::{Machine, Pass};
use crate::{
    networks::network,
    routes::plan::{
        Lack, LackSource, Plan, Planned,
        condition::{NETWORK_UNAVAILABLE, Status, of_routes},
        table::Table,
        targets::is_target,
        wanted::{ASSIGN, LONGEST_ID, LeftOut, NodeView, Problem},
    },
};

const NOT_LISTED: &str = "this replica does not lead, and has not listed the cloud's routes";

/// The inputs of an explanation, besides the memory.
pub(crate) struct Asked {
    /// The nodes as they are now, and what the cloud offers.
    pub(crate) pass: Pass,
    /// The reason why route-ccm excludes the node, if it does.
    pub(crate) left_out: Option<String>,
    /// The explanation of node IPAM for a node without pod CIDRs, if this program assigns pod CIDRs.
    pub(crate) ipam: Option<Explanation>,
    /// The Lease, on which a person approves changes.
    pub(crate) lease: ObjectRef,
}

/// The facts about all routes.
struct About<'a> {
    asked: &'a Asked,
    table: &'a Table,
    plan: Plan,
    now: At,
}

impl Machine {
    /// Explains the routes of a node.
    pub(crate) fn explain_node(&self, name: &str, asked: &Asked, now: At) -> Explanation {
        let view = asked.pass.nodes.iter().find(|view| *view.node.name == *name);
        let about = self.about(asked, now);
        let mut explanation = match (view, &about) {
            (Some(view), about) if view.left_out.is_some() => {
                self.left_out(view, about.as_ref(), asked)
            }
            (Some(view), about) if view.node.pod_cidrs.is_empty() => {
                self.without_cidrs(view, about.is_some(), asked, now)
            }
            (Some(_), None) => self.unlisted(asked, now),
            (None, None) => self.not_shown(name),
            (Some(view), Some(about)) => self.with_cidrs(view, about),
            (None, Some(about)) => self.no_node(name, about),
        };
        let destinations: Vec<IpNet> = match (view, &about) {
            (Some(view), about) => {
                let elsewhere = about.iter().flat_map(|about| about.leading_to(view));
                let mut all: Vec<IpNet> = view.pod_cidrs().chain(elsewhere).collect();
                all.dedup();
                all
            }
            (None, Some(about)) => self.destinations_of(name, about),
            (None, None) => Vec::new(),
        };
        let served = view.filter(|view| view.left_out.is_none());
        explanation.wanted = served.iter().flat_map(|view| wanted(view)).collect();
        if let Some(about) = &about {
            explanation.there =
                there(&self.listing, &destinations, &self.titles(&destinations, about));
        }
        explanation.there.extend(view.iter().flat_map(|view| shown(view)));
        self.complete(explanation, about.as_ref(), asked, now)
    }

    /// Explains the routes of one destination.
    pub(crate) fn explain_route(&self, name: &str, asked: &Asked, now: At) -> Explanation {
        let Some(destination) = network(name.trim()).map(|cidr| cidr.trunc()) else {
            let cause = format!("{name:?} is not a CIDR");
            return Explanation::new(
                ObjectState::Unknown,
                cause,
                "use kind=Route&name=10.244.1.0/24",
            );
        };
        let Some(about) = self.about(asked, now) else { return self.unlisted(asked, now) };
        let view = about.node_with(destination);
        let titles = self.titles(&[destination], &about);
        let mut explanation = match (self.change_of(destination, &about), view) {
            (Some(change), _) => change,
            (None, Some(view)) => self.route_of(destination, view, &about),
            (None, None) => self.of_nobody(destination, &titles, &about),
        };
        explanation.wanted = match view {
            Some(view) => vec![format!("a route to node {}, whose pod CIDR it is", view.node.name)],
            None => vec!["no route: no node has this pod CIDR".to_owned()],
        };
        explanation.there = there(&self.listing, &[destination], &titles);
        self.complete(explanation, Some(&about), asked, now)
    }

    fn about<'a>(&'a self, asked: &'a Asked, now: At) -> Option<About<'a>> {
        let table = self.listing.table.as_ref()?;
        let plan = self.rehearse(&asked.pass, now)?;
        Some(About { asked, table, plan, now })
    }

    /// Explains a node that does not get routes. A route that leads to it waits for a person.
    fn left_out(&self, view: &NodeView, about: Option<&About<'_>>, asked: &Asked) -> Explanation {
        let held = about.and_then(|about| self.elsewhere(view, about).into_iter().next());
        let why = asked.left_out.as_deref().unwrap_or("it is excluded");
        let fix = match view.left_out {
            Some(LeftOut::NotSelected) => {
                "nothing has to be done; if it should get routes, change its labels or --node-selector"
            }
            _ => {
                "nothing has to be done; if it is a machine of this cloud, its Node has to register again with the right provider ID"
            }
        };
        held.unwrap_or_else(|| {
            Explanation::new(
                ObjectState::Foreign,
                format!("the node does not get routes: {why}"),
                fix,
            )
        })
    }

    fn without_cidrs(
        &self,
        view: &NodeView,
        is_listed: bool,
        asked: &Asked,
        now: At,
    ) -> Explanation {
        let cause = "the node has no podCIDRs, so it does not get a route";
        match &asked.ipam {
            _ if view.node.deleting => Explanation::fine(
                "the node is being deleted without podCIDRs, and does not get a route any more",
            ),
            // Node IPAM may wait for the list.
            Some(ipam) if ipam.state == ObjectState::Working && !is_listed => {
                self.unlisted(asked, now)
            }
            Some(ipam) => {
                let cause = format!("{cause}; node-ipam says: {}", ipam.cause);
                Explanation::new(ipam.state, cause, &*ipam.fix)
            }
            None if !self.leads => Explanation::new(ObjectState::Unknown, cause, ask_leader(asked)),
            None if self.progress.is_bare(now, &view.node.name) => {
                Explanation::new(ObjectState::Blocked, cause, ASSIGN)
            }
            None => {
                let cause = "the node does not have podCIDRs yet, and its routes follow them";
                Explanation::new(ObjectState::Working, cause, "wait: another program assigns them")
            }
        }
    }

    /// Explains a node that the API server does not show while route-ccm has not listed the cloud's
    /// routes yet.
    fn not_shown(&self, name: &str) -> Explanation {
        let unlisted = match self.leads {
            true => self.listing.why_unlisted(),
            false => NOT_LISTED.to_owned(),
        };
        let cause = format!("the API server does not show a node {name:?}; {unlisted}");
        Explanation::new(ObjectState::Unknown, cause, "check the name")
    }

    /// Explains a node while route-ccm has not listed the cloud's routes yet.
    fn unlisted(&self, asked: &Asked, now: At) -> Explanation {
        if !self.leads {
            return Explanation::new(ObjectState::Unknown, NOT_LISTED, ask_leader(asked));
        }
        let why = self.listing.why_unlisted();
        let mut explanation = match &self.listing.error {
            Some(error) => Explanation::of_error(error, why),
            None => Explanation::new(ObjectState::Working, why, "wait for the first list"),
        };
        explanation.next = self.listing.next_list(now);
        explanation
    }

    fn with_cidrs(&self, view: &NodeView, about: &About<'_>) -> Explanation {
        let own = view.pod_cidrs().map(|cidr| self.route_of(cidr, view, about));
        let unreadable = about.problems(view).filter(|one| matches!(one, Problem::Unreadable(_)));
        let unreadable = unreadable.map(of_problem);
        let parts: Vec<_> = own.chain(unreadable).chain(self.elsewhere(view, about)).collect();
        let is_fine = parts.iter().all(|part| part.state == ObjectState::Fine);
        let condition = is_fine.then(|| self.condition_differs(view, about)).flatten();
        condition.or_else(|| worst(parts)).unwrap_or_default()
    }

    /// Explains a node whose routes all exist although its condition says something else.
    fn condition_differs(&self, view: &NodeView, about: &About<'_>) -> Option<Explanation> {
        let (name, now) = (&view.node.name, about.now);
        // Before the next pass the memory knows less than the plan.
        let due = of_routes(&view.node, about.plan.nodes.get(name)?, Duration::ZERO);
        let due = due.filter(|due| due.moves && due.status == Status::False)?;
        let status = due.status.as_str();
        if let Err(repeated) = self.check_repeats(now, name, due.status, due.moves) {
            let cause = format!("all routes exist, but {repeated}");
            let fix = format!(
                "find what sets {NETWORK_UNAVAILABLE} of the node again, a network plugin or an admission policy: kubectl get node {name} -o yaml --show-managed-fields"
            );
            let next = format!("the condition is written {}", moment(now + repeated.wait, now));
            return Some(Explanation {
                next,
                ..Explanation::new(ObjectState::Blocked, cause, fix)
            });
        }
        let cause = format!(
            "all routes exist, but the condition {NETWORK_UNAVAILABLE}={status} is not written yet"
        );
        if self.fixed.is_observing {
            return Some(Explanation::observed(&cause));
        }
        let fix = "wait; if it lasts, the log says `cannot write NetworkUnavailable`, with the API server's words";
        Some(Explanation::new(ObjectState::Working, cause, fix))
    }

    /// Returns the routes that lead to a node and have another destination than its pod CIDRs, if
    /// something is decided.
    fn elsewhere(&self, view: &NodeView, about: &About<'_>) -> Vec<Explanation> {
        let others = about.leading_to(view).into_iter();
        others.filter_map(|destination| self.change_of(destination, about)).collect()
    }

    /// Explains a node that the API server does not show.
    fn no_node(&self, name: &str, about: &About<'_>) -> Explanation {
        let of_it = self.destinations_of(name, about).into_iter();
        let parts = of_it.filter_map(|destination| self.change_of(destination, about)).collect();
        worst(parts).unwrap_or_else(|| {
            let cause = format!(
                "the API server does not show a node {name:?}, and route-ccm does not plan anything for routes of it, by {}",
                self.listing.known_by(about.now)
            );
            let fix = "check the name; a route is explained by kind=Route&name=CIDR";
            Explanation::new(ObjectState::Unknown, cause, fix)
        })
    }

    /// Returns the destinations of the routes of a node that is gone: a node that this process has
    /// seen, or that is recorded.
    fn destinations_of(&self, name: &str, about: &About<'_>) -> Vec<IpNet> {
        let was_its = |route: &Route| {
            let former = route.target.as_ref().and_then(|target| self.former.get(target));
            let owner = route.owner.as_ref();
            let owner = owner.filter(|owner| owner.cluster.uid == self.fixed.cluster.uid);
            former.is_some_and(|former| *former.node.name == *name)
                || owner.is_some_and(|owner| owner.name == name)
        };
        let all = about.table.destinations();
        all.filter(|destination| about.table.to(*destination).iter().any(was_its)).collect()
    }

    /// Returns the route of a pod CIDR of this node.
    fn route_of(&self, cidr: IpNet, view: &NodeView, about: &About<'_>) -> Explanation {
        let state = about.plan.nodes.get(&view.node.name);
        if let Some(lack) = state.and_then(|state| state.lacks(cidr)) {
            return self.missing(cidr, lack, view, about);
        }
        let leads = |route: &&Route| route.target.as_ref().is_some_and(|to| is_target(to, view));
        let there = about.table.to(cidr).iter().filter(leads).find(|one| one.defect.is_none());
        let seen = self.listing.known_by(about.now);
        if let Some(problem) = about.problems(view).find(|problem| problem.concerns(cidr)) {
            let mut explanation = of_problem(problem);
            match problem {
                Problem::Lent { .. } => {
                    explanation.state = ObjectState::Fine;
                    explanation.cause =
                        format!("its route exists, by {seen}; {}", explanation.cause);
                }
                Problem::Outside(cidr) if there.is_some() => {
                    explanation.state = ObjectState::Fine;
                    explanation.cause = format!(
                        "its route exists, by {seen}, but route-ccm would not create it again: pod CIDR {cidr} is not inside --cluster-cidr"
                    );
                }
                Problem::WiderThanMost { .. } => {
                    let approve = about.approve(Some(&view.node.labels));
                    explanation.fix =
                        format!("set --max-pod-cidr; or, if this one is right: {approve}");
                }
                _ => {}
            }
            return explanation;
        }
        let to = there.and_then(|route| route.target.as_ref());
        let to = to.map(|target| format!(" to {target}")).unwrap_or_default();
        Explanation::fine(format!("the route of {cidr}{to} exists, by {seen}"))
    }

    fn missing(&self, cidr: IpNet, lack: &Lack, view: &NodeView, about: &About<'_>) -> Explanation {
        if let Some(change) = self.change_of(cidr, about) {
            return change;
        }
        match (lack.source, self.planner.failures.get(cidr)) {
            (LackSource::Node, _) => of_node_ccm(lack, view),
            (LackSource::Change, Some(failure)) => {
                explain_failure(&format!("the change of the route of {cidr}"), failure, about)
            }
            _ if lack.has_failed => {
                let fix =
                    lack.fix.as_deref().unwrap_or("fix the problem in the cause in the cloud");
                Explanation::new(ObjectState::Blocked, &*lack.cause, fix)
            }
            _ => {
                let next = self.planner.asks_at(about.now).map(|at| moment(at, about.now));
                let next = next.map(|at| format!("the cloud is asked again {at}"));
                let fix = "wait: the cloud is asked again automatically; a target is gone if it says so twice, at least a minute apart";
                let explanation = Explanation::new(ObjectState::Working, &*lack.cause, fix);
                Explanation { next: next.unwrap_or_default(), ..explanation }
            }
        }
    }

    /// Adds what holds for all objects: when the table was seen, and when it is listed again.
    fn complete(
        &self,
        mut explanation: Explanation,
        about: Option<&About<'_>>,
        asked: &Asked,
        now: At,
    ) -> Explanation {
        if about.is_some() {
            explanation
                .last
                .push(format!("the routes are known by {}", self.listing.known_by(now)));
        }
        let approval = asked.pass.parameters.approval.as_ref();
        explanation
            .last
            .extend(approval.map(|approval| format!("approved on the Lease: {approval}")));
        if explanation.next.is_empty() && self.leads {
            explanation.next = self.listing.next_list(now);
        }
        explanation
    }
}

impl About<'_> {
    fn planned(&self, destination: IpNet) -> Option<&Planned> {
        self.plan.changes.iter().find(|planned| planned.change.destination() == destination)
    }

    fn problems<'a>(&'a self, view: &'a NodeView) -> impl Iterator<Item = &'a Problem> {
        let all = self.plan.problems.iter();
        all.filter(|(name, _)| *name == view.node.name).map(|(_, problem)| problem)
    }

    /// Returns the node that has the pod CIDR. If several have it, it returns the one
    /// that gets the route.
    fn node_with(&self, cidr: IpNet) -> Option<&NodeView> {
        let served = self.asked.pass.nodes.iter().filter(|view| view.left_out.is_none());
        let have: Vec<_> = served.filter(|view| view.pod_cidrs().any(|one| one == cidr)).collect();
        let has_no_problem = |view: &&&NodeView| !self.problems(view).any(|one| one.concerns(cidr));
        have.iter().find(has_no_problem).or(have.first()).copied()
    }

    /// Returns the destinations of routes that lead to a node, besides its pod CIDRs. All of them,
    /// if the node is excluded.
    fn leading_to(&self, view: &NodeView) -> Vec<IpNet> {
        let leads = |route: &Route| route.target.as_ref().is_some_and(|to| is_target(to, view));
        let is_own =
            |cidr: &IpNet| view.left_out.is_none() && view.pod_cidrs().any(|one| one == *cidr);
        let others = self.table.destinations().filter(|cidr| !is_own(cidr));
        others.filter(|cidr| self.table.to(*cidr).iter().any(leads)).collect()
    }
}

/// Explains a problem of a pod CIDR.
fn of_problem(problem: &Problem) -> Explanation {
    Explanation::new(ObjectState::Blocked, problem.cause(), problem.fix())
}

/// Explains a node that lacks data from node-ccm.
fn of_node_ccm(lack: &Lack, view: &NodeView) -> Explanation {
    let state = match view.node.is_uninitialised() {
        true => ObjectState::Working,
        false => ObjectState::Blocked,
    };
    let (fix, name) = (lack.fix.as_deref().unwrap_or_default(), &view.node.name);
    let fix =
        format!("{fix}: ask the page /explain?kind=Node&name={name} of node-ccm why it has not");
    Explanation::new(state, &*lack.cause, fix)
}

/// Returns the advice of a replica that does not lead.
fn ask_leader(asked: &Asked) -> String {
    let lease = &asked.lease;
    format!(
        "ask the replica that leads: kubectl -n {} get lease {} -o jsonpath={{.spec.holderIdentity}}",
        lease.namespace.as_deref().unwrap_or_default(),
        lease.name
    )
}

/// Returns the part that needs a person most, followed by the other parts.
fn worst(mut parts: Vec<Explanation>) -> Option<Explanation> {
    let rank = |part: &Explanation| match part.state {
        ObjectState::Blocked => 4,
        ObjectState::Held => 3,
        ObjectState::Working => 2,
        _ => u8::from(part.fix != NOTHING),
    };
    let most = parts.iter().map(rank).max()?;
    let place = parts.iter().position(|part| rank(part) == most)?;
    let mut chosen = parts.remove(place);
    let also = parts.iter().map(|part| format!("{} as well: {}", part.state, part.cause));
    chosen.last.extend(also);
    Some(chosen)
}

fn wanted(view: &NodeView) -> Vec<String> {
    let ips: Vec<String> = view.ips().map(|ip| ip.to_string()).collect();
    let id = match (&view.id, &view.node.provider_id) {
        (Some(id), _) => id.to_string(),
        (None, Some(text)) => {
            let begin: String = text.chars().take(LONGEST_ID).collect();
            format!("{begin:?} is not a provider ID")
        }
        (None, None) => "no provider ID".to_owned(),
    };
    let ips = if ips.is_empty() { "no InternalIP".to_owned() } else { ips.join(", ") };
    let name = &view.node.name;
    view.pod_cidrs().map(|cidr| format!("a route of {cidr} to node {name} ({id}; {ips})")).collect()
}

/// Returns the present state of the node, in words.
fn shown(view: &NodeView) -> Vec<String> {
    let conditions = view.node.conditions.iter().filter(|one| *one.kind == *NETWORK_UNAVAILABLE);
    let lines = conditions.map(|one| {
        let text =
            |text: &Option<ccm_objects::Shared>| text.as_deref().unwrap_or_default().to_owned();
        let (reason, message) = (text(&one.reason), text(&one.message));
        format!("condition {}={} {reason}: {message}", one.kind, one.status)
    });
    let deleting = view
        .node
        .deleting
        .then(|| "the node is being deleted: its routes stay until it is gone".to_owned());
    lines.chain(deleting).collect()
}

#[cfg(test)]
mod tests;
