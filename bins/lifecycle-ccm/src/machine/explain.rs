//! Explains a node on the page `/explain` from the memory of the machine, without changing it.

mod gone;

use std::sync::Arc;

use ccm_base::At;
use ccm_cloud::{Claim, CloudError, Lookup, PowerState};
use ccm_controller::brake::Usage;
use ccm_kube::ApiError;
use ccm_objects::Node;
use ccm_runtime::explain::{Explanation, NOTHING, ObjectState, moment, refused_write};

use super::{Machine, last::Heard};
use crate::policy::{
    Breaker, Doubt, NodeView, Reason, Replaced, Verdict,
    action::{self, APPROVED, Action, GONE, PROTECTED},
    shutdown,
    text::kept,
};

/// Returns the reason why lifecycle-ccm excludes a node. The argument is true if `--node-selector`
/// selects the node.
pub(crate) type WhyLeftOut<'a> = &'a dyn Fn(&Node, bool) -> String;

/// A node, and all that explains it.
struct About<'a> {
    node: &'a Node,
    view: &'a NodeView,
    heard: Option<&'a Heard>,
    budget: Usage,
    now: At,
}

impl Machine {
    /// Explains a node as the API server shows it.
    pub(crate) fn explain(
        &self,
        object: Option<&Node>,
        why_left_out: WhyLeftOut<'_>,
        now: At,
    ) -> Explanation {
        let Some(node) = object else {
            return Explanation::new(
                ObjectState::Unknown,
                "the API server does not show a Node of this name",
                "check the name; a node that lifecycle-ccm has deleted has an event: kubectl get events -A --field-selector reason=DeletingNode --sort-by=.lastTimestamp",
            );
        };
        let views = self.views(now);
        let view = views.iter().find(|view| view.name == node.name && view.uid == node.uid);
        let Some(view) = view else { return unclaimed(node) };
        let is_looked = |view| self.decider.watched(view, &self.parameters.policy)?.0.looked;
        let heard =
            self.last.answer_about(&view.name, &view.uid).filter(|_| is_looked(view).is_some());
        let budget = self.decider.budget(now, &views, &self.parameters.policy);
        let about = About { node, view, heard, budget, now };
        let explanation = self.cause(&about, why_left_out);
        let next = Some(explanation.next).filter(|next| !next.is_empty());
        Explanation {
            wanted: wanted(&about),
            there: self.there(&about),
            last: self.last(&about),
            next: next.unwrap_or_else(|| self.next(&about)),
            ..explanation
        }
    }

    /// Describes the state of the node, the reason and the remedy, in the order in which the policy
    /// decides.
    fn cause(&self, about: &About<'_>, why_left_out: WhyLeftOut<'_>) -> Explanation {
        let About { node, view, .. } = *about;
        if !view.selected {
            let why = why_left_out(node, false);
            let fix = "nothing has to be done; to manage it, change its labels or --node-selector";
            return Explanation::new(ObjectState::Foreign, why, fix);
        }
        if view.claim == Claim::Foreign {
            let why = why_left_out(node, true);
            let fix = "nothing has to be done if another controller looks after it; if not, check the provider, its project and region in --cloud-config: a provider ID cannot be changed, so a wrong one needs the node registered again";
            return Explanation::new(ObjectState::Foreign, why, fix);
        }
        if view.deleting {
            let fix = format!(
                "wait until the owner of its last finalizer removes it: kubectl get node {} -o jsonpath='{{.metadata.finalizers}}'",
                node.name
            );
            return Explanation::new(ObjectState::Working, kept(Reason::Deleting).text, fix);
        }
        if view.is_well() {
            let fine = Explanation::fine("it is Ready, so the cloud is not asked about it");
            return self.awaits_marks(about, None).unwrap_or(fine);
        }
        let Some(heard) = about.heard else { return self.unheard(about) };
        match (heard.decision.verdict, &heard.said.result) {
            (Verdict::Keep(Reason::Exists), Ok(Lookup::Found(instance))) => {
                let marked = self.awaits_marks(about, Some(instance.power));
                marked.unwrap_or_else(|| exists(about.node, instance.power))
            }
            (Verdict::Keep(Reason::NotOurs), Ok(Lookup::NotOurs(why))) => {
                let cause = format!("{}: {why}", kept(Reason::NotOurs).text);
                Explanation::new(ObjectState::Foreign, cause, NOTHING)
            }
            (Verdict::Keep(Reason::NoAnswer), Err(error)) => unanswered(error),
            _ => self.gone(about, heard),
        }
    }

