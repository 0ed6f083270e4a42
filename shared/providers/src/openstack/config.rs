//! The settings: `cloud.conf`, and `clouds.yaml` where that is wanted.
//!
//! ```text
//! cloud.conf -> ini -> settings (by the table in options) -+-> Config
//! clouds.yaml, secure.yaml, clouds-public.yaml -> clouds --+   credentials: one way to log in
//! ```
//!
//! Everything that is wrong is reported at once, in one line that holds no secret;
//! what is merely odd is a warning. Nothing here asks the cloud.

mod balancer;
mod clouds;
mod credentials;
mod environment;
pub(crate) mod files;
mod ini;
mod notes;
pub mod options;
mod secret;
mod settings;
mod values;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use ccm_cloud::{CloudError, ErrorKind};
use ipnet::IpNet;
use url::Url;

pub(crate) use self::{balancer::LoadBalancer, credentials::Credentials, environment::Environment};
#[cfg_attr(not(test), expect(unused_imports, reason = "named by the client and the factory"))]
pub(crate) use self::{
    balancer::LoadBalancerClass,
    credentials::{ApplicationCredential, Domain, Scope, User},
    environment::Process,
    secret::Secret,
};
use self::{
    clouds::{Cloud, Wanted},
    credentials::Given,
    notes::Notes,
    settings::Settings,
};

const GLOBAL: &str = "Global";

/// How the cloud is reached and what nodes show of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    /// Keystone, with or without `/v3`.
    pub auth_url: Url,
    /// Which of a service's endpoints are used.
    pub interface: Interface,
    /// The region whose endpoints are used; without one, the first in the catalog.
    pub region: Option<String>,
    /// Whether provider IDs name the region.
    pub regional_ids: bool,
    /// Who we are.
    pub credentials: Credentials,
    /// Certificates.
    pub tls: Tls,
    /// The longest time for one request; zero for no limit but the caller's.
    pub request_timeout: Duration,
    /// Which addresses nodes show.
    pub networking: Networking,
    /// Which labels nodes get.
    pub labels: Labels,
    /// Routes to pods.
    pub route: Route,
    /// Load balancers.
    pub load_balancer: LoadBalancer,
}

/// For whom an endpoint is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interface {
    /// For everybody.
    Public,
    /// For the cloud's own networks.
    Internal,
    /// For administrators.
    Admin,
}

impl Interface {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "public" => Some(Self::Public),
            "internal" => Some(Self::Internal),
            "admin" => Some(Self::Admin),
            _ => None,
        }
    }
}

/// Certificates. The files are not read here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tls {
    /// Replaces the roots of the system.
    pub ca_file: Option<PathBuf>,
    /// Our certificate and its key.
    pub client: Option<(PathBuf, PathBuf)>,
    /// Whether any certificate is accepted.
    pub insecure: bool,
}

/// Which addresses nodes show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Networking {
    /// Leave out IPv6.
    pub ipv6_disabled: bool,
    /// Networks, by name or ID, whose addresses are external.
    pub public_networks: Vec<String>,
    /// When not empty: the only networks, by name or ID, whose addresses are internal.
    pub internal_networks: Vec<String>,
    /// The order of addresses: those in the first network come first.
    pub sort_order: Vec<IpNet>,
}

/// Which labels nodes get.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Labels {
    /// Keys of the server's metadata; with `*` at the end, beginnings of keys.
    pub metadata: Vec<String>,
    /// The ID of the hypervisor.
    pub host_id: bool,
    /// The ID of the flavor.
    pub flavor_id: bool,
}

/// Routes to pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Route {
    /// The router that carries them.
    pub router_id: Option<String>,
}

/// The settings, and what the files that they come from give rise to.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// The settings.
    pub config: Config,
    /// What is odd, a line each; they name file, line, section and key.
    pub warnings: Vec<String>,
    /// Every file that counts: those that are only named, certificates for example, and
    /// those that are not there but would be read if they were. Who wants to notice
    /// changes looks at all of them.
    pub files: Vec<PathBuf>,
}

