//! Explains a Service by its last plan.

use std::time::Duration;

use ccm_runtime::explain::{Explanation, ObjectState, WAIT, fix_for_error, moment, refused_write};

use super::{
    About, call, failure_text, leaves_it,
    reasons::{self, approve, fix_for},
    unreadable,
};
use crate::{
    machine::{Machine, entry::BalancerEntry, last_plan::LastPlan},
    plan::{
        ADOPT, Known, RELEASE_APPROVED,
        reason::{PROVISIONING, Reason, SERVING},
        repeated::{self, UNLISTED},
    },
};

/// If the cloud works for longer than this, only its operator may be able to end that.
const LONG: Duration = Duration::from_mins(10);

impl Machine {
    /// Explains a Service by what was last.
    pub(super) fn decided(
        &self,
        about: About<'_>,
        entry: &BalancerEntry,
        last: &LastPlan,
    ) -> Explanation {
        let service = about.service;
        if let Some(why) = &last.held_release {
            let command = approve(service, RELEASE_APPROVED);
            let fix = format!("serve it again as the cause says; or let it be deleted: {command}");
            return Explanation::new(ObjectState::Held, why, fix);
        }
        if let Some(why) = &last.unclaimed {
            let fix = "if no controller removes it: the command at the end of the cause";
            return Explanation::new(ObjectState::Blocked, why, fix);
        }
        if last.is_not_ours {
            return match about.asks() {
                true => self.does_not_serve(service),
                false => leaves_it(service),
            };
        }
        if self.is_observing && last.is_due {
            return Explanation::observed("");
        }
        wrong(about, entry, last)
            .or_else(|| not_written(about, entry))
            .or_else(|| {
                let knows = entry.state.known != Known::Nothing;
                (!knows).then(|| self.explain_unplanned(reasons::shown(service)))
            })
            .or_else(|| under_way(about, entry))
            .or_else(|| serving(about, last))
            .unwrap_or_else(|| behind(last))
    }
}

/// Says why the load balancer does not match the Service.
fn wrong(about: About<'_>, entry: &BalancerEntry, last: &LastPlan) -> Option<Explanation> {
    if let Some((why, _)) = &last.held_replacement {
        let fix = fix_for(Reason::ReplacementHeld, about.service);
        return Some(Explanation::new(ObjectState::Held, why, fix));
    }
    let failed = last.failure(&entry.state);
    let condition = last.condition(PROVISIONING);
    let (reason, message) =
        condition.filter(|(reason, _)| reasons::state_for(*reason) != ObjectState::Fine)?;
    // Another cause, such as a mistake in the Service, may come first.
    if let Some(failed) = failed.filter(|failed| message.contains(&failed.error.to_string())) {
        let cause = format!("{}: {}", failure_text(failed), failed.error);
        return Some(Explanation::of_error(&failed.error, cause));
    }
    if let Some(line) = entry.state.unreadable.as_deref().filter(|line| message.contains(line)) {
        return Some(unreadable(line));
    }
    if matches!(reason, Reason::WaitingForCloud | Reason::Deleting) {
        return under_way(about, entry);
    }
    let cause = format!("{}: {message}", reason.as_str());
    let fix = of_others(about, entry, reason).unwrap_or_else(|| fix_for(reason, about.service));
    Some(Explanation::new(reasons::state_for(reason), cause, fix))
}

/// Returns the fix for a load balancer that another controller made.
fn of_others(about: About<'_>, entry: &BalancerEntry, reason: Reason) -> Option<String> {
    let (state, (namespace, name)) = (&entry.state, about.service.names());
    match (reason, &state.adoptable, &state.foreign) {
        (Reason::WaitingForAdoption, Some((id, _)), _) => Some(format!(
            "check the changes (decided), then: kubectl -n {namespace} annotate service {name} --overwrite {ADOPT}={id}"
        )),
        (Reason::Conflict, _, Some(foreign)) => Some(match foreign.is_named {
            true => "remove the annotation that the cause names: then the Service gets another one, with another address".to_owned(),
            false => "nothing if it should stay so; to give it its own load balancer, with another address, change the type to ClusterIP and back".to_owned(),
        }),
        _ => None,
    }
}

