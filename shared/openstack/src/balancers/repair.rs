//! Repairs a load balancer in `ERROR`. Octavia only allows a fail-over, for some users, or a
//! deletion. The data plane of the load balancer may still serve.

use std::{net::IpAddr, time::Duration};

use ccm_base::message::one_line;
use ccm_cloud::{CloudError, ErrorKind, LoadBalancer, Loss, Progress};
use ccm_openstack_client::{lbaas::BalancerRow, network::FloatingIp, text::MAX_MESSAGE};

use super::{
    Context, balancer_error, create, current, diff,
    failures::{Next, Tried},
    floating,
    job::Job,
    names, quotas, read,
    steps::{Act, Step},
    view,
};

/// The time until a load balancer that waits for its turn asks again.
const TURN: Duration = Duration::from_secs(15);

/// The verdict about a load balancer that no fail-over repairs.
enum Verdict {
    /// Nothing is done: only a new load balancer helps, but it may not be created.
    Lost(Loss),
    /// The load balancer is deleted, so that the next call creates a new one.
    Replace {
        /// Its floating IPs.
        attached: Vec<FloatingIp>,
        /// The changes that follow the deletion.
        steps: Vec<Step>,
    },
}

/// Returns how the replacement is shown.
pub fn line(row: &BalancerRow) -> String {
    format!("delete {}", state(row))
}

/// Returns how the fail-over is shown.
pub fn fail_over_line(row: &BalancerRow) -> String {
    format!("fail over {}", state(row))
}

fn state(row: &BalancerRow) -> String {
    format!("load balancer {}, which is in {}", row.id, row.provisioning_status)
}

fn driver(row: &BalancerRow) -> &str {
    row.provider.as_deref().unwrap_or_default()
}

/// Returns why it is neither repaired nor replaced. What is missing may come without a change of
/// the Service.
fn kept(row: &BalancerRow, why: &str, error: CloudError) -> CloudError {
    let message = format!(
        "load balancer {} is in {} and is kept: {why}: {}",
        row.id, row.provisioning_status, error.message
    );
    let is_final = matches!(error.kind, ErrorKind::Invalid | ErrorKind::Unsupported);
    let kind = if is_final { ErrorKind::Conflict } else { error.kind };
    CloudError { message, kind, ..error }
}

/// Returns the error while it is left alone.
fn waits(row: &BalancerRow, what: &str, after: Duration) -> CloudError {
    let what = format!("load balancer {} is in {}{what}", row.id, row.provisioning_status);
    balancer_error(ErrorKind::Unavailable, &row.id, what).with_retry_after(after)
}

/// Returns the failed parts, in brackets.
fn parts(failed: &[String]) -> String {
    if failed.is_empty() { String::new() } else { format!(" ({})", failed.join(", ")) }
}

/// Returns the outcome that an answer to a fail-over reports. A policy and access rules refuse it
/// before anything else, and an old Octavia or driver does not know it.
fn outcome(answer: &Result<(), CloudError>) -> Tried {
    use ErrorKind::{Conflict, Forbidden, Invalid, Malformed, Unauthorized, Unsupported};
    match answer.as_ref().map_err(|error| error.kind) {
        Ok(()) => Tried::Accepted,
        Err(Forbidden | Unauthorized | Unsupported | Malformed) => Tried::NotOffered,
        Err(Invalid | Conflict) => Tried::Refused,
        Err(_) => Tried::Failed,
    }
}

/// Returns the address of the floating IP that the Service names.
fn named(job: &Job<'_>) -> Option<IpAddr> {
    job.wanted.front_end.address.filter(|_| !job.settings.internal)
}

/// Repairs a failed load balancer by a fail-over, or deletes it, so that the next call creates it
/// again with its addresses. Says why until then, and if it may do neither.
pub async fn repair(
    job: &Job<'_>,
    row: &BalancerRow,
) -> Result<Progress<LoadBalancer>, CloudError> {
    let cx = job.cx;
    cx.memory.forget(&row.id);
    match cx.failures.next(&row.id, driver(row)) {
        Next::Rest(left) => {
            let failed = parts(&current::failed(&read::tree(cx, &row.id).await?));
            let what = format!("{failed}; it is left alone for {:.0} s", left.as_secs_f64().ceil());
            return Err(waits(row, &what, left));
        }
        Next::Turn => {
            let what = ", and is failed over when others have been";
            return Err(waits(row, what, TURN));
        }
        Next::FailOver if fail_over(cx, row).await? => {
            return Ok(Progress::InProgress(view::after_change(row, fail_over_line(row))));
        }
        Next::FailOver | Next::Replacement => {}
    }
    match judge(job, row).await? {
        Verdict::Lost(loss) => Ok(Progress::Lost(loss)),
        Verdict::Replace { attached, .. } => replace(job, row, &attached).await,
    }
}