/// Settings that cannot be used.
#[derive(Debug)]
pub(crate) struct Unusable {
    /// Every problem, in one line of kind [`ErrorKind::Invalid`].
    pub error: CloudError,
    /// As in [`Loaded`], as far as it is known.
    pub files: Vec<PathBuf>,
}

impl Config {
    /// Reads the file of `--cloud-config` and those that it leads to. Blocks while it
    /// reads.
    pub(crate) fn load(path: &Path, env: &dyn Environment) -> Result<Loaded, Unusable> {
        let unusable = |why: String, files| {
            let error = CloudError::new(ErrorKind::Invalid, format!("--cloud-config {why}"));
            Unusable { error, files }
        };
        let text = files::read(path)
            .map_err(|why| unusable(format!("{}: {why}", path.display()), vec![path.to_owned()]))?;
        Self::parse(path, &text, env).map_err(|(why, files)| unusable(why, files))
    }

    fn parse(
        path: &Path,
        text: &str,
        env: &dyn Environment,
    ) -> Result<Loaded, (String, Vec<PathBuf>)> {
        let mut notes = Notes::default();
        notes.about(path);
        let settings = Settings::read(path, text, &mut notes);
        let mut builder = Builder { settings, env, notes, files: vec![path.to_owned()] };
        let config = builder.config();
        let files = builder.files;
        match (builder.notes.into_result(), config) {
            (Ok(warnings), Some(config)) => Ok(Loaded { config, warnings, files }),
            (Ok(_), None) => Err((format!("{}: cannot be used", path.display()), files)),
            (Err(why), _) => Err((why, files)),
        }
    }
}

struct Builder<'a> {
    settings: Settings,
    env: &'a dyn Environment,
    notes: Notes,
    files: Vec<PathBuf>,
}

