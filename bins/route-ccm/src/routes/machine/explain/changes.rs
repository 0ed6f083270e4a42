//! A change of a route that is under way, due, held or failing.

use ccm_cloud::{CloudError, ErrorKind, Route, RouteTarget};
use ccm_controller::brake::{
    Hold,
    approval::{SELECTOR, UNTIL},
};
use ccm_objects::Labels;
use ccm_runtime::explain::{Explanation, ObjectState, WAIT, moment, since};
use ipnet::IpNet;

use super::{About, Machine};
use crate::routes::plan::{Held, Planned, failures::Failure, targets::is_target};

/// The label by which an approval is about one node.
const HOSTNAME: &str = "kubernetes.io/hostname";
/// The warning with an approval that covers all nodes.
const ALL: &str = " (this approves all routes that are held: look at /plan first)";

impl Machine {
    /// Returns the change of this destination that is under way or decided, if there is one.
    pub(super) fn change_of(&self, destination: IpNet, about: &About<'_>) -> Option<Explanation> {
        let planned = about.planned(destination);
        let failure = self.planner.failures.get(destination);
        let what = || planned.map_or(format!("the change of the route of {destination}"), named);
        if let Some(sent) = self.planner.in_flight.since(destination) {
            let next = format!("a call to the cloud is under way, {}", since(sent, about.now));
            let sent = moment(sent, about.now);
            return Some(match failure {
                Some(failure) => Explanation { next, ..explain_failure(&what(), failure, about) },
                None => {
                    let cause = format!(
                        "the change of the route of {destination} was sent {sent}, and the cloud has not answered yet"
                    );
                    Explanation { next, ..Explanation::new(ObjectState::Working, cause, WAIT) }
                }
            });
        }
        let planned = planned?;
        Some(match &planned.held {
            Some(Held::Brake(hold)) => self.held(planned, *hold, about),
            Some(held @ (Held::NewlyInside { .. } | Held::LeftOut { .. })) => {
                let cause = format!("{} is held: {held}", named(planned));
                Explanation::new(
                    ObjectState::Held,
                    cause,
                    format!("if it should be deleted: {}", self.approve(planned, about)),
                )
            }
            Some(held @ Held::NoRoom) => Explanation::new(
                ObjectState::Blocked,
                format!("{} is held: {held}", named(planned)),
                "raise the quota of the cloud's route table, or remove routes that are not needed; a deleted route of this cluster also makes room",
            ),
            Some(Held::Retry(_)) | None => match failure {
                Some(failure) => explain_failure(&named(planned), failure, about),
                None => self.due(planned),
            },
        })
    }

    fn due(&self, planned: &Planned) -> Explanation {
        if self.fixed.is_observing {
            return Explanation::observed("");
        }
        let cause = format!("{} is due ({}), and not sent yet", named(planned), planned.why);
        Explanation::new(ObjectState::Working, cause, WAIT)
    }

    /// Explains a change that the brake holds.
    fn held(&self, planned: &Planned, hold: Hold, about: &About<'_>) -> Explanation {
        let (words, why) = (named(planned), &planned.why);
        let approve = self.approve(planned, about);
        let asks = self.planner.asks_at(about.now);
        let asks = asks.map(|at| {
            format!("route-ccm asks the cloud if a target is gone {}", moment(at, about.now))
        });
        let (cause, fix, free) = match hold {
            Hold::Breaker => (
                format!("{words} is held ({why}): the API server's list has no nodes at all"),
                format!(
                    "find out why the list is empty; if the cluster really does not have nodes: {approve}"
                ),
                None,
            ),
            Hold::Budget { until: None } => (
                format!("{words} is held ({why}): --route-loss=0 does not allow any deletion"),
                format!("raise --route-loss; or, if the node is really gone: {approve}"),
                None,
            ),
            Hold::Budget { until: Some(until) } => (
                format!(
                    "{words} is held ({why}): as many routes were deleted as --route-loss allows within --route-loss-window"
                ),
                format!(
                    "if the node is really gone: {approve}; otherwise wait: it is deleted when the budget allows it, or when the cloud has proven twice that its target is gone"
                ),
                Some(format!("the budget may allow it {}", moment(until, about.now))),
            ),
        };
        let next: Vec<String> = free.into_iter().chain(asks).collect();
        Explanation { next: next.join("; "), ..Explanation::new(ObjectState::Held, cause, fix) }
    }

    fn approve(&self, planned: &Planned, about: &About<'_>) -> String {
        about.approve(planned.old().and_then(|old| self.labels_of(old, about)))
    }

    /// Returns the labels by which an approval covers the route.
    fn labels_of<'a>(&'a self, old: &Route, about: &'a About<'_>) -> Option<&'a Labels> {
        let target: &RouteTarget = old.target.as_ref()?;
        let nodes = about.asked.pass.nodes.iter();
        let mut present = nodes.filter(|view| is_target(target, view));
        let present = present.next().map(|view| &view.node);
        let node = present.or_else(|| Some(&self.former.get(target)?.node))?;
        Some(&node.labels)
    }
}

impl About<'_> {
    /// Returns the command that approves what is held because of a node with these labels.
    pub(super) fn approve(&self, labels: Option<&Labels>) -> String {
        let selector = labels.and_then(|labels| labels.get(HOSTNAME));
        let (selector, warning) = match selector {
            Some(name) => (format!("{HOSTNAME}={name}"), ""),
            None => ("*".to_owned(), ALL),
        };
        let lease = &self.asked.lease;
        let namespace = lease.namespace.as_deref().unwrap_or_default();
        format!(
            "kubectl -n {namespace} annotate lease {} --overwrite '{SELECTOR}={selector}' \"{UNTIL}=$(date -u -d '+10 minutes' +%FT%TZ)\"{warning}",
            lease.name
        )
    }
}

/// Returns the change, as the subject of a sentence.
fn named(planned: &Planned) -> String {
    format!("the change `{}`", planned.words())
}

/// Explains a change whose last attempt has failed.
pub(super) fn explain_failure(what: &str, failure: &Failure, about: &About<'_>) -> Explanation {
    let Failure { retry, error, kind } = failure;
    let times = if retry.times == 1 { "once" } else { &*format!("{} times in a row", retry.times) };
    let mut explanation = match kind {
        Some(kind) => {
            let cause = match kind {
                ErrorKind::Pending => format!("the cloud is still making {what}: {error}"),
                _ => format!("{what} has failed {times}: {error}"),
            };
            Explanation::of_error(&CloudError::new(*kind, ""), cause)
        }
        None if retry.times > 0 => Explanation::new(
            ObjectState::Working,
            format!("the route exists, but does not carry traffic ({what}): {error}"),
            "wait: it is repaired automatically; if it lasts, fix the problem in the cause in the cloud",
        ),
        None => Explanation::new(
            ObjectState::Blocked,
            format!("the cloud does not keep the change: {error}"),
            "find out who undoes it in the cloud: another controller, another cluster or a person",
        ),
    };
    explanation.next = match retry.at > about.now {
        true => format!("it is tried again {}", moment(retry.at, about.now)),
        false => "it is tried again now".to_owned(),
    };
    explanation
}
