//! The fixture of a scenario.

use std::{ops::Deref, path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use ccm_sim::program::Launch;
use serde_json::Value;

use super::{
    admin::{Account, Admin, ApplicationCredential, NewServer, PASSWORD, REGION, Server, User},
    proxy::FaultProxy,
    services::{Flavour, Services},
};
use crate::{
    fixture::{Fixture, with_quick_periods},
    nodes,
};

/// Time limit for quick operations: Nova, Neutron and Octavia are slow, and share two cores with
/// the programs and with whatever else runs on the machine.
pub const SOON: Duration = Duration::from_mins(1);

/// Time limit for the initialisation of a node: longer than the longest back-off between two
/// attempts.
pub const INITIALISED: Duration = Duration::from_secs(90);

/// Keystone itself, without the proxy.
const KEYSTONE: &str = "http://127.0.0.1:5000/v3";

/// The prefix of the names of all users that scenarios create.
const USER_PREFIX: &str = "scenario-";

/// A second name of the only region, which a scenario adds.
pub const OTHER_REGION: &str = "RegionTwo";

/// The prefix of the names of the crowd's servers.
const CROWD: &str = "many-";

/// The cloud, which all scenarios share: servers are slow to create.
pub struct Cloud {
    /// The services' processes.
    pub services: Services,
    /// The proxy before the services, which the programs use.
    pub proxy: FaultProxy,
    /// The operator.
    pub operator: Admin,
    /// The user of the project of the cluster.
    pub user: Admin,
    /// The user of another project.
    pub other: Admin,
    /// Servers that no scenario changes: one in each zone.
    pub fleet: Vec<Server>,
    /// Servers for scenarios with many nodes.
    pub crowd: Vec<Server>,
}

impl Cloud {
    /// Starts the services, removes leftovers of an earlier run, and creates the fleet and a
    /// crowd of this size. An earlier run's fleet and crowd are kept: servers are slow to
    /// create.
    pub async fn start(flavour: Flavour, crowd: usize) -> Result<Self> {
        let services = Services::up(flavour).await?;
        let proxy = FaultProxy::start().await?;
        let login = async |project| Admin::login(KEYSTONE, &Account::of(project)).await;
        let (operator, user, other) =
            (login("admin").await?, login("k8s").await?, login("other").await?);
        clear_balancers(&services, &[&user, &other]).await?;
        clear(&other, &[], 0).await?;
        operator.forget_region(OTHER_REGION).await?;
        for project in [&user, &other] {
            operator.clear_network_quota(project).await?;
            operator.clear_balancer_quota(project).await?;
        }
        for id in operator.users(USER_PREFIX).await? {
            operator.delete_user(&id).await?;
        }
        let fleet = ["zone-1", "zone-2", "zone-3"];
        let fleet: Vec<_> = (0..)
            .zip(fleet)
            .map(|(number, zone)| NewServer::named(&format!("fleet-{number}")).zone(zone))
            .collect();
        let kept = clear(&user, &fleet, crowd).await?;
        let fleet = if kept.is_empty() { user.create_servers(&fleet).await? } else { kept };
        let crowd = if crowd > 0 { user.crowd(CROWD, crowd).await? } else { Vec::new() };
        Ok(Self { services, proxy, operator, user, other, fleet, crowd })
    }

    /// Returns the URL of Keystone itself, without the proxy.
    pub fn keystone(&self) -> &'static str {
        KEYSTONE
    }
}

/// Deletes all load balancers and floating IPs, also load balancers that a failed scenario has left
/// in a state that Octavia does not leave on its own.
async fn clear_balancers(services: &Services, projects: &[&Admin]) -> Result<()> {
    for project in projects {
        let id = project.project_id();
        services.sql(&format!(
            "update octavia.load_balancer set provisioning_status='ERROR' where project_id='{id}' \
             and provisioning_status in ('PENDING_CREATE', 'PENDING_UPDATE')"
        ))?;
        project.clear_balancers().await?;
        for id in project.floating_ips().await? {
            project.delete_floating_ip(&id).await?;
        }
    }
    Ok(())
}

