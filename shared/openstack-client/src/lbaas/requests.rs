//! The requests, one function each.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use ccm_base::message::one_line;
use ccm_cloud::{Call, CloudError, ErrorKind};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use http::Method;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    ApiVersion, BalancerRow, Child, Filter, LBAAS, ListenerRow, MemberRow, MonitorRow, Octavia,
    PoolRow, Reference, Tree,
};
use crate::{
    api::{AT_ONCE, Answer, Api, Collection, Deletion, Memory, PagesRead, Request, Service, id_of},
    text::{MAX_MESSAGE, MAX_VALUE, query},
};

/// The versions are requested again after this time: Octavia may have been upgraded.
const FRESH: Duration = Duration::from_hours(1);

/// The result of a list of load balancers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BalancerRows {
    pub rows: Vec<BalancerRow>,
    /// A line for each entry that cannot be parsed.
    pub malformed: Vec<String>,
    pub request_id: Option<String>,
}

#[derive(Deserialize)]
struct Version {
    id: String,
    #[serde(default)]
    status: String,
}

/// Early versions use the second name.
#[derive(Deserialize)]
struct Quota {
    load_balancer: Option<i64>,
    loadbalancer: Option<i64>,
}

#[derive(Deserialize)]
struct Statuses {
    loadbalancer: Tree,
}

impl Octavia {
    /// Creates a client of Octavia that uses this API.
    pub fn new(api: Arc<dyn Api>) -> Self {
        Self { api, version: tokio::sync::Mutex::default() }
    }

    /// Returns true if the catalog of the cloud has Octavia in the region in use.
    pub async fn offered(&self, call: Call) -> Result<bool, CloudError> {
        self.api.offers(Service::LoadBalancer, call).await
    }

    /// Returns the version of its API that it calls the current one. A failure is an error, and
    /// says nothing about features. Known for an hour.
    pub async fn version(&self, call: Call) -> Result<ApiVersion, CloudError> {
        let mut known = tokio::time::timeout_at(call.end, self.version.lock())
            .await
            .map_err(|_elapsed| late(call))?;
        if let Some((version, at)) = *known
            && at.elapsed() < FRESH
        {
            return Ok(version);
        }
        let request = Request::get(Service::LoadBalancer, "version_list", "");
        let answer = self.api.send(request, call).await?;
        let versions: Vec<Version> = answer.object("versions")?;
        let current = versions.iter().filter(|version| version.status == "CURRENT");
        let Some(version) = current.filter_map(|version| ApiVersion::parse(&version.id)).max()
        else {
            let what = "no version of the API has the status CURRENT";
            return Err(answer.malformed(what));
        };
        *known = Some((version, Instant::now()));
        Ok(version)
    }

    /// Lists load balancers of the project. An entry that cannot be parsed is not in the rows. To
    /// an administrator, Octavia would show all projects' load balancers.
    ///
    /// Octavia answers a filter that is given twice with status 500 (seen in version 2.26), so
    /// several IDs are picked from the list of all.
    pub async fn balancers(
        &self,
        filter: Filter<'_>,
        call: Call,
    ) -> Result<BalancerRows, CloudError> {
        if let Filter::Ids([]) = filter {
            return Ok(BalancerRows::default());
        }
        let project = self.api.project_id(call).await?;
        let base = format!("{LBAAS}/loadbalancers?project_id={}", query(&project));
        let path = match filter {
            Filter::Ids([id]) => format!("{base}&id={}", query(id)),
            Filter::All | Filter::Ids(_) => base,
            // Octavia takes all required tags in one value.
            Filter::Tags(tags) => format!("{base}&tags={}", query(&tags.join(","))),
            Filter::AnyTag(tag, any) => {
                format!("{base}&tags={}&tags-any={}", query(tag), query(&any.join(",")))
            }
        };
        let wanted = |id: &str| match filter {
            Filter::Ids(ids) => ids.iter().any(|wanted| wanted == id),
            _ => true,
        };
        let operation = "loadbalancer_list";
        let mut read = BalancerRows::default();
        let take = |entry: &str| match serde_json::from_str::<BalancerRow>(entry) {
            Ok(row) if wanted(&row.id) => read.rows.push(row),
            Ok(_) => {}
            Err(error) => read.malformed.push(unreadable(operation, entry, &error)),
        };
        let list = list("loadbalancers", operation, &path);
        let PagesRead { request_id, .. } =
            list.entries(&*self.api, &Memory::default(), call, take).await?;
        Ok(BalancerRows { request_id, ..read })
    }

    /// Returns the load balancer with this ID; `None` if Octavia itself says that it does not exist.
    pub async fn balancer(&self, id: &str, call: Call) -> Result<Option<BalancerRow>, CloudError> {
        let path = format!("{LBAAS}/loadbalancers/{}", query(id));
        let request = Request::get(Service::LoadBalancer, "loadbalancer_get", &path);
        about(id, self.api.send(request, call).await?)?.object_or_none("loadbalancer")
    }

