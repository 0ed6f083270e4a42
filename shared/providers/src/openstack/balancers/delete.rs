//! Deletes a load balancer and what was made for it.

use ccm_base::clock;
use ccm_cloud::{
    AbsenceProof, Call, CloudError, ErrorKind, Owner, Progress, ProofMethod, Unwanted,
};

use super::{
    super::{
        api::Deletion,
        lbaas::{BalancerRow, Child, Provisioning},
        network::FloatingIps,
    },
    OctaviaBalancers, annotations,
    ensure::waiting,
    find::{Rows, not_ours},
    floating, ingress, names, title,
};

impl OctaviaBalancers {
    /// One load balancer of [`delete`](ccm_cloud::LoadBalancers::delete).
    pub(super) async fn delete_one(
        &self,
        unwanted: &Unwanted,
        rows: &Rows,
        call: Call,
    ) -> Result<Progress<AbsenceProof>, CloudError> {
        let owner = &unwanted.owner;
        let known = unwanted.known.as_deref().map(|id| rows.get(id)).transpose()?.flatten();
        if let Some(row) = known.filter(|row| !title::is_ours(row, owner)) {
            return Err(not_ours(row, owner));
        }
        if unwanted.duplicate {
            return self.delete_duplicate(unwanted, known, call).await;
        }
        if let Some(row) = known {
            return self.delete_row(row, unwanted, call).await;
        }
        let was_deleted = unwanted.known.as_deref().is_some_and(|id| self.memory.is_deleted(id));
        if !was_deleted {
            if let Some(row) = self.tagged(owner, call).await?.first() {
                if !title::is_ours(row, owner) {
                    return Err(not_ours(row, owner));
                }
                return self.delete_row(row, unwanted, call).await;
            }
            self.release_left(unwanted, call).await?;
        }
        self.prove(unwanted, call).await
    }

    /// Deletes the second load balancer of an owner.
    async fn delete_duplicate(
        &self,
        unwanted: &Unwanted,
        known: Option<&BalancerRow>,
        call: Call,
    ) -> Result<Progress<AbsenceProof>, CloudError> {
        let Some(row) = known else { return self.prove(unwanted, call).await };
        let all = self.tagged(&unwanted.owner, call).await?;
        if all.iter().all(|other| other.id == row.id) {
            let what = format!(
                "load balancer {} is the only one of Service {}, and no duplicate",
                row.id, unwanted.owner
            );
            let error = CloudError::new(ErrorKind::Conflict, what);
            return Err(error.about(format!("load balancer {}", row.id)));
        }
        self.delete_row(row, unwanted, call).await
    }

    /// Deletes a load balancer with its floating IP.
    async fn delete_row(
        &self,
        row: &BalancerRow,
        unwanted: &Unwanted,
        call: Call,
    ) -> Result<Progress<AbsenceProof>, CloudError> {
        match row.provisioning_status {
            Provisioning::Active | Provisioning::Error | Provisioning::Deleted => {}
            Provisioning::PendingDelete => {
                return Ok(Progress::InProgress(ingress::waiting(row, None, clock::wall())));
            }
            Provisioning::Pending(_) => {
                let more = Some("it is deleted after that");
                return Ok(Progress::InProgress(ingress::waiting(row, more, clock::wall())));
            }
        }
        let keep = annotations::keeps_floating(&unwanted.settings);
        for ip in self.floating_of(row, call).await? {
            if floating::is_ours(&ip, &unwanted.owner) {
                let act = match keep {
                    true => floating::Act::Detach(ip),
                    false => floating::Act::Release(ip.id),
                };
                self.make_floating(act, &unwanted.owner, None, call).await?;
            }
        }
        let cascade = self.options.balancer.cascade_delete;
        if !cascade && let Some(waiting) = self.delete_child_of(row, call).await? {
            return Ok(Progress::InProgress(waiting));
        }
        let deletion = self.octavia.delete(&row.id, cascade, call).await?;
        self.memory.forget(&row.id);
        self.memory.forget_vip(&unwanted.owner.uid);
        self.memory.keep_deleted(&row.id);
        match deletion {
            Deletion::Accepted => {
                let line = format!("deletion of load balancer {}", row.id);
                let mut waiting = waiting(row, line);
                waiting.what = waiting.what.replace("PENDING_UPDATE", "PENDING_DELETE");
                Ok(Progress::InProgress(waiting))
            }
            Deletion::Gone { request_id } => Ok(Progress::Done(by_id(&row.id, request_id))),
        }
    }

    /// Deletes one child, where a load balancer is to be deleted without a cascade.
    async fn delete_child_of(
        &self,
        row: &BalancerRow,
        call: Call,
    ) -> Result<Option<ccm_cloud::Waiting>, CloudError> {
        let (pools, listeners) = tokio::try_join!(
            self.octavia.pools(&row.id, call),
            self.octavia.listeners(&row.id, call)
        )?;
        let pool = pools.first().map(|pool| (Child::Pool, &pool.id));
        let next = pool.or_else(|| listeners.first().map(|one| (Child::Listener, &one.id)));
        let Some((child, id)) = next else { return Ok(None) };
        self.octavia.delete_child(child, id, call).await?;
        let left = pools.len() + listeners.len();
        Ok(Some(waiting(row, format!("deletion of its {left} listeners and pools"))))
    }

    /// Deletes floating IPs of a load balancer that is gone.
    async fn release_left(&self, unwanted: &Unwanted, call: Call) -> Result<(), CloudError> {
        if annotations::keeps_floating(&unwanted.settings) {
            return Ok(());
        }
        let tags = names::owner_tags(&unwanted.owner);
        let tags: Vec<&str> = tags.iter().map(String::as_str).collect();
        for ip in self.neutron.floating_ips(FloatingIps::Tags(&tags), call).await? {
            // One that stands for something else by now is another one's.
            if floating::is_free(&ip) && floating::is_ours(&ip, &unwanted.owner) {
                self.neutron.delete_floating_ip(&ip.id, call).await?;
            }
        }
        Ok(())
    }

    /// The proof that nothing is left.
    async fn prove(
        &self,
        unwanted: &Unwanted,
        call: Call,
    ) -> Result<Progress<AbsenceProof>, CloudError> {
        let Some(id) = &unwanted.known else {
            return Ok(Progress::Done(by_owner(&unwanted.owner)));
        };
        match self.octavia.balancer(id, call).await? {
            None => {
                self.memory.forget_deleted(id);
                Ok(Progress::Done(by_id(id, None)))
            }
            Some(row) if row.provisioning_status == Provisioning::Deleted => {
                Ok(Progress::Done(by_id(id, None)))
            }
            // A list that lacks it proves nothing.
            Some(row) => {
                let more = Some("the list of load balancers does not show it");
                Ok(Progress::InProgress(ingress::waiting(&row, more, clock::wall())))
            }
        }
    }
}

fn by_id(id: &str, request_id: Option<String>) -> AbsenceProof {
    let evidence = format!("Octavia has no load balancer {id}");
    AbsenceProof { method: ProofMethod::ById, evidence, request_id }
}

fn by_owner(owner: &Owner) -> AbsenceProof {
    let evidence = format!("Octavia lists no load balancer with the tags of Service {owner}");
    AbsenceProof { method: ProofMethod::ByOwner, evidence, request_id: None }
}