/// Deletes all servers and floating IPs of a project, except this number of the crowd, and
/// except the wanted servers if all of them exist unchanged. Returns the wanted servers, in
/// this order.
async fn clear(user: &Admin, wanted: &[NewServer], crowd: usize) -> Result<Vec<Server>> {
    for id in user.floating_ips().await? {
        user.delete_floating_ip(&id).await?;
    }
    let there = user.servers().await?;
    let find = |new| there.iter().find(|server| server.is_like(new)).cloned();
    let kept: Option<Vec<_>> = wanted.iter().map(find).collect();
    let kept = kept.unwrap_or_default();
    let good = |server: &&Server| matches!(server.status.as_str(), "ACTIVE" | "BUILD");
    let in_crowd = there.iter().filter(|server| server.name.starts_with(CROWD)).filter(good);
    let in_crowd: Vec<_> = in_crowd.take(crowd).collect();
    let others = there.iter().filter(|server| !kept.contains(server) && !in_crowd.contains(server));
    user.delete_servers(others.map(|server| server.id.as_str())).await?;
    Ok(kept)
}

/// The fixture of a scenario: a cluster without nodes, the cloud without faults, and the programs'
/// configuration for it.
pub struct Rig {
    fixture: Fixture,
    /// The cloud.
    pub cloud: Arc<Cloud>,
}

impl Deref for Rig {
    type Target = Fixture;

    fn deref(&self) -> &Fixture {
        &self.fixture
    }
}

impl Rig {
    /// Removes the proxy's faults, and load balancers of the previous scenario.
    pub async fn new(cloud: Arc<Cloud>, fixture: Fixture) -> Result<Self> {
        cloud.proxy.restore().await?;
        clear_balancers(&cloud.services, &[&cloud.user, &cloud.other]).await?;
        let rig = Self { fixture, cloud };
        rig.log_in_as(&Account::of("k8s"))?;
        Ok(rig)
    }

    /// Returns the file for `--cloud-config`.
    pub fn config(&self) -> PathBuf {
        self.path("cloud.conf")
    }

    /// Writes a cloud.conf with a password; running programs reload it.
    pub fn log_in_as(&self, account: &Account) -> Result<()> {
        self.configure(&by_password(account))
    }

    /// Logs in without a region.
    pub fn log_in_without_region(&self, account: &Account) -> Result<()> {
        self.write(&by_password(account))
    }

    /// Writes a cloud.conf with an application credential; running programs reload it.
    pub fn log_in_with(&self, credential: &ApplicationCredential) -> Result<()> {
        let ApplicationCredential { id, secret } = credential;
        self.configure(&format!(
            "application-credential-id = {id}\napplication-credential-secret = {secret}\n"
        ))
    }

    /// Writes a cloud.conf with a trust's ID and its trustee; running programs reload it.
    pub fn log_in_by_trust(&self, trust: &str, trustee: &User) -> Result<()> {
        let User { id, account } = trustee;
        let password = &account.password;
        self.configure(&format!(
            "trust-id = {trust}\ntrustee-id = {id}\ntrustee-password = {password}\n"
        ))
    }

    /// Writes a cloud.conf with a token; running programs reload it.
    pub fn log_in_by_token(&self, token: &str) -> Result<()> {
        self.configure(&format!(
            "token = {token}\ntenant-name = k8s\ntenant-domain-name = Default\n"
        ))
    }

    /// Writes a cloud.conf with another address of Keystone, and another region.
    pub fn log_in_at(&self, auth_url: &str, region: &str, account: &Account) -> Result<()> {
        let lines = by_password(account);
        self.replace(&format!("[Global]\nauth-url = {auth_url}\nregion = {region}\n{lines}"))
    }

    /// Adds the router of the pods' routes to the cloud.conf, unless it has it.
    pub fn use_router(&self, id: &str) -> Result<()> {
        let section = route_section(id);
        if std::fs::read_to_string(self.config())?.contains(&section) {
            return Ok(());
        }
        self.add(&section)
    }

    /// Adds the networks of load balancers to the cloud.conf: virtual addresses and members in the
    /// project's network, floating IPs in the external one.
    pub async fn balance(&self) -> Result<()> {
        self.balance_with("").await
    }

    /// Starts load balancing with more settings.
    pub async fn balance_with(&self, lines: &str) -> Result<()> {
        let section = self.load_balancing().await?;
        self.add(&format!("{section}{lines}"))
    }

    /// The section that starts load balancing.
    async fn load_balancing(&self) -> Result<String> {
        let subnet = self.cloud.user.subnet("k8s").await?;
        let public = self.cloud.user.network("public").await?;
        Ok(format!("[LoadBalancer]\nsubnet-id = {subnet}\nfloating-network-id = {public}\n"))
    }

