//! Deletes a load balancer and the objects that were made for it.

use std::net::IpAddr;

use ccm_cloud::{AbsenceProof, CloudError, ErrorKind, Progress, ProofMethod, Unwanted};
use ccm_openstack_client::{
    api::Deletion,
    lbaas::{BalancerRow, Child, Provisioning},
    network::FloatingIp,
};

use super::{
    Context, annotations, apply, balancer_error,
    find::{self, Rows},
    floating, names, ownership, read, view,
};

/// Deletes one load balancer of [`delete`](ccm_cloud::LoadBalancers::delete).
pub async fn delete(
    cx: Context<'_>,
    unwanted: &Unwanted,
    rows: &Rows,
) -> Result<Progress<AbsenceProof>, CloudError> {
    let owner = &unwanted.owner;
    let known = known_id(unwanted).map(|id| rows.get(id)).transpose()?.flatten();
    if let Some(row) = known {
        ownership::check(row, owner)?;
    }
    if unwanted.duplicate {
        return delete_duplicate(cx, unwanted, known, rows).await;
    }
    let mut gone = None;
    if let Some(row) = known {
        match delete_row(cx, row, unwanted).await? {
            Progress::Done(proof) => gone = Some(proof),
            progress => return Ok(progress),
        }
    }
    // A creation by a former leader may have arrived late.
    for row in find::tagged(cx, owner, rows).await? {
        if gone.is_some() && unwanted.known.as_ref() == Some(&row.id) {
            continue;
        }
        ownership::check(&row, owner)?;
        match delete_row(cx, &row, unwanted).await? {
            Progress::Done(_) => {}
            progress => return Ok(progress),
        }
    }
    let progress = match gone {
        Some(proof) => Progress::Done(proof),
        None => {
            if !known_id(unwanted).is_some_and(|id| cx.memory.is_deleted(id)) {
                release_left(cx, unwanted).await?;
            }
            prove(cx, unwanted).await?
        }
    };
    if matches!(progress, Progress::Done(_)) {
        cx.memory.forget_before(&owner.uid);
        unwanted.known.iter().for_each(|id| cx.failures.forget(id));
    }
    Ok(progress)
}

/// Deletes the second load balancer of an owner.
async fn delete_duplicate(
    cx: Context<'_>,
    unwanted: &Unwanted,
    known: Option<&BalancerRow>,
    rows: &Rows,
) -> Result<Progress<AbsenceProof>, CloudError> {
    let Some(row) = known else { return prove(cx, unwanted).await };
    let all = find::tagged(cx, &unwanted.owner, rows).await?;
    if all.iter().all(|other| other.id == row.id) {
        let what = format!(
            "load balancer {} is the only one of Service {}, and no duplicate",
            row.id, unwanted.owner
        );
        return Err(balancer_error(ErrorKind::Conflict, &row.id, what));
    }
    delete_row(cx, row, unwanted).await
}

/// Deletes a load balancer with its floating IP.
async fn delete_row(
    cx: Context<'_>,
    row: &BalancerRow,
    unwanted: &Unwanted,
) -> Result<Progress<AbsenceProof>, CloudError> {
    match row.provisioning_status {
        Provisioning::Active | Provisioning::Error | Provisioning::Deleted => {}
        Provisioning::PendingDelete => return Ok(view::in_progress(row, None)),
        Provisioning::Pending(_) => {
            return Ok(view::in_progress(row, Some("it is deleted after that")));
        }
    }
    let kept = release(cx, row, unwanted).await?;
    let cascade = cx.config.load_balancer.cascade_delete;
    if !cascade && let Some(waiting) = delete_child_of(cx, row).await? {
        return Ok(Progress::InProgress(waiting));
    }
    let deletion = cx.octavia.delete(&row.id, cascade, cx.call).await?;
    cx.memory.forget(&row.id);
    match deletion {
        Deletion::Accepted => {
            if unwanted.known.as_ref() == Some(&row.id) {
                cx.memory.keep_deleted(&row.id, kept);
            }
            let line = format!("deletion of load balancer {}", row.id);
            Ok(Progress::InProgress(view::after(&Provisioning::PendingDelete, row, line)))
        }
        Deletion::Gone { request_id } => {
            cx.memory.forget_deleted(&row.id);
            Ok(Progress::Done(by_id(&row.id, request_id, &kept)))
        }
    }
}