    /// Explains a node that is not Ready, and about which the cloud has not answered.
    fn unheard(&self, about: &About<'_>) -> Explanation {
        let not_ready = not_ready(about.node);
        match (self.decider.watched(about.view, &self.parameters.policy), &self.asked) {
            (Some(_), Some(asked)) => {
                let asked = moment(asked.answers.asked, about.now);
                let cause = format!(
                    "{not_ready}, and the cloud has not answered about it yet: the last lookup began {asked}"
                );
                let fix = "wait for the answer: a call takes no longer than --cloud-call-timeout";
                Explanation::new(ObjectState::Working, cause, fix)
            }
            (Some(_), None) => {
                let cause = format!("{not_ready}, and the cloud was not asked about it yet");
                Explanation::new(ObjectState::Working, cause, "wait for its turn")
            }
            (None, _) => Explanation::new(
                ObjectState::Unknown,
                format!("{not_ready}, and this replica has not looked it up yet"),
                "wait for the first lookup; only the replica that leads looks up nodes: ask it, and if this one leads, see the line stores of /readyz?verbose",
            ),
        }
    }

    /// Explains marks that do not fit the node's state: the shutdown taint, an approval or a proof.
    /// `None` if they do.
    fn awaits_marks(&self, about: &About<'_>, power: Option<PowerState>) -> Option<Explanation> {
        let node = Arc::new(about.node.clone());
        let removal = self.parameters.shutdown_taint_removal;
        let Action { write, .. } = action::marks(about.view, &node, power, removal)?;
        let action::Words { reason, what, .. } = write.words();
        let due = format!("{reason}; {what} is due");
        let repeats = self.written.get(&node.name);
        let repeated = repeats.and_then(|repeats| repeats.waiting(about.now).next());
        Some(if self.observes {
            Explanation::observed(&due)
        } else if let Some(failed) = self.last.failure(&node.name, &node.uid, false) {
            refused(&format!("{due}, and failed"), &failed.error)
        } else if let Some(repeated) = repeated {
            let fix = "find what reverts it: an admission webhook or policy, or another client that writes the node";
            let next = moment(about.now + repeated.wait, about.now);
            let next = format!("it is written again {next} at the earliest");
            let cause = format!("{due}: {repeated}");
            Explanation { next, ..Explanation::new(ObjectState::Blocked, cause, fix) }
        } else {
            Explanation::new(ObjectState::Working, due, NOTHING)
        })
    }

    fn there(&self, about: &About<'_>) -> Vec<String> {
        let About { node, view, budget, now, .. } = *about;
        let ready = node.condition("Ready").unwrap_or("not reported");
        let mut there = vec![format!("its condition Ready is {ready}")];
        let taint = node.taints.iter().find(|taint| taint.is(shutdown::KEY, shutdown::EFFECT));
        there.extend(taint.map(|_| format!("taint {}:{}", shutdown::KEY, shutdown::EFFECT)));
        if !view.is_watched() {
            return there;
        }
        if let Breaker::Open { since, cause } = self.decider.breaker() {
            there.push(format!(
                "the breaker opened {}, and is still open: {cause}",
                moment(*since, now)
            ));
        }
        let window = ccm_base::duration::format(self.parameters.policy.budget_window);
        let Usage { used, limit } = budget;
        there.push(format!("--node-deletion-budget: {used} of {limit} deletions within {window}"));
        there
    }

    fn last(&self, about: &About<'_>) -> Vec<String> {
        let About { view, now, .. } = *about;
        let heard = about.heard.map(|heard| {
            let said = match &heard.said.result {
                Ok(Lookup::Found(instance)) => {
                    format!("its instance exists ({})", in_words(instance.power))
                }
                Ok(Lookup::Gone(proof)) => format!("{GONE}: {proof}"),
                Ok(Lookup::NotOurs(why)) => format!("it is not this provider's: {why}"),
                Err(error) => error.to_string(),
            };
            format!("the cloud's answer {}: {said}", moment(heard.said.answered, now))
        });
        let failed = [(true, "its deletion"), (false, "the change of its marks")];
        let failed = failed.into_iter().filter_map(|(is_deletion, what)| {
            let failed = self.last.failure(&view.name, &view.uid, is_deletion)?;
            Some(format!("{what} failed {}: {}", moment(failed.at, now), failed.error))
        });
        let fleet = self.last.fleet().filter(|_| view.is_watched());
        let fleet = fleet.map(|(at, error)| {
            format!("the check of the fleet failed {}: {error}", moment(*at, now))
        });
        heard.into_iter().chain(failed).chain(fleet).collect()
    }

    /// Returns true if lifecycle-ccm does not delete the node, whatever the cloud says, because the node is Ready.
    fn is_reported(&self, view: &NodeView) -> bool {
        view.ready && self.parameters.policy.replaced == Replaced::Report
    }

    /// Returns when the kubelet of this node was last seen alive after the cloud denied the
    /// instance, if lifecycle-ccm does not know yet whether it is still alive.
    fn lived(&self, about: &About<'_>) -> Option<At> {
        let Heard { said, decision } = about.heard?;
        let Verdict::Suspect { why, .. } = decision.verdict else { return None };
        let is_open = match why {
            Doubt::Unconfirmed => true,
            Doubt::NoHeartbeat => said.heartbeat.is_some(),
            _ => false,
        };
        self.last.alive(&about.view.name, &about.view.uid).filter(|_| is_open)
    }

