//! Finds the configuration of the clients.

use std::path::Path;

use ccm_base::{Files, message::chain};
use http::Uri;
use kube::{
    Config,
    config::{AuthInfo, Cluster, InClusterError, Kubeconfig},
};

use super::{
    ClientConfig,
    identity::ReloadingIdentity,
    problem::{ClientError, ConfigProblem},
};

/// The process's environment, as a value for tests.
#[derive(Clone, Debug, Default)]
pub(super) struct Surroundings {
    /// Reads the configuration of a pod, if this is one.
    pub(super) pod: Option<fn() -> Result<Config, InClusterError>>,
    /// `NO_PROXY`.
    pub(super) no_proxy: Option<String>,
}

impl Surroundings {
    /// Returns the environment of this process.
    pub(super) fn of_process() -> Self {
        let var = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self {
            pod: var("KUBERNETES_SERVICE_HOST").map(|_| Config::incluster as fn() -> _),
            no_proxy: var("NO_PROXY").or_else(|| var("no_proxy")),
        }
    }
}

/// The configuration that was found.
#[derive(Debug)]
pub(super) struct FoundConfig {
    pub(super) config: Config,
    /// The setting or place that it comes from, for errors.
    pub(super) origin: String,
    /// True if the kubeconfig sets the proxy; `NO_PROXY` then does not apply.
    pub(super) own_proxy: bool,
}

/// Finds the configuration: the kubeconfig, otherwise the pod, otherwise `master` alone. The
/// configuration of a person's kubectl is not used: a program that is started in a shell would
/// change the cluster that happens to be selected there. A source that is named must be valid,
/// because falling back to another cluster's would be worse than failing. Remembers in `files` the
/// files that are read once.
pub(super) fn find(
    settings: &ClientConfig,
    surroundings: &Surroundings,
    files: &mut Files,
) -> Result<FoundConfig, ClientError> {
    let master = settings.master.as_deref().filter(|value| !value.is_empty());
    let flag = settings.kubeconfig.as_deref().filter(|path| !path.as_os_str().is_empty());
    let (origin, config) = if let Some(path) = flag {
        (format!("--kubeconfig={}", path.display()), read(path, files))
    } else if let Some(pod) = &surroundings.pod {
        ("in-cluster configuration".to_owned(), of_pod(*pod))
    } else if let Some(master) = master {
        let config = Config::new(Uri::from_static("http://localhost"));
        (format!("--master={}", bare(master)), Ok((config, false)))
    } else {
        return Err(ClientError::NotConfigured);
    };
    let (mut config, own_proxy) = config.map_err(|problem| problem.into_error(&origin))?;
    let by_master = master.map(|master| format!("--master={}", bare(master)));
    let named_by = by_master.as_ref().unwrap_or(&origin);
    if let Some(master) = master {
        let server = master.parse().ok().filter(is_usable);
        config.cluster_url = server.ok_or_else(|| no_server(&master).into_error(named_by))?;
    }
    check(&config).map_err(|problem| problem.into_error(&origin))?;
    if !settings.credentials_over_http {
        stays_secret(&config).map_err(|problem| problem.into_error(named_by))?;
    }
    Ok(FoundConfig { config, origin, own_proxy })
}