/// Deletes the floating IPs of a load balancer, and its owner's unattached ones, which an earlier one
/// has left. For a duplicate, only its own floating IPs. Detaches those that the user keeps or has
/// asked for. Returns the addresses of its own that stay in the cloud.
async fn release(
    cx: Context<'_>,
    row: &BalancerRow,
    unwanted: &Unwanted,
) -> Result<Vec<IpAddr>, CloudError> {
    let owner = &unwanted.owner;
    let is_attached = |ip: &FloatingIp| ip.port_id.is_some() && ip.port_id == row.vip_port_id;
    let mut all = match unwanted.duplicate {
        true => Vec::new(),
        false => read::floating_of_owner(cx, owner).await?,
    };
    // The tags of an adopted floating IP may not be recorded yet.
    if !all.iter().any(is_attached) {
        all.extend(read::floating_of(cx, row).await?);
    }
    let mut kept = Vec::new();
    for ip in all.iter().filter(|ip| floating::is_ours(ip, owner)) {
        let is_kept = match (is_attached(ip), stays(ip, unwanted)) {
            (true, true) => {
                cx.neutron.update_floating_ip(ip, None, cx.call).await?;
                true
            }
            (is_attached, false) if is_attached || floating::is_free(ip) => {
                !apply::release(cx, &ip.id).await?
            }
            // An earlier call may have detached it.
            (false, true) => floating::is_free(ip),
            _ => false,
        };
        kept.extend(is_kept.then_some(ip.address));
    }
    Ok(kept)
}

/// Deletes one child, if a load balancer must be deleted without a cascade.
async fn delete_child_of(
    cx: Context<'_>,
    row: &BalancerRow,
) -> Result<Option<ccm_cloud::Waiting>, CloudError> {
    let (pools, listeners) = tokio::try_join!(
        cx.octavia.pools(&row.id, cx.call),
        cx.octavia.listeners(&row.id, cx.call)
    )?;
    let pool = pools.first().map(|pool| (Child::Pool, &pool.id));
    let next = pool.or_else(|| listeners.first().map(|one| (Child::Listener, &one.id)));
    let Some((child, id)) = next else { return Ok(None) };
    cx.octavia.delete_child(child, id, cx.call).await?;
    let left = pools.len() + listeners.len();
    Ok(Some(view::after_change(row, format!("deletion of its {left} listeners and pools"))))
}

/// Deletes floating IPs of a load balancer that is gone.
async fn release_left(cx: Context<'_>, unwanted: &Unwanted) -> Result<(), CloudError> {
    if keeps(unwanted) {
        return Ok(());
    }
    for ip in read::floating_of_owner(cx, &unwanted.owner).await? {
        // It may be attached to another object by now.
        if floating::is_free(&ip)
            && floating::is_ours(&ip, &unwanted.owner)
            && !stays(&ip, unwanted)
        {
            cx.neutron.delete_floating_ip(&ip.id, cx.call).await?;
        }
    }
    Ok(())
}

/// Returns the proof that nothing is left.
async fn prove(cx: Context<'_>, unwanted: &Unwanted) -> Result<Progress<AbsenceProof>, CloudError> {
    let Some(id) = known_id(unwanted) else {
        let owner = &unwanted.owner;
        let evidence = format!("Octavia lists no load balancer with the tags of Service {owner}");
        return Ok(Progress::Done(AbsenceProof::new(ProofMethod::ByOwner, evidence)));
    };
    match cx.octavia.balancer(id, cx.call).await? {
        Some(row) if row.provisioning_status != Provisioning::Deleted => {
            // A list without the load balancer proves nothing.
            let more = Some("the list of load balancers does not show it");
            Ok(view::in_progress(&row, more))
        }
        _ => {
            let kept = cx.memory.forget_deleted(id);
            Ok(Progress::Done(by_id(id, None, &kept)))
        }
    }
}

/// Returns the ID of the load balancer. `None` if Octavia cannot have assigned it: the owner's tags
/// then find what is deleted.
fn known_id(unwanted: &Unwanted) -> Option<&str> {
    unwanted.known.as_deref().filter(|id| names::is_id(id))
}

/// Returns true if all floating IPs must stay. The settings of a deleted Service are unknown, and a
/// deleted address cannot be restored.
fn keeps(unwanted: &Unwanted) -> bool {
    unwanted.settings.as_ref().is_none_or(annotations::keeps_floating)
}

/// Returns true if this floating IP of the owner must stay: the user keeps it or has asked for it.
fn stays(ip: &FloatingIp, unwanted: &Unwanted) -> bool {
    let is_asked_for = unwanted.address == Some(ip.address);
    keeps(unwanted) || is_asked_for || !floating::may_go(ip, &unwanted.owner)
}

fn by_id(id: &str, request_id: Option<String>, kept: &[IpAddr]) -> AbsenceProof {
    let evidence = format!("Octavia has no load balancer {id}");
    let kept: Vec<String> = kept.iter().map(ToString::to_string).collect();
    let kept = (!kept.is_empty()).then(|| format!("floating IP {}", kept.join(" and ")));
    AbsenceProof { request_id, kept, ..AbsenceProof::new(ProofMethod::ById, evidence) }
}