impl Builder<'_> {
    fn config(&mut self) -> Option<Config> {
        let mut given = self.given();
        let mut cloud = self.cloud()?;
        given.fill_without_contradiction(std::mem::take(&mut cloud.given));
        let auth_url = self.auth_url(given.auth_url.take().as_deref());
        let interface = self.interface(&cloud);
        let credentials = given.decide().map_err(|missing| {
            for what in missing {
                self.notes.problem(format!("[{GLOBAL}] {what}"));
            }
        });
        let region = self.settings.given(GLOBAL, "region").or(cloud.region.take());
        let region = region.filter(|region| !region.is_empty());
        let regional_ids = self.env.variable("OS_CCM_REGIONAL").as_deref() == Some("true");
        if regional_ids && region.is_none() {
            self.notes.warning(format!(
                "[{GLOBAL}] region: not set, so provider IDs have none although OS_CCM_REGIONAL is true"
            ));
        }
        Some(Config {
            tls: self.tls(cloud),
            request_timeout: self.request_timeout(),
            networking: self.networking(),
            labels: self.labels(),
            route: Route { router_id: self.settings.given("Route", "router-id") },
            load_balancer: LoadBalancer::of(&self.settings, &mut self.notes),
            regional_ids,
            region,
            interface: interface?,
            credentials: credentials.ok()?,
            auth_url: auth_url?,
        })
    }

    /// What `[Global]` says about us.
    fn given(&self) -> Given {
        let text = |key| self.settings.given(GLOBAL, key);
        Given {
            auth_url: text("auth-url"),
            user_id: text("user-id"),
            username: text("username"),
            password: text("password"),
            project_id: text("tenant-id"),
            project_name: text("tenant-name"),
            domain_id: text("domain-id"),
            domain_name: text("domain-name"),
            project_domain_id: text("tenant-domain-id"),
            project_domain_name: text("tenant-domain-name"),
            user_domain_id: text("user-domain-id"),
            user_domain_name: text("user-domain-name"),
            application_credential_id: text("application-credential-id"),
            application_credential_name: text("application-credential-name"),
            application_credential_secret: text("application-credential-secret"),
            token: text("token"),
            trust_id: text("trust-id"),
            trustee_id: text("trustee-id"),
            trustee_password: text("trustee-password"),
        }
    }

    /// The entry of `clouds.yaml`, an empty one where that is not wanted. None when it
    /// cannot be had: then nothing can be said about what it leaves out.
    fn cloud(&mut self) -> Option<Cloud> {
        let wanted = Wanted {
            file: self.settings.file(GLOBAL, "clouds-file", self.env),
            cloud: self.settings.given(GLOBAL, "cloud"),
        };
        if !self.settings.flag(GLOBAL, "use-clouds") {
            if wanted.file.is_some() || wanted.cloud.is_some() {
                self.notes.warning(format!(
                    "[{GLOBAL}] cloud and clouds-file: not used without use-clouds = true"
                ));
            }
            return Some(Cloud::default());
        }
        clouds::read(&wanted, self.env, &mut self.notes, &mut self.files)
    }

    fn auth_url(&mut self, text: Option<&str>) -> Option<Url> {
        if self.settings.is_refused(GLOBAL, "auth-url") {
            return None;
        }
        let Some(text) = text else {
            self.notes.problem(format!(
                "[{GLOBAL}] auth-url: missing; must be the URL of Keystone, here or in clouds.yaml"
            ));
            return None;
        };
        // One of [Global] has been checked with the other values.
        values::url(text)
            .map_err(|why| self.notes.problem(format!("auth_url of clouds.yaml {why}")))
            .ok()
    }

    fn interface(&mut self, cloud: &Cloud) -> Option<Interface> {
        let own = self.settings.given(GLOBAL, "os-endpoint-type");
        let text = own.or_else(|| cloud.interface.clone());
        let text = text.unwrap_or_else(|| self.settings.text(GLOBAL, "os-endpoint-type"));
        let interface = Interface::parse(&text);
        if interface.is_none() {
            self.notes.problem(format!(
                "{}: interface {text:?} must be public or internal or admin",
                cloud.file.display()
            ));
        }
        interface
    }

    fn tls(&mut self, cloud: Cloud) -> Tls {
        let file = |key, other| self.settings.file(GLOBAL, key, self.env).or(other);
        let ca_file = file("ca-file", cloud.ca_file);
        let pair = (file("cert-file", cloud.cert_file), file("key-file", cloud.key_file));
        let one_of_two = "not used: cert-file and key-file must both be set";
        let client = match pair {
            (Some(cert), Some(key)) => Some((cert, key)),
            (Some(_), None) => {
                self.notes.warning(format!("[{GLOBAL}] cert-file: {one_of_two}"));
                None
            }
            (None, Some(_)) => {
                self.notes.warning(format!("[{GLOBAL}] key-file: {one_of_two}"));
                None
            }
            (None, None) => None,
        };
        self.files.extend(ca_file.clone());
        self.files.extend(client.iter().flat_map(|(cert, key)| [cert.clone(), key.clone()]));
        let insecure = self.settings.given(GLOBAL, "tls-insecure").as_deref() == Some("true");
        Tls { ca_file, client, insecure }
    }

    fn request_timeout(&self) -> Duration {
        let older = self.settings.given("Metadata", "request-timeout");
        match (self.settings.given(GLOBAL, "request-timeout"), older) {
            (None, Some(_)) => self.settings.duration("Metadata", "request-timeout"),
            _ => self.settings.duration(GLOBAL, "request-timeout"),
        }
    }

    fn networking(&self) -> Networking {
        const NETWORKING: &str = "Networking";
        Networking {
            ipv6_disabled: self.settings.flag(NETWORKING, "ipv6-support-disabled"),
            public_networks: self.settings.texts(NETWORKING, "public-network-name"),
            internal_networks: self.settings.texts(NETWORKING, "internal-network-name"),
            sort_order: self.settings.networks(NETWORKING, "address-sort-order"),
        }
    }

    fn labels(&self) -> Labels {
        const LABELS: &str = "Labels";
        Labels {
            metadata: self.settings.patterns(LABELS, "metadata"),
            host_id: self.settings.flag(LABELS, "host-id"),
            flavor_id: self.settings.flag(LABELS, "flavor-id"),
        }
    }
}

#[cfg(test)]
mod tests;
