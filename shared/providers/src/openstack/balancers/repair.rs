//! Replaces a load balancer that has failed. Octavia lets it be deleted, and nothing else.

use std::{net::IpAddr, time::Duration};

use ccm_base::clock;
use ccm_cloud::{Call, CloudError, ErrorKind, LoadBalancer, Progress};

use super::{
    super::{lbaas::BalancerRow, network::FloatingIp},
    OctaviaBalancers,
    ensure::waiting,
    floating,
    inputs::Job,
    memory::Vip,
    names, seen,
};

/// A load balancer that has just failed is left alone for this long: Octavia may be repairing it,
/// and a cloud in which every creation fails is not to be kept busy.
const REST: Duration = Duration::from_mins(1);

/// How the replacement is shown.
pub(super) fn line(row: &BalancerRow) -> String {
    format!("delete load balancer {}, which is in {}", row.id, row.provisioning_status)
}

/// Why it is not replaced. What is missing may come without a change of the Service.
fn kept(row: &BalancerRow, error: CloudError) -> CloudError {
    let message = format!(
        "load balancer {} is in {} and is kept: a new one cannot be created: {}",
        row.id, row.provisioning_status, error.message
    );
    let is_final = matches!(error.kind, ErrorKind::Invalid | ErrorKind::Unsupported);
    let kind = if is_final { ErrorKind::Conflict } else { error.kind };
    CloudError { message, kind, ..error }
}

/// Returns the address of the floating IP that the Service names.
fn named(job: &Job<'_>) -> Option<IpAddr> {
    job.wanted.front_end.address.filter(|_| !job.settings.internal)
}

/// Refuses to replace a load balancer whose floating IP could not be attached to the new one.
pub(super) fn check(
    row: &BalancerRow,
    job: &Job<'_>,
    attached: &[FloatingIp],
) -> Result<(), CloudError> {
    let owner = &job.wanted.front_end.owner;
    floating::check_named(attached, owner, named(job)).map_err(|error| kept(row, error))
}

impl OctaviaBalancers {
    /// Deletes a failed load balancer, so that the next call creates it again with its addresses.
    /// Says why until then.
    pub(super) async fn repair(
        &self,
        row: &BalancerRow,
        job: &Job<'_>,
        call: Call,
    ) -> Result<Progress<LoadBalancer>, CloudError> {
        self.memory.forget(&row.id);
        let failed =
            seen::since(row.updated_at.as_deref().or(row.created_at.as_deref()), clock::wall());
        let rests = REST.saturating_sub(failed.unwrap_or(REST));
        if !rests.is_zero() {
            let children = seen::failed(&self.tree(&row.id, call).await?);
            let children = match children.as_slice() {
                [] => String::new(),
                children => format!(" ({})", children.join(", ")),
            };
            let what = format!(
                "load balancer {} is in {}{children}; it is replaced in {} s",
                row.id,
                row.provisioning_status,
                rests.as_secs()
            );
            let error = CloudError::new(ErrorKind::Unavailable, what);
            return Err(error.about(format!("load balancer {}", row.id)).with_retry_after(rests));
        }
        let owner = &job.wanted.front_end.owner;
        let attached = self.floating_of(row, call).await?;
        check(row, job, &attached)?;
        // Its data plane may still serve, so it goes only for one that can be created.
        let creation = self.preview_creation(job, &attached, true, call).await;
        creation.map_err(|error| kept(row, error))?;
        // A floating IP stays when its port goes. By its tags it is found again, by any process.
        for ip in &attached {
            let is_named = named(job) == Some(ip.address);
            let tags = floating::kept_tags(&ip.tags, owner, is_named, row.vip_address);
            // Without these tags, the new load balancer could not get another owner's floating IP.
            let is_taken = is_named && floating::is_of_another(ip, owner);
            if (floating::is_ours(ip, owner) || is_taken)
                && tags.iter().any(|tag| !ip.tags.contains(tag))
            {
                self.neutron.tag_floating_ip(&ip.id, &tags, call).await?;
            }
        }
        if let Some(address) = row.vip_address {
            let vip = Vip { address, subnet: row.vip_subnet_id.clone() };
            self.memory.keep_vip(&owner.uid, vip);
        }
        if let Some(digest) = names::taken_back(&row.tags) {
            self.memory.keep_taken_back(&owner.uid, digest);
        }
        self.octavia.delete(&row.id, true, call).await?;
        Ok(Progress::InProgress(waiting(row, line(row))))
    }
}