fn read(path: &Path, files: &mut Files) -> Result<(Config, bool), ConfigProblem> {
    // The file is noticed before it is read, so that a change right after that is noticed as well.
    files.notice(path);
    let file = Kubeconfig::read_from(path)?;
    let context =
        file.contexts.iter().find(|context| Some(&context.name) == file.current_context.as_ref());
    let context = context.and_then(|context| context.context.as_ref());
    // In that case kube does not send credentials.
    if let Some(user) =
        context.and_then(|context| context.user.as_ref()).filter(|user| !user.is_empty())
        && !file.auth_infos.iter().any(|known| known.name == *user)
    {
        return Err(ConfigProblem::new(
            format!("the context's user {user:?} is not among the users"),
            "name a user of this file in the context",
        ));
    }
    let cluster = file
        .clusters
        .iter()
        .find(|cluster| context.is_some_and(|context| context.cluster == cluster.name))
        .and_then(|cluster| cluster.cluster.as_ref());
    let user = file
        .auth_infos
        .iter()
        .find(|known| context.is_some_and(|context| context.user.as_ref() == Some(&known.name)));
    for path in read_once(cluster, user.and_then(|user| user.auth_info.as_ref())) {
        files.notice(Path::new(path));
    }
    let proxy = cluster.and_then(|cluster| cluster.proxy_url.as_ref());
    let own_proxy = proxy.is_some_and(|proxy| !proxy.is_empty());
    Ok((Config::try_from(file)?, own_proxy))
}

/// Returns the files that are read once: the CA, and a certificate of which one half is in the
/// kubeconfig.
fn read_once<'a>(
    cluster: Option<&'a Cluster>,
    user: Option<&'a AuthInfo>,
) -> impl Iterator<Item = &'a String> {
    let user = user.filter(|user| ReloadingIdentity::read(user).is_none());
    let ca = cluster.and_then(|cluster| cluster.certificate_authority.as_ref());
    let halves = user.map(|user| [&user.client_certificate, &user.client_key]);
    ca.into_iter().chain(halves.into_iter().flatten().flatten())
}

fn of_pod(pod: fn() -> Result<Config, InClusterError>) -> Result<(Config, bool), ConfigProblem> {
    let config = pod().map_err(|error| {
        ConfigProblem::new(
            chain(&error),
            "the pod needs a service account with automountServiceAccountToken, and \
             KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT of an API server; or give --kubeconfig=<file>",
        )
    })?;
    Ok((config, false))
}

/// Rejects a configuration that kube accepts although requests could not be sent with it.
fn check(config: &Config) -> Result<(), ConfigProblem> {
    if !is_usable(&config.cluster_url) {
        return Err(no_server(&config.cluster_url));
    }
    if config.root_cert.as_ref().is_some_and(Vec::is_empty) {
        return Err(ConfigProblem::new(
            "certificate-authority holds no certificate",
            "give the API server's CA certificates in PEM",
        ));
    }
    Ok(())
}

/// Rejects a server without TLS that would get credentials, also on loopback, because any user of
/// the machine may listen there.
fn stays_secret(config: &Config) -> Result<(), ConfigProblem> {
    let AuthInfo { username, password, token, token_file, exec, auth_provider, .. } =
        &config.auth_info;
    let has_secret = password.is_some() || token.is_some();
    let has_source = token_file.is_some() || exec.is_some() || auth_provider.is_some();
    let is_clear = config.cluster_url.scheme_str() == Some("http");
    if is_clear && (username.is_some() || has_secret || has_source) {
        let server = bare(&config.cluster_url.to_string());
        return Err(ConfigProblem::new(
            format!("the credentials would go to {server} in clear"),
            "give the URL with https://, or set --kube-api-credentials-over-http",
        ));
    }
    Ok(())
}

pub(super) fn is_usable(server: &Uri) -> bool {
    let Some(authority) = server.authority() else { return false };
    let (text, host) = (authority.as_str(), authority.host());
    // `Uri` accepts any text as port, and ignores it if it is not a number.
    let port = authority.port_u16().map_or(text.ends_with(host), |port| port > 0);
    matches!(server.scheme_str(), Some("http" | "https")) && !host.is_empty() && port
}

fn no_server(text: &dyn std::fmt::Display) -> ConfigProblem {
    let text = bare(&text.to_string());
    ConfigProblem::new(format!("{text} is not the URL of a server"), "must be https://host:port")
}

/// Returns a URL without user and password.
fn bare(url: &str) -> String {
    let (scheme, rest) = url.split_at(url.find("://").map_or(0, |at| at + 3));
    format!("{scheme}{}", rest.rsplit_once('@').map_or(rest, |(_, rest)| rest))
}
