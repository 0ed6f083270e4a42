//! Octavia: load balancers.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ccm_sim::poll;
use http::Method;
use serde_json::{Value, json};

use super::{Admin, text};

/// Time limit for one change of a load balancer on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

impl Admin {
    /// Returns the URL of a resource of Octavia's API: `loadbalancers`, `pools/{id}/members`.
    pub fn balancer_url(&self, path: &str) -> String {
        format!("{}/v2.0/lbaas/{path}", self.load_balancer)
    }

    /// Returns all load balancers of the project, in the order of their creation.
    pub async fn balancers(&self) -> Result<Vec<Value>> {
        let url = self.balancer_url("loadbalancers?sort=created_at:asc");
        let url = format!("{url}&project_id={}", self.project_id);
        let document = self.get(&url).await?;
        let all = document["loadbalancers"].as_array().context("no loadbalancers")?;
        let there = |one: &&Value| one["provisioning_status"] != "DELETED";
        Ok(all.iter().filter(there).cloned().collect())
    }

    /// Returns the load balancer with this ID, if it exists.
    pub async fn balancer(&self, id: &str) -> Result<Option<Value>> {
        let url = self.balancer_url(&format!("loadbalancers/{id}"));
        let answer = self.call(Method::GET, &url, None).await?;
        if answer.status.as_u16() == 404 {
            return Ok(None);
        }
        ensure!(answer.status.is_success(), "GET {url}: {} {}", answer.status, answer.text);
        let balancer = answer.json()?["loadbalancer"].take();
        Ok(Some(balancer).filter(|one| one["provisioning_status"] != "DELETED"))
    }

    /// Returns listeners, pools, members and monitors of a load balancer, as one tree.
    pub async fn balancer_tree(&self, id: &str) -> Result<Value> {
        let url = self.balancer_url(&format!("loadbalancers/{id}/status"));
        Ok(self.get(&url).await?["statuses"]["loadbalancer"].take())
    }

    /// Returns objects of Octavia of this kind: `listeners`, `pools`, `pools/{id}/members`.
    pub async fn balancer_parts(&self, kind: &str) -> Result<Vec<Value>> {
        let document = self.get(&self.balancer_url(kind)).await?;
        let mut lists = document.as_object().into_iter().flat_map(|object| object.values());
        Ok(lists.find_map(Value::as_array).with_context(|| format!("no {kind}"))?.clone())
    }

    /// Creates an object of Octavia, and returns it. The body is `{"listener": {..}}`.
    pub async fn create_balancer_part(&self, kind: &str, body: Value) -> Result<Value> {
        let made = self.post(&self.balancer_url(kind), body).await?;
        let mut objects = made.as_object().into_iter().flat_map(|object| object.values());
        objects
            .next()
            .cloned()
            .with_context(|| format!("{kind}: the answer does not have an object"))
    }

    /// Changes a part, as another client of Octavia does.
    pub async fn change_balancer_part(&self, part: &str, body: Value) -> Result<()> {
        self.done(Method::PUT, &self.balancer_url(part), Some(&body)).await.map(drop)
    }

    /// Deletes a part or, with `?cascade=true`, a load balancer.
    pub async fn delete_balancer_part(&self, part: &str) -> Result<()> {
        self.delete(&self.balancer_url(part)).await
    }

    /// Waits until the load balancer is `ACTIVE`, or another status.
    pub async fn balancer_is(&self, id: &str, status: &str) -> Result<Value> {
        poll::until(&format!("load balancer {id} to be {status}"), PATIENCE, || async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            let now = self.balancer(id).await?.context("this load balancer does not exist")?;
            ensure!(now["provisioning_status"] == status, "it is {now}");
            Ok(Some(now))
        })
        .await
    }

    /// Deletes all load balancers of the project with everything below them, and waits.
    pub async fn clear_balancers(&self) -> Result<()> {
        poll::until("all load balancers to be deleted", 2 * PATIENCE, || async {
            let all = self.balancers().await?;
            for one in &all {
                let status = one["provisioning_status"].as_str().unwrap_or_default();
                if matches!(status, "ACTIVE" | "ERROR") {
                    let id = text(one, "/id")?;
                    self.delete_balancer_part(&format!("loadbalancers/{id}?cascade=true")).await?;
                }
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
            Ok(all.is_empty().then_some(()))
        })
        .await
    }

    /// Returns the ID of a flavor of load balancers. Creates it unless it exists: Octavia keeps a
    /// flavor that a deleted load balancer had. Only for the operator.
    pub async fn balancer_flavor(&self, name: &str) -> Result<String> {
        if let Ok(id) = self.id_by_name(&self.balancer_url("flavors"), name).await {
            return Ok(id);
        }
        let data = json!({"loadbalancer_topology": "SINGLE"}).to_string();
        let profile = json!({"flavorprofile": {
            "name": name, "provider_name": "amphora", "flavor_data": data
        }});
        let profile = self.create_balancer_part("flavorprofiles", profile).await?;
        let flavor = json!({"name": name, "flavor_profile_id": profile["id"], "enabled": true});
        let flavor = self.create_balancer_part("flavors", json!({ "flavor": flavor })).await?;
        text(&flavor, "/id")
    }

    /// Offers an availability zone of load balancers, of the same name as Nova's. Only for the
    /// operator.
    pub async fn offer_balancer_zone(&self, name: &str) -> Result<()> {
        let there = self.balancer_parts("availabilityzones").await?;
        if there.iter().any(|zone| zone["name"] == name) {
            return Ok(());
        }
        let data = json!({ "compute_zone": name }).to_string();
        let profile = json!({"availability_zone_profile": {
            "name": name, "provider_name": "amphora", "availability_zone_data": data
        }});
        let profile = self.create_balancer_part("availabilityzoneprofiles", profile).await?;
        let zone = json!({"availability_zone": {
            "name": name, "availability_zone_profile_id": profile["id"], "enabled": true
        }});
        self.create_balancer_part("availabilityzones", zone).await.map(drop)
    }

    /// Returns the minor number of Octavia's newest API version: 26 of `v2.26`.
    pub async fn balancer_api(&self) -> Result<u32> {
        let document = self.get(&format!("{}/", self.load_balancer)).await?;
        let all = document["versions"].as_array().context("no versions")?;
        let minor = |one: &Value| one["id"].as_str()?.strip_prefix("v2.")?.parse().ok();
        all.iter().filter_map(minor).max().context("no version 2")
    }

    /// Sets quotas of a project in Octavia, `load_balancer` for example; null is the default.
    /// Only for the operator.
    pub async fn set_balancer_quota(&self, project: &Admin, quota: Value) -> Result<()> {
        let url = self.balancer_url(&format!("quotas/{}", project.project_id));
        self.done(Method::PUT, &url, Some(&json!({"quota": quota}))).await.map(drop)
    }

    /// Removes the quotas of a project in Octavia. Only for the operator.
    pub async fn clear_balancer_quota(&self, project: &Admin) -> Result<()> {
        self.delete(&self.balancer_url(&format!("quotas/{}", project.project_id))).await
    }
}