    fn next(&self, about: &About<'_>) -> String {
        let About { view, now, .. } = *about;
        let policy = &self.parameters.policy;
        if view.in_reach() && view.is_well() {
            let failed = self.last.failure(&view.name, &view.uid, false);
            return match failed.filter(|_| self.awaits_marks(about, None).is_some()) {
                Some(_) => {
                    let period = ccm_base::duration::format(policy.monitor_period);
                    format!("it is written again within {period}")
                }
                None => "when it stops being Ready, at once".to_owned(),
            };
        }
        let Some((record, due)) = self.decider.watched(view, policy).filter(|_| view.is_watched())
        else {
            return String::new();
        };
        let lookup = match &self.asked {
            _ if due > now => format!("the next lookup is due {}", moment(due, now)),
            Some(asked) => {
                format!("a lookup is in progress, begun {}", moment(asked.answers.asked, now))
            }
            None => "the next lookup is due now".to_owned(),
        };
        let case = record.case.as_ref();
        let case = case.filter(|_| !self.is_reported(view) && self.lived(about).is_none());
        let earliest = case.map(|case| {
            let (periods, _) = case.needs(self.decider.lists());
            case.opened() + policy.confirmation_period * periods
        });
        match earliest.filter(|earliest| *earliest > now) {
            Some(earliest) => {
                format!("{lookup}; its deletion {} at the earliest", moment(earliest, now))
            }
            None => lookup,
        }
    }
}

/// Explains a node whose instance exists, and whose marks agree with the cloud.
fn exists(node: &Node, power: PowerState) -> Explanation {
    let (not_ready, name) = (not_ready(node), &node.name);
    let is_off = node.taints.iter().any(|taint| taint.is(shutdown::KEY, shutdown::EFFECT));
    let (cause, fix) = match power {
        PowerState::Stopped if is_off => (
            format!(
                "its machine is shut down in the cloud, so it has the taint {}",
                shutdown::KEY
            ),
            "start the machine in the cloud, or delete it there if it is not needed: then the node is deleted".to_owned(),
        ),
        PowerState::Running if is_off => (
            format!("{not_ready}, and its instance runs; the taint {} stays until it is Ready", shutdown::KEY),
            format!("check its kubelet and its network (kubectl describe node {name}), or set --shutdown-taint-removal=cloud"),
        ),
        PowerState::Running => (
            format!("{not_ready}, but its instance exists and runs; the node is kept"),
            format!("nothing to do here: check its kubelet, its machine and its network (kubectl describe node {name})"),
        ),
        PowerState::Stopped | PowerState::Changing | PowerState::Unknown => (
            format!("{not_ready}, but its instance exists ({}); the node is kept", in_words(power)),
            "wait; if it lasts, check its machine in the cloud".to_owned(),
        ),
    };
    Explanation::new(ObjectState::Fine, cause, fix)
}

/// Explains a node whose provider is not known.
fn unclaimed(node: &Node) -> Explanation {
    let id = node.provider_id.as_deref().unwrap_or("none");
    Explanation::new(
        ObjectState::Unknown,
        format!(
            "the provider has not reported its provider ID schemes yet, so lifecycle-ccm does not know which provider owns this node (provider ID {id})"
        ),
        "wait; if it lasts, check whether the provider answers: /readyz?verbose and the log",
    )
}

/// Returns the instance that the node names, in words.
fn wanted(about: &About<'_>) -> Vec<String> {
    let About { node, view, .. } = *about;
    let instance = match &node.provider_id {
        Some(id) => format!("the instance {id}"),
        None => {
            "an instance with its name or system UUID: it does not have a provider ID".to_owned()
        }
    };
    let protected = format!("no deletion: it has the annotation {PROTECTED}");
    let by = if action::is_approved(node) { APPROVED } else { "the approval on the Lease" };
    let approved = format!("a deletion that breaker and budget do not hold: {by}");
    let marked = "its deletion: it has a taint of --scale-down-taints".to_owned();
    let marks = [(view.protected, protected), (view.approved, approved), (view.marked, marked)];
    let marks = marks.into_iter().filter(|(is_set, _)| *is_set).map(|(_, text)| text);
    std::iter::once(instance).chain(marks).collect()
}

fn not_ready(node: &Node) -> String {
    match node.condition("Ready") {
        Some("True") => "it is Ready, on another machine than before".to_owned(),
        Some(status) => format!("it is not Ready ({status})"),
        None => "its kubelet has not reported its condition Ready".to_owned(),
    }
}

const fn in_words(power: PowerState) -> &'static str {
    match power {
        PowerState::Running => "it runs",
        PowerState::Stopped => "it is shut down",
        PowerState::Changing => "it is between two states",
        PowerState::Unknown => "the cloud does not say whether it runs",
    }
}

/// Explains a node about which the cloud has answered with an error.
fn unanswered(error: &CloudError) -> Explanation {
    let cause = format!("the cloud cannot be asked about it, so the node is kept: {error}");
    Explanation::of_error(error, cause)
}

/// Explains a node for which the API server has not accepted a write.
fn refused(what: &str, error: &ApiError) -> Explanation {
    let (state, fix) = refused_write(error);
    Explanation::new(state, format!("{what}: {error}"), fix)
}

#[cfg(test)]
mod tests;
