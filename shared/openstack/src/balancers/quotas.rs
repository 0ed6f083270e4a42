//! Checks that the project's quotas have room for a replacement load balancer.

use ccm_base::message::one_line;
use ccm_cloud::{CloudError, ErrorKind};
use ccm_openstack_client::{
    lbaas::{Filter, Provisioning},
    text::MAX_MESSAGE,
};

use super::Context;

/// Returns true if one more fits. A negative limit means no limit.
fn fits(limit: i64, used: usize) -> bool {
    limit < 0 || i64::try_from(used).is_ok_and(|used| used < limit)
}

fn full(subject: &str, limit: i64, used: usize) -> CloudError {
    let what = format!("the quota of {subject} is {limit}, and {used} others exist");
    CloudError::new(ErrorKind::QuotaExceeded, what).about(subject)
}

/// Returns a quota, or `None` if the cloud does not show it to this user, as many do not. One that
/// cannot be read at the moment is an error.
fn shown<T>(of: &str, answer: Result<T, CloudError>) -> Result<Option<T>, CloudError> {
    use ErrorKind::{Forbidden, Invalid, Malformed, NotFound, Unauthorized, Unsupported};
    match answer {
        Ok(quota) => Ok(Some(quota)),
        Err(error) => match error.kind {
            Forbidden | Invalid | Malformed | NotFound | Unauthorized | Unsupported => {
                let why = one_line(&error.to_string(), MAX_MESSAGE);
                tracing::info!("the quota of {of} is not known: {why}");
                Ok(None)
            }
            _ => Err(error),
        },
    }
}

/// Fails if the project could not have another load balancer once one of its own is deleted, or
/// another floating IP if one is needed.
pub async fn check_quotas(cx: Context<'_>, needs_floating: bool) -> Result<(), CloudError> {
    let limit = shown("load balancers", cx.octavia.quota(cx.call).await)?.flatten();
    if let Some(limit) = limit.filter(|limit| *limit >= 0) {
        let listed = cx.octavia.balancers(Filter::All, cx.call).await?;
        let exist = listed.rows.iter();
        let exist = exist.filter(|row| row.provisioning_status != Provisioning::Deleted);
        // Its own place is free after the deletion.
        let used = (exist.count() + listed.malformed.len()).saturating_sub(1);
        if !fits(limit, used) {
            return Err(full("Load Balancer", limit, used));
        }
    }
    if needs_floating
        && let Some(quota) = shown("floating IPs", cx.neutron.floating_quota(cx.call).await)?
        && !fits(quota.limit, quota.used)
    {
        return Err(full("floatingip", quota.limit, quota.used));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_has_room_below_its_limit() {
        for (limit, used, expect) in
            [(-1, 1_000, true), (0, 0, false), (1, 0, true), (1, 1, false), (2, 5, false)]
        {
            assert_eq!(fits(limit, used), expect, "{limit} {used}");
        }
    }
}