/// Returns the changes that [`repair`] should make.
pub async fn preview(job: &Job<'_>, row: &BalancerRow) -> Result<Vec<Step>, CloudError> {
    if job.cx.failures.may_fail_over(&row.id, driver(row)) {
        return Ok(vec![Step::new(fail_over_line(row), Act::Later)]);
    }
    match judge(job, row).await? {
        Verdict::Lost(_) => Ok(Vec::new()),
        Verdict::Replace { steps, .. } => {
            Ok(std::iter::once(Step::new(line(row), Act::Later)).chain(steps).collect())
        }
    }
}

/// Returns true if the load balancer of a Service may be made anew. If the Service does not
/// know it, nothing is lost; and a replacement that has begun is finished.
pub fn may_replace(cx: Context<'_>, wanted: &ccm_cloud::Wanted) -> bool {
    let is_begun = |id: &String| cx.failures.is_replaced(id);
    wanted.may_replace || wanted.known.as_ref().is_none_or(is_begun)
}

/// Fails it over. False if that cannot be.
async fn fail_over(cx: Context<'_>, row: &BalancerRow) -> Result<bool, CloudError> {
    let answer = cx.octavia.fail_over(&row.id, cx.call).await;
    let tried = outcome(&answer);
    cx.failures.tried(&row.id, driver(row), tried);
    match (tried, answer) {
        (Tried::Failed, Err(error)) => Err(kept(row, "it could not be failed over", error)),
        (_, Err(error)) => {
            let why = one_line(&error.to_string(), MAX_MESSAGE);
            tracing::info!(load_balancer = row.id, "no fail-over: {why}");
            Ok(false)
        }
        (_, Ok(())) => Ok(true),
    }
}

/// Decides about one that no fail-over repairs. It stays if not everything on it can be read, if
/// others have anything on it, or if a new one could not be created.
async fn judge(job: &Job<'_>, row: &BalancerRow) -> Result<Verdict, CloudError> {
    let cx = job.cx;
    let read = tokio::try_join!(
        cx.octavia.listeners(&row.id, cx.call),
        cx.octavia.pools(&row.id, cx.call),
        read::tree(cx, &row.id),
    );
    let (listeners, pools, tree) =
        read.map_err(|error| kept(row, "what is on it cannot be read", error))?;
    let owner = &job.wanted.front_end.owner;
    let others = diff::of_others(row, &listeners, &pools, owner);
    let others = (!others.is_empty()).then(|| others.join(", "));
    cx.failures.keep_others(&row.id, others.clone());
    if let Some(others) = others {
        let error = CloudError::new(ErrorKind::Conflict, others);
        return Err(kept(row, "others use it, so a person must repair or delete it", error));
    }
    if !may_replace(cx, job.wanted) {
        let (failed, why) = (parts(&current::failed(&tree)), cx.failures.why(&row.id));
        let why = format!("{}{failed}: {why}", state(row));
        return Ok(Verdict::Lost(Loss { why: one_line(&why, MAX_MESSAGE), is_gone: false }));
    }
    let attached = read::floating_of(cx, row).await?;
    let lacking = |error| kept(row, "a new one cannot be created", error);
    floating::check_named(&attached, owner, named(job)).map_err(lacking)?;
    let steps = create::design(job, &attached, true).await.map_err(lacking)?.steps(owner);
    quotas::check_quotas(cx, steps.iter().any(Step::creates_floating)).await.map_err(lacking)?;
    Ok(Verdict::Replace { attached, steps })
}

/// Deletes it, and keeps what the new one should have.
async fn replace(
    job: &Job<'_>,
    row: &BalancerRow,
    attached: &[FloatingIp],
) -> Result<Progress<LoadBalancer>, CloudError> {
    let cx = job.cx;
    let owner = &job.wanted.front_end.owner;
    // A floating IP stays when its port is deleted. Any process finds it again by its tags.
    for ip in attached {
        let is_named = named(job) == Some(ip.address);
        let tags = floating::kept_tags(&ip.tags, owner, is_named, row.vip_address);
        // Without these tags, the new load balancer could not get another owner's floating IP.
        let is_taken = is_named && floating::is_of_another(ip, owner);
        if (floating::is_ours(ip, owner) || is_taken)
            && tags.iter().any(|tag| !ip.tags.contains(tag))
        {
            cx.neutron.tag_floating_ip(&ip.id, &tags, cx.call).await?;
        }
    }
    cx.memory.change_before(&owner.uid, |before| {
        if row.vip_address.is_some() {
            // A refusal was about the address of an earlier load balancer.
            (before.vip, before.refused) = (row.vip_address, None);
        }
        before.taken_back = names::taken_back(&row.tags).or(before.taken_back);
    });
    let deletion = cx.octavia.delete(&row.id, true, cx.call).await;
    if deletion.as_ref().map_or_else(|error| error.maybe_done, |_| true) {
        cx.failures.replace(&row.id);
    }
    deletion?;
    Ok(Progress::InProgress(view::after_change(row, line(row))))
}
