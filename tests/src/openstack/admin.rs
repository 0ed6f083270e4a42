//! Actions of a cloud's user or operator: servers, floating IPs, load balancers, accounts.

use anyhow::{Context as _, Result, ensure};
use http::Method;
use serde_json::{Value, json};

use super::{
    Service,
    http::{Answer, Http},
};

mod balancers;
mod compute;
mod identity;
mod network;

pub use compute::{NewServer, Server};
pub use identity::{ApplicationCredential, User};
pub use network::{FloatingIp, NarrowNetwork, Port};

/// The password of every user, as `tests/openstack` sets it.
pub const PASSWORD: &str = "quartet";

/// The cloud's only region.
pub const REGION: &str = "RegionOne";

/// A user and its project. All are of the domain Default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The user's name.
    pub user: String,
    /// The password.
    pub password: String,
    /// The project's name.
    pub project: String,
}

impl Account {
    /// Returns the user that has the name of its project: `k8s`, `other`, `admin`.
    pub fn of(project: &str) -> Self {
        Self {
            user: project.to_owned(),
            password: PASSWORD.to_owned(),
            project: project.to_owned(),
        }
    }
}

/// A logged-in user.
pub struct Admin {
    http: Http,
    token: String,
    user_id: String,
    project: String,
    project_id: String,
    identity: String,
    compute: String,
    network: String,
    load_balancer: String,
}

impl Admin {
    /// Logs in at Keystone, which returns the catalog of services.
    pub async fn login(auth_url: &str, account: &Account) -> Result<Self> {
        let http = Http::new();
        let url = format!("{auth_url}/auth/tokens");
        let answer = http.send(Method::POST, &url, &[], Some(&login_body(account))).await?;
        ensure!(
            answer.status.as_u16() == 201,
            "{} cannot log in: {} {}",
            account.user,
            answer.status,
            answer.text
        );
        let token = answer.headers.get("x-subject-token").context("an answer without a token")?;
        let body = answer.json()?;
        let place = |kind| endpoint(&body, kind);
        Ok(Self {
            http,
            token: token.to_str()?.to_owned(),
            user_id: text(&body, "/token/user/id")?,
            project: account.project.clone(),
            project_id: text(&body, "/token/project/id")?,
            identity: auth_url.to_owned(),
            compute: place(Service::Compute.name())?,
            network: format!("{}/v2.0", place(Service::Network.name())?),
            load_balancer: place(Service::LoadBalancer.name())?,
        })
    }

    /// Returns the user's token.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Returns the URL of Nova, from the catalog.
    pub fn compute_url(&self) -> &str {
        &self.compute
    }

    /// Returns the URL of Neutron, from the catalog, with the version.
    pub fn network_url(&self) -> &str {
        &self.network
    }

    /// Returns the project's ID.
    pub fn project_id(&self) -> &str {
        &self.project_id
    }

    /// Returns a call with this token; returns any answer.
    pub async fn call(&self, method: Method, url: &str, body: Option<&Value>) -> Result<Answer> {
        let headers = [
            ("x-auth-token", self.token.as_str()),
            // Names of flavors in servers came with 2.47; every cloud here has it.
            ("openstack-api-version", "compute 2.47"),
        ];
        self.http.send(method, url, &headers, body).await
    }

    /// Returns a call that must succeed; null when the answer has no body.
    async fn done(&self, method: Method, url: &str, body: Option<&Value>) -> Result<Value> {
        let answer = self.call(method.clone(), url, body).await?;
        let (status, text) = (answer.status, &answer.text);
        ensure!(status.is_success(), "{method} {url}: {status} {text}");
        if text.is_empty() { Ok(Value::Null) } else { answer.json() }
    }

    async fn get(&self, url: &str) -> Result<Value> {
        self.done(Method::GET, url, None).await
    }

    async fn post(&self, url: &str, body: Value) -> Result<Value> {
        self.done(Method::POST, url, Some(&body)).await
    }

    /// Deletes an object; a missing one does not fail.
    async fn delete(&self, url: &str) -> Result<()> {
        let answer = self.call(Method::DELETE, url, None).await?;
        let fine = answer.status.is_success() || answer.status.as_u16() == 404;
        ensure!(fine, "DELETE {url}: {} {}", answer.status, answer.text);
        Ok(())
    }

    /// Returns the ID of the only object of this name in a list such as `{"flavors": [..]}`.
    async fn id_by_name(&self, url: &str, name: &str) -> Result<String> {
        let document = self.get(url).await?;
        let lists = document.as_object().into_iter().flat_map(|document| document.values());
        let mut things = lists.filter_map(Value::as_array).flatten();
        let found = things.find(|thing| thing.get("name").and_then(Value::as_str) == Some(name));
        text(found.with_context(|| format!("{url} shows no {name}"))?, "/id")
    }
}

fn login_body(account: &Account) -> Value {
    let domain = json!({"name": "Default"});
    json!({"auth": {
        "identity": {"methods": ["password"], "password": {"user": {
            "name": account.user, "password": account.password, "domain": domain
        }}},
        "scope": {"project": {"name": account.project, "domain": domain}}
    }})
}

/// Returns the public endpoint of a service in the catalog of a login's answer.
fn endpoint(login: &Value, kind: &str) -> Result<String> {
    let catalog = login.pointer("/token/catalog").and_then(Value::as_array);
    let service = catalog
        .and_then(|catalog| catalog.iter().find(|service| service["type"] == kind))
        .and_then(|service| service["endpoints"].as_array())
        .and_then(|all| all.iter().find(|endpoint| endpoint["interface"] == "public"));
    text(service.with_context(|| format!("no {kind} in the catalog"))?, "/url")
}

/// Returns the string at a JSON pointer.
fn text(document: &Value, pointer: &str) -> Result<String> {
    let value = document.pointer(pointer).and_then(Value::as_str);
    value.map(str::to_owned).with_context(|| format!("no {pointer} in {document}"))
}