/// Explains a write that the API server has refused, or that does not last.
fn not_written(about: About<'_>, entry: &BalancerEntry) -> Option<Explanation> {
    if let Some((what, error)) = entry.refused_write.as_deref() {
        let (state, fix) = refused_write(error);
        let cause = format!("the API server does not accept the write {what}: {error}");
        return Some(Explanation::new(state, cause, fix));
    }
    let repeated = entry.state.repeats.waiting(about.now).min_by_key(|one| one.wait)?;
    if repeated.kind == UNLISTED {
        let fix =
            "ask the operator of the cloud, or the maker of the provider, why the list lacks it";
        return Some(Explanation::new(ObjectState::Blocked, UNLISTED, fix));
    }
    let fix = match repeated::is_call(&repeated.kind) {
        true => {
            "find in the cloud why it does not last: `there` says how the load balancer is; another client undoes it, or the cloud fails to make it"
        }
        false => {
            "find out who undoes it: another controller, an admission webhook or policy (kubectl get service -o yaml --show-managed-fields)"
        }
    };
    Some(Explanation::new(ObjectState::Blocked, repeated.to_string(), fix))
}

/// Explains work of the cloud, a call that is under way, or a call that is repeated soon.
fn under_way(about: About<'_>, entry: &BalancerEntry) -> Option<Explanation> {
    if let Some(pending) = &entry.state.pending {
        let since = moment(pending.since, about.now);
        let cause = format!("the cloud works on it: {} (begun {since})", pending.what);
        let fix = match about.now.since(pending.since) >= LONG {
            true => "wait; if it lasts, ask the operator of the cloud about this load balancer",
            false => WAIT,
        };
        return Some(Explanation::new(ObjectState::Working, cause, fix));
    }
    if let Some(asked) = entry.asked.values().min_by_key(|asked| asked.began) {
        let since = moment(asked.began, about.now);
        let cause = format!("{} is under way (begun {since})", call(asked.call));
        return Some(Explanation::new(ObjectState::Working, cause, WAIT));
    }
    let failed = entry.last_plan.failure(&entry.state)?;
    let cause = format!("{}: {}", failure_text(failed), failed.error);
    Some(Explanation::new(ObjectState::Working, cause, fix_for_error(&failed.error)))
}

/// Says if the load balancer serves.
fn serving(about: About<'_>, last: &LastPlan) -> Option<Explanation> {
    let provisioning = last.condition(PROVISIONING);
    let (reason, message) = last.condition(SERVING)?;
    let cause = format!("{}: {message}", reason.as_str());
    if reason == Reason::MembersHeld && last.is_last_held {
        let fix = "make another node a member: the last one never leaves";
        return Some(Explanation::new(ObjectState::Held, cause, fix));
    }
    if reasons::state_for(reason) != ObjectState::Fine {
        let fix = fix_for(reason, about.service);
        return Some(Explanation::new(reasons::state_for(reason), cause, fix));
    }
    if last.is_due {
        let cause = "its load balancer serves, and a step is due: the line decided says which";
        return Some(Explanation::new(ObjectState::Working, cause, WAIT));
    }
    let (second, remark) = provisioning?;
    let cause = match second {
        Reason::PartlyProvisioned => format!("{cause}; but not all that it asks for: {remark}"),
        _ => cause,
    };
    Some(Explanation::new(ObjectState::Fine, cause, fix_for(second, about.service)))
}

/// Explains a Service that has changed since, or that does not have a load balancer yet.
fn behind(last: &LastPlan) -> Explanation {
    let cause = match last.condition(PROVISIONING) {
        Some(_) => {
            "the load balancer matches the Service, and service-ccm has not seen yet whether it serves"
        }
        None => "service-ccm has not seen yet that the load balancer matches the Service",
    };
    Explanation::new(ObjectState::Working, cause, WAIT)
}
