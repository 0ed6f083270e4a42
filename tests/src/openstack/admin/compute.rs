//! Nova: servers.

use std::time::Duration;

use anyhow::{Context as _, Result};
use ccm_sim::poll;
use http::Method;
use serde_json::{Value, json};

use super::{Admin, text};

/// Time limit for one change of a server by Nova on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Time limit for each of many servers. Nova creates two per second on an idle machine.
const EACH: Duration = Duration::from_secs(3);

/// A server to create, on the project's network.
#[derive(Clone, Debug)]
pub struct NewServer {
    /// Its name, and the node's.
    pub name: String,
    /// The flavor's name.
    pub flavor: String,
    /// The availability zone.
    pub zone: String,
}

impl NewServer {
    /// Returns a small one in the first zone.
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned(), flavor: "m1.small".to_owned(), zone: "zone-1".to_owned() }
    }

    /// Returns the request with another zone.
    #[must_use]
    pub fn zone(mut self, zone: &str) -> Self {
        zone.clone_into(&mut self.zone);
        self
    }
}

/// An existing server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Its UUID.
    pub id: String,
    /// Its name.
    pub name: String,
    /// `ACTIVE`, `SHUTOFF`, `ERROR` ..
    pub status: String,
    /// The name of its flavor.
    pub flavor: String,
    /// The availability zone.
    pub zone: String,
    /// Its addresses on networks.
    pub fixed: Vec<String>,
    /// Its floating IPs.
    pub floating: Vec<String>,
}

impl Server {
    fn read(server: &Value) -> Result<Self> {
        let networks = server["addresses"].as_object().into_iter().flat_map(|all| all.values());
        let entries: Vec<_> = networks.filter_map(Value::as_array).flatten().collect();
        let of = |kind: &str| {
            let wanted = entries.iter().filter(|entry| entry["OS-EXT-IPS:type"] == kind);
            wanted.filter_map(|entry| Some(entry["addr"].as_str()?.to_owned())).collect()
        };
        Ok(Self {
            id: text(server, "/id")?,
            name: text(server, "/name")?,
            status: text(server, "/status")?,
            flavor: text(server, "/flavor/original_name")?,
            zone: text(server, "/OS-EXT-AZ:availability_zone")?,
            fixed: of("fixed"),
            floating: of("floating"),
        })
    }

    /// Returns true if the server matches this request and runs.
    pub fn is_like(&self, new: &NewServer) -> bool {
        let made = (&self.name, &self.flavor, &self.zone) == (&new.name, &new.flavor, &new.zone);
        made && self.status == "ACTIVE" && self.floating.is_empty()
    }

    /// Returns the node's provider ID.
    pub fn provider_id(&self) -> String {
        format!("openstack:///{}", self.id)
    }
}

impl Admin {
    /// Requests a server and returns its ID. Its status is `BUILD` for some seconds.
    pub async fn create_server(&self, new: &NewServer) -> Result<String> {
        let created = self.create(new, 1).await?;
        text(&created, "/server/id")
    }