    /// Returns the load balancer of this ID with all that is below it, by one request; `None` if
    /// Octavia itself says that it does not exist.
    pub async fn tree(&self, id: &str, call: Call) -> Result<Option<Tree>, CloudError> {
        let path = format!("{LBAAS}/loadbalancers/{}/status", query(id));
        let request = Request::get(Service::LoadBalancer, "loadbalancer_status_get", &path);
        let answer = about(id, self.api.send(request, call).await?)?;
        let statuses: Option<Statuses> = answer.object_or_none("statuses")?;
        Ok(statuses.map(|statuses| statuses.loadbalancer))
    }

    /// Returns all listeners of a load balancer.
    pub async fn listeners(
        &self,
        balancer: &str,
        call: Call,
    ) -> Result<Vec<ListenerRow>, CloudError> {
        let path = format!("{LBAAS}/listeners?loadbalancer_id={}", query(balancer));
        let list = list("listeners", "loadbalancer_listener_list", &path);
        self.rows(list, &Memory::default(), call).await
    }

    /// Returns all pools of a load balancer.
    pub async fn pools(&self, balancer: &str, call: Call) -> Result<Vec<PoolRow>, CloudError> {
        let path = format!("{LBAAS}/pools?loadbalancer_id={}", query(balancer));
        let list = list("pools", "loadbalancer_pool_list", &path);
        self.rows(list, &Memory::default(), call).await
    }

    /// Returns all members of a pool. A pool that does not exist is an error.
    pub async fn members(&self, pool: &str, call: Call) -> Result<Vec<MemberRow>, CloudError> {
        let path = format!("{LBAAS}/pools/{}/members", query(pool));
        let list = list("members", "loadbalancer_member_list", &path);
        self.rows(list, &Memory::default(), call).await
    }

    /// Returns the health monitors of these pools, one request each: Octavia takes no filter twice.
    pub async fn monitors(
        &self,
        pools: &[String],
        call: Call,
    ) -> Result<Vec<MonitorRow>, CloudError> {
        let memory = &Memory::default();
        let parts = pools.iter().map(|pool| async move {
            let path = format!("{LBAAS}/healthmonitors?pool_id={}", query(pool));
            let list = list("healthmonitors", "loadbalancer_healthmonitor_list", &path);
            self.rows(list, memory, call).await
        });
        let parts = stream::iter(parts.collect::<Vec<_>>()).buffered(AT_ONCE);
        let parts: Vec<Vec<MonitorRow>> = parts.try_collect().await?;
        Ok(parts.into_iter().flatten().collect())
    }

    /// Makes a load balancer with the whole tree below it. After an error that may have taken
    /// effect, first look for what it may have made.
    pub async fn create(&self, body: Value, call: Call) -> Result<BalancerRow, CloudError> {
        let (path, body) = (format!("{LBAAS}/loadbalancers"), json!({ "loadbalancer": body }));
        let request = Request::post(Service::LoadBalancer, "loadbalancer_create", &path, body);
        let answer = self.api.send(request, call).await?.found()?;
        // The load balancer exists, although the answer is wrong.
        answer.object("loadbalancer").map_err(CloudError::that_may_be_done)
    }

    /// Changes these fields of a load balancer.
    pub async fn update(&self, id: &str, body: Value, call: Call) -> Result<(), CloudError> {
        let path = format!("{LBAAS}/loadbalancers/{}", query(id));
        let body = json!({ "loadbalancer": body });
        let request = Request::put(Service::LoadBalancer, "loadbalancer_update", &path, body);
        self.write(request, call).await
    }

    /// Deletes a load balancer; with `cascade` all that is below it as well, without it a load
    /// balancer that has children is refused.
    pub async fn delete(
        &self,
        id: &str,
        cascade: bool,
        call: Call,
    ) -> Result<Deletion, CloudError> {
        let how = if cascade { "?cascade=true" } else { "" };
        let path = format!("{LBAAS}/loadbalancers/{}{how}", query(id));
        let request = Request::delete(Service::LoadBalancer, "loadbalancer_delete", &path);
        Deletion::from_answer(&about(id, self.api.send(request, call).await?)?)
    }

    /// Requests that Octavia builds the load balancer anew, with its addresses. Octavia does this for some users only, also
    /// in `ERROR`.
    pub async fn fail_over(&self, id: &str, call: Call) -> Result<(), CloudError> {
        let path = format!("{LBAAS}/loadbalancers/{}/failover", query(id));
        let request = Request::get(Service::LoadBalancer, "loadbalancer_failover", &path);
        self.write(Request { method: Method::PUT, ..request }, call).await
    }

    /// Returns how many load balancers the project may have; negative without a limit, and `None`
    /// if Octavia does not say so.
    pub async fn quota(&self, call: Call) -> Result<Option<i64>, CloudError> {
        let project = self.api.project_id(call).await?;
        let path = format!("{LBAAS}/quotas/{}", query(&project));
        let request = Request::get(Service::LoadBalancer, "loadbalancer_quota_get", &path);
        let quota: Quota = self.api.send(request, call).await?.found()?.object("quota")?;
        Ok(quota.load_balancer.or(quota.loadbalancer))
    }

