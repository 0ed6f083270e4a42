//! Finds the configuration of the clients.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use http::Uri;
use kube::{Config, config::Kubeconfig};

use super::{
    in_cluster::{Pod, SERVICE_ACCOUNT},
    problem::{ClientError, Problem},
};

/// The process's environment, as a value for tests.
#[derive(Clone, Debug, Default)]
pub(super) struct Surroundings {
    /// `KUBECONFIG`: one file or several, separated by colons.
    pub(super) kubeconfig: Option<OsString>,
    /// The user's home.
    pub(super) home: Option<PathBuf>,
    /// Set inside a pod.
    pub(super) pod: Option<Pod>,
    /// `NO_PROXY`.
    pub(super) no_proxy: Option<String>,
}

impl Surroundings {
    /// The environment of this process.
    pub(super) fn of_process() -> Self {
        let var = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self {
            kubeconfig: std::env::var_os("KUBECONFIG"),
            home: std::env::home_dir(),
            pod: var("KUBERNETES_SERVICE_HOST").map(|host| Pod {
                host,
                port: var("KUBERNETES_SERVICE_PORT"),
                account: SERVICE_ACCOUNT.into(),
            }),
            no_proxy: var("NO_PROXY").or_else(|| var("no_proxy")),
        }
    }
}

/// The configuration that was found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) config: Config,
    /// The setting or place that it comes from, for errors.
    pub(super) origin: String,
    /// Whether the kubeconfig sets the proxy; `NO_PROXY` then does not apply.
    pub(super) own_proxy: bool,
}

/// Finds the configuration: the flag, else `KUBECONFIG`, else `~/.kube/config` if it exists,
/// else the pod, else `master` alone. A source that is named must be valid: falling back
/// to another cluster's would be worse than failing.
pub(super) fn find(
    flag: Option<&Path>,
    master: Option<&str>,
    surroundings: &Surroundings,
) -> Result<Found, ClientError> {
    let master = master.filter(|value| !value.is_empty());
    let home = surroundings.home.as_ref().map(|home| home.join(".kube/config"));
    let variable: Vec<PathBuf> =
        surroundings.kubeconfig.iter().flat_map(std::env::split_paths).collect();
    let named: Vec<PathBuf> =
        variable.into_iter().filter(|path| !path.as_os_str().is_empty()).collect();
    let mut found = if let Some(path) = flag.filter(|path| !path.as_os_str().is_empty()) {
        of_files(&[path.to_owned()], format!("--kubeconfig={}", path.display()))?
    } else if !named.is_empty() {
        let value = surroundings.kubeconfig.as_deref().unwrap_or_default();
        of_files(&named, format!("KUBECONFIG={}", value.display()))?
    } else if let Some(path) = home.as_ref().filter(|path| path.exists()) {
        of_files(std::slice::from_ref(path), path.display().to_string())?
    } else if let Some(pod) = &surroundings.pod {
        let origin = "in-cluster configuration".to_owned();
        let config = pod.config().map_err(|problem| problem.of(&origin))?;
        Found { config, origin, own_proxy: false }
    } else if let Some(master) = master {
        let config = Config::new(Uri::from_static("http://localhost"));
        Found { config, origin: format!("--master={master}"), own_proxy: false }
    } else {
        let home = home.unwrap_or_else(|| PathBuf::from("~/.kube/config"));
        return Err(ClientError::NotConfigured { home: home.display().to_string() });
    };
    if let Some(master) = master {
        let remedy = "give a URL such as https://10.0.0.1:6443".to_owned();
        found.config.cluster_url = parse_server(master)
            .map_err(|problem| Problem { remedy, ..problem }.of(&format!("--master={master}")))?;
    }
    check(&found.config).map_err(|problem| problem.of(&found.origin))?;
    Ok(found)
}

fn of_files(paths: &[PathBuf], origin: String) -> Result<Found, ClientError> {
    let (config, own_proxy) = merged(paths).map_err(|problem| problem.of(&origin))?;
    Ok(Found { config, origin, own_proxy })
}

fn merged(paths: &[PathBuf]) -> Result<(Config, bool), Problem> {
    let files = paths.iter().try_fold(Kubeconfig::default(), |merged, path| {
        merged.merge(Kubeconfig::read_from(path)?)
    })?;
    let context =
        files.contexts.iter().find(|context| Some(&context.name) == files.current_context.as_ref());
    let context = context.and_then(|context| context.context.as_ref());
    if let Some(user) =
        context.and_then(|context| context.user.as_ref()).filter(|user| !user.is_empty())
        && !files.auth_infos.iter().any(|known| known.name == *user)
    {
        return Err(Problem::new(
            format!("the context's user {user:?} is not among the users"),
            "name a user of this file in the context",
        ));
    }
    let cluster = files
        .clusters
        .iter()
        .find(|cluster| context.is_some_and(|context| context.cluster == cluster.name));
    let proxy = cluster.and_then(|cluster| cluster.cluster.as_ref()?.proxy_url.as_ref());
    let own_proxy = proxy.is_some_and(|proxy| !proxy.is_empty());
    Ok((Config::try_from(files)?, own_proxy))
}

/// Rejects what kube accepts although no request could be sent with it.
fn check(config: &Config) -> Result<(), Problem> {
    parse_server(&config.cluster_url.to_string())?;
    if config.root_cert.as_ref().is_some_and(Vec::is_empty) {
        return Err(Problem::no_certificate());
    }
    Ok(())
}

fn parse_server(text: &str) -> Result<Uri, Problem> {
    let problem =
        |why: &str| Problem::new(format!("server {text:?} {why}"), "set it to https://host:port");
    let server: Uri = text.parse().map_err(|_| problem("is not a URL"))?;
    if !matches!(server.scheme_str(), Some("http" | "https")) {
        return Err(problem("does not start with https:// or http://"));
    }
    let Some(authority) = server.authority().filter(|authority| !authority.host().is_empty())
    else {
        return Err(problem("has no host"));
    };
    // An invalid port is silently ignored by the parser.
    let port = authority.as_str().rsplit_once(']').or_else(|| authority.as_str().rsplit_once('@'));
    let port = port.map_or(authority.as_str(), |(_, rest)| rest).split_once(':');
    if port.is_none_or(|(_, port)| port.parse::<u16>().is_ok_and(|port| port > 0)) {
        return Ok(server);
    }
    Err(problem("has no usable port"))
}
