//! Limits how often service-ccm repeats a step that the cloud or the API server has confirmed.

use std::hash::{Hash, Hasher};

use ccm_base::At;
use ccm_cloud::{Digest, Member, Members, NodeAddress};
use ccm_controller::repeats::{Content, Repeated, Repeats};
use ccm_objects::{Service, ServiceIngress};
use strum::VariantNames as _;

use super::{
    CallKind, Classes, Step,
    evidence::INSTANCE,
    members::Decision,
    status::{NewCondition, StatusPatch, shows},
    to_adopt,
};

const FINALIZER: &str = "finalizer";
const ADDRESSES: &str = "addresses";
const ANNOTATIONS: &str = "annotations";
const CONTROLLER: &str = "controller";
/// The kind of a step of a call begins with this.
const STEP: &str = "step ";
/// The kind of a call that shows only that a list was wrong, in words.
pub(crate) const UNLISTED: &str =
    "the cloud's list lacked its load balancer, and the answer to a call shows it";

/// Returns true if the finalizer may be added or removed now.
pub(super) fn may_set_finalizer(repeats: &Repeats, now: At, is_there: bool) -> bool {
    repeats.check(now, FINALIZER, || Content::digest(&is_there)).is_ok()
}

/// Returns true if this service-ccm may take over a Service of another service-ccm now.
pub(super) fn may_take_over(repeats: &Repeats, now: At, classes: &Classes) -> bool {
    repeats.check(now, CONTROLLER, || Content::digest(&classes.instance)).is_ok()
}

/// Returns true if this call to the cloud may be made now.
pub(super) fn may_call(
    repeats: &Repeats,
    now: At,
    step: &Step,
    service: &Service,
    members: &Decision,
) -> bool {
    step.call().is_none_or(|call| {
        [call.into(), UNLISTED].into_iter().all(|kind| {
            repeats.check(now, kind, || content(step, service, &members.members)).is_ok()
        })
    })
}

/// Records a step of a configuration, in the cloud's words. Returns it if it was made so often that the cloud
/// evidently does not keep it.
pub fn step_made(
    repeats: &mut Repeats,
    now: At,
    what: &str,
    digest: Option<Digest>,
) -> Option<Repeated> {
    let content = Content::digest(&digest.map(|digest| (digest.version, digest.hash)));
    repeats.made(now, format!("{STEP}{what}"), content)
}

/// Returns true if this kind of a repeated write is a call to the cloud, or a step of one.
pub(crate) fn is_call(kind: &str) -> bool {
    kind.starts_with(STEP) || CallKind::VARIANTS.contains(&kind)
}

/// Records a call that the cloud has confirmed. Returns it if it is repeated.
pub fn called(
    repeats: &mut Repeats,
    now: At,
    step: &Step,
    service: &Service,
    members: &Decision,
) -> Option<Repeated> {
    repeats.made(now, <&str>::from(step.call()?), content(step, service, &members.members))
}

/// Records a call that shows only that a list lacked the load balancer. Returns it if that is repeated.
pub fn unlisted(
    repeats: &mut Repeats,
    now: At,
    step: &Step,
    service: &Service,
    members: &Decision,
) -> Option<Repeated> {
    repeats.made(now, UNLISTED, content(step, service, &members.members))
}

/// Returns the part of a change of the status that may be written now: a field that another client
/// overwrites does not delay the others.
pub fn that_may_be_written(repeats: &Repeats, now: At, mut change: StatusPatch) -> StatusPatch {
    let may = |kind, content: &dyn Fn() -> Content| repeats.check(now, kind, content).is_ok();
    change.ingress = change.ingress.filter(|ingress| may(ADDRESSES, &|| addresses(ingress)));
    if !may(ANNOTATIONS, &|| Content::digest(&change.annotations)) {
        change.annotations.clear();
    }
    let has_addresses = change.ingress.is_some();
    change.conditions.retain(|one| may(one.0.condition(), &|| condition(one, has_addresses)));
    change
}

/// Records a step that the API server has confirmed with `answer`. Returns the repeated writes.
pub fn written(repeats: &mut Repeats, now: At, step: &Step, answer: &Service) -> Vec<Repeated> {
    let mut repeated = Vec::new();
    let mut add = |kind: &'static str, content, is_shown: bool| {
        repeated.extend(match is_shown {
            true => repeats.made(now, kind, content),
            false => repeats.refused(now, kind, content),
        });
    };
    match step {
        Step::Protect => add(FINALIZER, Content::digest(&true), answer.has_finalizer),
        Step::Release => add(FINALIZER, Content::digest(&false), !answer.has_finalizer),
        Step::Write(change) => {
            if let Some(ingress) = &change.ingress {
                let shown = answer.details.as_ref().map(|details| &details.ingress);
                add(ADDRESSES, addresses(ingress), shown == Some(ingress));
            }
            if let Some(instance) = change.annotations.get(INSTANCE) {
                let is_shown = answer.annotation(INSTANCE) == instance.as_deref();
                add(CONTROLLER, Content::digest(instance), is_shown);
            }
            if !change.annotations.is_empty() {
                let mut all = change.annotations.iter();
                let is_shown = all.all(|(key, value)| answer.annotation(key) == value.as_deref());
                add(ANNOTATIONS, Content::digest(&change.annotations), is_shown);
            }
            for one in &change.conditions {
                let content = condition(one, change.ingress.is_some());
                add(one.0.condition(), content, shows(answer, one.0));
            }
        }
        _ => {}
    }
    repeated
}

/// Returns the digest of what a call sends. For `Ensure` the members do not count: other members
/// are not a reason to repeat it sooner.
fn content(step: &Step, service: &Service, members: &Members) -> Content {
    match step {
        Step::Ensure(front_end) => {
            Content::digest(&(front_end.digest.version, front_end.digest.hash, to_adopt(service)))
        }
        Step::SetMembers(id) => {
            Content::digest(&(id, Told(&members.present), Told(&members.absent)))
        }
        Step::DeleteDuplicate(id) => Content::digest(id),
        _ => Content::digest(&()),
    }
}

/// Members, hashed with everything that a cloud receives about them.
struct Told<'a>(&'a [Member]);

impl Hash for Told<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.len().hash(state);
        for Member { node, provider_id, addresses, labels } in self.0 {
            (node, provider_id, labels).hash(state);
            for NodeAddress { kind, address } in addresses {
                (kind.as_ref(), address).hash(state);
            }
        }
    }
}

fn addresses(ingress: &[ServiceIngress]) -> Content {
    Content::digest(&format!("{ingress:?}"))
}

/// Returns the digest of a condition. Most messages do not count: they may quote request IDs.
fn condition((reason, message): &NewCondition, has_addresses: bool) -> Content {
    let counts = has_addresses || reason.words_count() || reason.names_address();
    Content::digest(&(reason.as_str(), counts.then_some(message)))
}

#[cfg(test)]
mod tests;