    /// Creates servers until this number of them has this prefix, waits until all with the prefix
    /// are `ACTIVE`, and returns them. It does not delete servers.
    pub async fn crowd(&self, prefix: &str, count: usize) -> Result<Vec<Server>> {
        let ours = async || {
            let mut servers = self.servers().await?;
            servers.retain(|server| server.name.starts_with(prefix));
            anyhow::Ok(servers)
        };
        let there = ours().await?.len();
        if there < count {
            // Nova appends a number to the name; existing servers have other numbers.
            let now = std::time::UNIX_EPOCH.elapsed()?.as_secs();
            let new = NewServer::named(&format!("{prefix}{now:x}"));
            self.create(&new, count - there).await?;
        }
        let limit = PATIENCE + EACH * u32::try_from(count)?;
        poll::until(&format!("{count} servers to be ACTIVE"), limit, || async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            let servers = ours().await?;
            let (active, all) =
                (servers.iter().filter(|server| server.status == "ACTIVE").count(), servers.len());
            anyhow::ensure!(active == all && all >= count, "{active} of {all} are");
            Ok(Some(servers))
        })
        .await
    }

    async fn create(&self, new: &NewServer, count: usize) -> Result<Value> {
        let flavors = format!("{}/flavors", self.compute);
        let image = self.image().await?;
        // Each project has one network, named after the project.
        let networks = format!("{}/networks", self.network);
        let network = self.id_by_name(&networks, &self.project).await;
        let body = json!({"server": {
            "name": new.name,
            "flavorRef": self.id_by_name(&flavors, &new.flavor).await?,
            "imageRef": image,
            "availability_zone": new.zone,
            "networks": [{"uuid": network?}],
            "min_count": count,
        }});
        self.post(&format!("{}/servers", self.compute), body).await
    }

    /// Creates a server and waits until it is `ACTIVE`.
    pub async fn new_server(&self, new: &NewServer) -> Result<Server> {
        let id = self.create_server(new).await?;
        self.wait_for(&id, "ACTIVE").await
    }

    /// Creates servers and waits until all are `ACTIVE`.
    pub async fn create_servers(&self, all: &[NewServer]) -> Result<Vec<Server>> {
        let mut ids = Vec::new();
        for new in all {
            ids.push(self.create_server(new).await?);
        }
        let mut servers = Vec::new();
        for id in ids {
            servers.push(self.wait_for(&id, "ACTIVE").await?);
        }
        Ok(servers)
    }

    /// Returns the image of all servers, from Nova's own list, which still exists in 2.35.
    async fn image(&self) -> Result<String> {
        let headers = [("x-auth-token", self.token.as_str())];
        let url = format!("{}/images", self.compute);
        let answer = self.http.send(Method::GET, &url, &headers, None).await?;
        text(&answer.json()?, "/images/0/id")
    }

    /// Returns the server, or `None` if no server has this ID.
    pub async fn server(&self, id: &str) -> Result<Option<Server>> {
        let answer = self.call(Method::GET, &self.server_url(id), None).await?;
        if answer.status.as_u16() == 404 {
            return Ok(None);
        }
        anyhow::ensure!(answer.status.is_success(), "{} {}", answer.status, answer.text);
        Server::read(answer.json()?.get("server").context("an answer without a server")?).map(Some)
    }

    /// Returns all servers of the project.
    pub async fn servers(&self) -> Result<Vec<Server>> {
        let document = self.get(&format!("{}/servers/detail", self.compute)).await?;
        let list = document["servers"].as_array().context("an answer without servers")?;
        list.iter().map(Server::read).collect()
    }

    /// Waits until the server has this status.
    pub async fn wait_for(&self, id: &str, status: &str) -> Result<Server> {
        poll::until(&format!("server {id} to be {status}"), PATIENCE, || async {
            // Nova has two workers, which other clients use as well.
            tokio::time::sleep(Duration::from_millis(200)).await;
            let server = self.server(id).await?.context("this server does not exist")?;
            anyhow::ensure!(server.status == status, "it is {}", server.status);
            Ok(Some(server))
        })
        .await
    }

    /// Shuts the server down and waits for it.
    pub async fn stop_server(&self, id: &str) -> Result<Server> {
        self.act(id, json!({"os-stop": null})).await?;
        self.wait_for(id, "SHUTOFF").await
    }

    /// Starts the server and waits for it.
    pub async fn start_server(&self, id: &str) -> Result<Server> {
        self.act(id, json!({"os-start": null})).await?;
        self.wait_for(id, "ACTIVE").await
    }

    /// Resizes the server, confirms the resize and waits for its end.
    pub async fn resize_server(&self, id: &str, flavor: &str) -> Result<Server> {
        let flavor = self.id_by_name(&format!("{}/flavors", self.compute), flavor).await?;
        self.act(id, json!({"resize": {"flavorRef": flavor}})).await?;
        self.wait_for(id, "VERIFY_RESIZE").await?;
        self.act(id, json!({"confirmResize": null})).await?;
        self.wait_for(id, "ACTIVE").await
    }

    /// Deletes the server and waits until it is gone.
    pub async fn delete_server(&self, id: &str) -> Result<()> {
        self.delete_servers([id]).await
    }

    /// Deletes servers and waits until all are gone.
    pub async fn delete_servers(&self, ids: impl IntoIterator<Item = &str>) -> Result<()> {
        let ids: Vec<_> = ids.into_iter().collect();
        for id in &ids {
            self.delete(&self.server_url(id)).await?;
        }
        for id in ids {
            self.is_gone(id).await?;
        }
        Ok(())
    }

    async fn is_gone(&self, id: &str) -> Result<()> {
        poll::until(&format!("server {id} to be gone"), PATIENCE, || async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            Ok(self.server(id).await?.is_none().then_some(()))
        })
        .await
    }

    async fn act(&self, id: &str, action: Value) -> Result<()> {
        self.post(&format!("{}/action", self.server_url(id)), action).await?;
        Ok(())
    }

    fn server_url(&self, id: &str) -> String {
        format!("{}/servers/{id}", self.compute)
    }
}