    /// Makes a child and returns its ID. After an error that may have taken effect, first look for
    /// what it may have made.
    pub async fn create_child(
        &self,
        child: Child,
        body: Value,
        call: Call,
    ) -> Result<String, CloudError> {
        let (operation, path) = (child.operation(&Method::POST), child.path(None));
        let body = json!({ child.key(): body });
        let request = Request::post(Service::LoadBalancer, operation, &path, body);
        let answer = self.api.send(request, call).await?.found()?;
        let made = answer.object(child.key()).map(|made: Reference| made.id);
        made.map_err(CloudError::that_may_be_done)
    }

    /// Changes these fields of a child.
    pub async fn update_child(
        &self,
        child: Child,
        id: &str,
        body: Value,
        call: Call,
    ) -> Result<(), CloudError> {
        let (operation, path) = (child.operation(&Method::PUT), child.path(Some(id)));
        let body = json!({ child.key(): body });
        self.write(Request::put(Service::LoadBalancer, operation, &path, body), call).await
    }

    /// Deletes a child; a pool with its members and its monitor.
    pub async fn delete_child(
        &self,
        child: Child,
        id: &str,
        call: Call,
    ) -> Result<Deletion, CloudError> {
        let (operation, path) = (child.operation(&Method::DELETE), child.path(Some(id)));
        let request = Request::delete(Service::LoadBalancer, operation, &path);
        Deletion::from_answer(&about(id, self.api.send(request, call).await?)?)
    }

    /// Replaces all members of a pool. Octavia knows a member by address and port. A duplicate is
    /// refused here: Octavia accepts it, and the load balancer stays in `PENDING_UPDATE` for good
    /// (seen in version 2.26).
    pub async fn set_members(
        &self,
        pool: &str,
        members: Vec<Value>,
        call: Call,
    ) -> Result<(), CloudError> {
        let mut keys = BTreeSet::new();
        for member in &members {
            let (address, port) = (&member["address"], &member["protocol_port"]);
            if !keys.insert((address.to_string(), port.to_string())) {
                let what = format!("the members of pool {pool} have {address}, port {port} twice");
                return Err(CloudError::new(ErrorKind::Invalid, what));
            }
        }
        let path = format!("{LBAAS}/pools/{}/members", query(pool));
        let body = json!({ "members": members });
        let operation = "loadbalancer_members_update";
        self.write(Request::put(Service::LoadBalancer, operation, &path, body), call).await
    }

    async fn write(&self, request: Request<'_>, call: Call) -> Result<(), CloudError> {
        self.api.send(request, call).await?.found().map(drop)
    }

    /// Returns all rows of a list. A row that cannot be parsed is an error: otherwise it would
    /// count as missing.
    async fn rows<T: DeserializeOwned + Send>(
        &self,
        list: Collection<'_>,
        memory: &Memory,
        call: Call,
    ) -> Result<Vec<T>, CloudError> {
        let (mut rows, mut trouble) = (Vec::new(), None);
        let take = |entry: &str| match serde_json::from_str(entry) {
            Ok(row) => rows.push(row),
            Err(error) => {
                trouble.get_or_insert_with(|| unreadable(list.operation, entry, &error));
            }
        };
        let PagesRead { request_id, .. } = list.entries(&*self.api, memory, call, take).await?;
        match trouble {
            None => Ok(rows),
            Some(line) => {
                Err(CloudError { request_id, ..CloudError::new(ErrorKind::Malformed, line) })
            }
        }
    }
}

/// Returns a list of Octavia.
const fn list<'a>(key: &'static str, operation: &'static str, path: &'a str) -> Collection<'a> {
    Collection { service: Service::LoadBalancer, operation, path, key }
}

/// Returns the answer, unless it is a 404 about another object than this one.
fn about(id: &str, answer: Answer) -> Result<Answer, CloudError> {
    if answer.status != 404 || answer.denies(id) {
        return Ok(answer);
    }
    let text = String::from_utf8_lossy(&answer.body);
    let what = format!("404, but not about {id:?}: {}", one_line(&text, MAX_MESSAGE));
    Err(answer.malformed(&what))
}

fn unreadable(operation: &str, entry: &str, error: &serde_json::Error) -> String {
    let id = id_of(entry).unwrap_or_else(|| "without one".to_owned());
    let (id, error) = (one_line(&id, MAX_VALUE), one_line(&error.to_string(), MAX_VALUE));
    format!("{operation}: cannot parse the entry with ID {id:?}: {error}")
}

fn late(call: Call) -> CloudError {
    let limit = call.timeout.as_secs_f64();
    let what = format!("load-balancer version_list: no answer within the {limit} s of the call");
    CloudError::new(ErrorKind::Timeout, what)
}
