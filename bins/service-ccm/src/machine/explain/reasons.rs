//! Explains a Service by its conditions, with the fix for each reason.

use ccm_cloud::{CloudError, ErrorKind};
use ccm_objects::Service;
use ccm_runtime::explain::{Explanation, NOTHING, ObjectState, WAIT, fix_for_error};
use strum::VariantArray as _;

use crate::plan::{
    ADOPT, APPROVED, REPLACEMENT_APPROVED,
    reason::{PROVISIONING, Reason, SERVING},
};

/// Explains a Service by its conditions: a problem first, then if it serves.
pub(super) fn shown(service: &Service) -> Option<Explanation> {
    let wrong = told(service, PROVISIONING).filter(|told| told.state != ObjectState::Fine);
    wrong.or_else(|| told(service, SERVING)).or_else(|| told(service, PROVISIONING))
}

fn told(service: &Service, kind: &str) -> Option<Explanation> {
    let condition = service.condition(kind)?;
    let reason = Reason::VARIANTS.iter().find(|reason| *reason.as_str() == *condition.reason);
    let cause = match (&*condition.message, reason) {
        ("", Some(reason)) => reason.meaning(),
        (message, _) => format!("{}: {message}", condition.reason),
    };
    let Some(reason) = reason else {
        // Another version has written this condition. One condition is true if something is wrong,
        // the other one if the load balancer serves.
        let is_good = (&*condition.status == "True") == (kind == SERVING);
        let state = if is_good { ObjectState::Fine } else { ObjectState::Working };
        return Some(Explanation::new(
            state,
            cause,
            "this version does not know the reason: ask the leader",
        ));
    };
    Some(Explanation::new(state_for(*reason), cause, fix_for(*reason, service)))
}

/// Returns the state of a Service whose condition has this reason.
pub(super) const fn state_for(reason: Reason) -> ObjectState {
    match reason {
        Reason::Provisioned | Reason::PartlyProvisioned | Reason::Serving => ObjectState::Fine,
        Reason::Creating
        | Reason::WaitingForCloud
        | Reason::Throttled
        | Reason::CloudUnavailable
        | Reason::Deleting
        | Reason::BeingDeleted
        | Reason::LoadBalancerGone
        | Reason::NotConfirmed
        | Reason::NoAddress => ObjectState::Working,
        Reason::ReplacementHeld | Reason::MembersHeld => ObjectState::Held,
        Reason::Elsewhere => ObjectState::Foreign,
        Reason::InvalidConfiguration
        | Reason::LimitReached
        | Reason::QuotaExceeded
        | Reason::CloudAccessDenied
        | Reason::Conflict
        | Reason::LoadBalancersNotOffered
        | Reason::LoadBalancerFailed
        | Reason::WaitingForAdoption
        | Reason::DeletionFailed
        | Reason::AddressRefused
        | Reason::NoMembers => ObjectState::Blocked,
    }
}

/// Returns the fix for a reason.
pub(super) fn fix_for(reason: Reason, service: &Service) -> String {
    let of_cloud = |kind| fix_for_error(&CloudError::new(kind, ""));
    match reason {
        Reason::Provisioned | Reason::Serving => NOTHING.to_owned(),
        Reason::PartlyProvisioned => "correct the problem in the cause, or leave it: the rest serves".to_owned(),
        Reason::Creating
        | Reason::WaitingForCloud
        | Reason::Deleting
        | Reason::BeingDeleted
        | Reason::NoAddress => WAIT.to_owned(),
        Reason::InvalidConfiguration => "correct the problem in the cause in the Service".to_owned(),
        Reason::LimitReached => "delete another Service of the namespace, or raise --max-load-balancers-per-namespace".to_owned(),
        Reason::QuotaExceeded => of_cloud(ErrorKind::QuotaExceeded),
        Reason::Throttled => of_cloud(ErrorKind::Throttled),
        Reason::CloudAccessDenied => "renew the credentials of the cloud, or give its user the permission that is missing".to_owned(),
        Reason::Conflict => of_cloud(ErrorKind::Conflict),
        Reason::CloudUnavailable | Reason::NotConfirmed => of_cloud(ErrorKind::Unavailable),
        Reason::LoadBalancersNotOffered => of_cloud(ErrorKind::Unsupported),
        Reason::LoadBalancerFailed => {
            "repair it in the cloud; do not delete it while it may still serve".to_owned()
        }
        Reason::LoadBalancerGone => {
            "wait: a new one, with another address, is created after the proof; if it was deleted by mistake, restore it in the cloud".to_owned()
        }
        Reason::ReplacementHeld => {
            let command = approve(service, REPLACEMENT_APPROVED);
            format!("check project, region, credentials and --cluster-name first, and repair or restore it; only then run this, because a new one has another address: {command}")
        }
        Reason::WaitingForAdoption => format!(
            "check the changes (decided), then set the annotation {ADOPT} as the cause says"
        ),
        Reason::DeletionFailed => "remove the obstacle in the cause; the finalizer is removed after the load balancer".to_owned(),
        Reason::Elsewhere => "ask that controller; service-ccm leaves the Service to it".to_owned(),
        Reason::MembersHeld => {
            let command = approve(service, APPROVED);
            format!("bring the nodes back, or if they should leave: {command}")
        }
        Reason::AddressRefused => "if it is right, allow it with --load-balancer-allowed-addresses; otherwise ask the provider".to_owned(),
        Reason::NoMembers => "add a node that can be a member, or fix the problem in the cause".to_owned(),
    }
}

/// Returns the command that approves something for ten minutes.
pub(super) fn approve(service: &Service, key: &str) -> String {
    let (namespace, name) = service.names();
    format!(
        "kubectl -n {namespace} annotate service {name} --overwrite \"{key}=$(date -u -d '+10 minutes' +%FT%TZ)\""
    )
}