    /// Replaces the cloud.conf by one for all four programs in one step: a program that looked
    /// between two steps would restart for each of them.
    pub async fn configure_all(&self, auth_url: &str, region: &str) -> Result<()> {
        let account = by_password(&Account::of("k8s"));
        let router = route_section(&self.cloud.user.router().await?);
        let balancing = self.load_balancing().await?;
        self.replace(&format!(
            "[Global]\nauth-url = {auth_url}\nregion = {region}\n{account}{router}{balancing}"
        ))
    }

    fn add(&self, section: &str) -> Result<()> {
        let text = std::fs::read_to_string(self.config())?;
        self.replace(&format!("{text}{section}"))
    }

    fn configure(&self, credentials: &str) -> Result<()> {
        self.write(&format!("region = {REGION}\n{credentials}"))
    }

    /// Writes the cloud.conf: these lines of `[Global]` after the address of Keystone.
    fn write(&self, lines: &str) -> Result<()> {
        let auth_url = self.cloud.proxy.auth_url()?;
        self.replace(&format!("[Global]\nauth-url = {auth_url}\n{lines}"))
    }

    /// Replaces the cloud.conf atomically: a reader never sees half of it.
    fn replace(&self, text: &str) -> Result<()> {
        let aside = self.path("cloud.conf.new");
        std::fs::write(&aside, text)?;
        Ok(std::fs::rename(aside, self.config())?)
    }

    /// Returns node-ccm for this cluster and cloud.
    pub fn node_ccm(&self) -> Launch {
        self.launch("node-ccm")
    }

    /// Returns lifecycle-ccm for this cluster and cloud, with quick periods.
    pub fn lifecycle_ccm(&self) -> Launch {
        with_quick_periods(self.launch("lifecycle-ccm"))
    }

    /// Returns a program for this cluster and cloud, with its default settings.
    pub fn launch(&self, program: &str) -> Launch {
        self.controller(program, "openstack", &self.config())
    }

    /// Returns one of the unchanging servers.
    pub fn fleet(&self, number: usize) -> Result<&Server> {
        self.cloud.fleet.get(number).context("the fleet is not that large")
    }

    /// Returns a new server of the cluster's project. The scenario deletes it; the next run deletes
    /// leftovers.
    pub async fn server(&self, name: &str) -> Result<Server> {
        self.cloud.user.new_server(&NewServer::named(name)).await
    }

    /// Waits until every service refuses a revoked token: services cache Keystone's answer
    /// for one second.
    pub async fn past_token_caches(&self) {
        tokio::time::sleep(Duration::from_secs(2)).await;
    }

    /// Returns a user of the cluster's project, for this scenario only.
    pub async fn own_user(&self, name: &str) -> Result<User> {
        self.own_user_of("k8s", name).await
    }

    /// Returns a user of another project, for this scenario only.
    pub async fn own_user_of(&self, project: &str, name: &str) -> Result<User> {
        let account = Account {
            user: format!("{USER_PREFIX}{name}"),
            password: PASSWORD.to_owned(),
            project: project.to_owned(),
        };
        self.cloud.operator.create_user(&account).await
    }

    /// Registers the node of a server as the kubelet does: with its name and UUID.
    pub async fn register(&self, server: &Server) -> Result<()> {
        nodes::register(&self.client, &fresh(server)).await
    }

    /// Registers nodes of these servers that are initialised and Ready.
    pub async fn register_initialised(&self, servers: &[&Server]) -> Result<()> {
        for server in servers {
            let mut node = fresh(server);
            node["spec"] = serde_json::json!({"providerID": server.provider_id()});
            nodes::register(&self.client, &node).await?;
        }
        Ok(())
    }
}

/// Returns the lines of a cloud.conf for an account.
fn by_password(account: &Account) -> String {
    let Account { user, password, project } = account;
    format!(
        "username = {user}\npassword = {password}\ntenant-name = {project}\ndomain-name = Default\n"
    )
}

/// Returns the section of a cloud.conf that names the router of the pods' routes.
fn route_section(router: &str) -> String {
    format!("[Route]\nrouter-id = {router}\n")
}

/// Returns the node of a server, just registered by the kubelet.
pub fn fresh(server: &Server) -> Value {
    let mut node = nodes::fresh(&server.name);
    node["status"]["nodeInfo"]["systemUUID"] = server.id.clone().into();
    node
}
