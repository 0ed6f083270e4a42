//! Errors in the configuration of the clients.

use ccm_base::message::{LONGEST_LINE, chain, one_line};
use kube::{
    client::{AuthError, RustlsTlsError},
    config::{KubeconfigError, LoadDataError},
};

/// Why no client could be built. Displayed as one line: the origin of the setting, the
/// problem, the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// No source of configuration exists.
    #[error(
        "no Kubernetes configuration: --kubeconfig and KUBECONFIG are not set, {home} does not exist, and this is not \
         a pod (KUBERNETES_SERVICE_HOST is not set); give --kubeconfig=<file>"
    )]
    NotConfigured {
        /// The kubeconfig of the user that was looked for.
        home: String,
    },
    /// A source of configuration is not usable.
    #[error("{origin}: {problem}; {remedy}")]
    Unusable {
        /// The setting or place that the configuration comes from.
        origin: String,
        /// The problem.
        problem: String,
        /// The remedy.
        remedy: String,
    },
}

/// A problem and its remedy, before its origin is known.
pub(super) struct Problem {
    pub(super) what: String,
    pub(super) remedy: String,
}

impl Problem {
    pub(super) fn new(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { what: one_line(&what.into(), LONGEST_LINE), remedy: remedy.into() }
    }

    /// The error that names where the configuration comes from.
    pub(super) fn of(self, origin: &str) -> ClientError {
        ClientError::Unusable { origin: origin.to_owned(), problem: self.what, remedy: self.remedy }
    }
}

impl From<KubeconfigError> for Problem {
    fn from(error: KubeconfigError) -> Self {
        use KubeconfigError as E;
        match error {
            E::CurrentContextNotSet => {
                Self::new("no current-context", "set it with `kubectl config use-context <name>`")
            }
            E::LoadContext(name) => Self::new(
                format!("current-context {name:?} is not among the contexts"),
                "choose one that `kubectl config get-contexts` lists",
            ),
            E::LoadClusterOfContext(name) => Self::new(
                format!("the context's cluster {name:?} is not among the clusters"),
                "name a cluster of this file in the context",
            ),
            E::ReadConfig(problem, path) => Self::new(
                format!("cannot read {}: {problem}", path.display()),
                "give the path of a kubeconfig file that this process may read",
            ),
            E::Parse(problem) => {
                Self::new(parse_problem(&problem.to_string()), "give a kubeconfig file in YAML")
            }
            E::MissingClusterUrl => Self::new(
                "the cluster has no server",
                "set clusters[].cluster.server to https://host:port",
            ),
            E::ParseClusterUrl(problem) => Self::new(
                format!("the cluster's server is not a URL: {problem}"),
                "set it to https://host:port",
            ),
            E::ParseProxyUrl(problem) => Self::new(
                format!("the proxy is not a URL: {problem}"),
                "set proxy-url or HTTPS_PROXY to http://host:port",
            ),
            E::LoadCertificateAuthority(problem) => {
                Self::of_data("certificate-authority", &problem)
            }
            E::LoadClientCertificate(problem) => Self::of_data("client-certificate", &problem),
            E::LoadClientKey(problem) => Self::of_data("client-key", &problem),
            E::ParseCertificates(_) => Self::no_certificate(),
            other => Self::new(chain(&other), "give a kubeconfig file as kubectl uses it"),
        }
    }
}

impl From<kube::Error> for Problem {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::InferKubeconfig(problem) => problem.into(),
            kube::Error::Auth(problem) => problem.into(),
            kube::Error::RustlsTls(problem) => problem.into(),
            other => {
                Self::new(chain(&other), "correct the cluster and user that the context names")
            }
        }
    }
}

impl From<AuthError> for Problem {
    fn from(error: AuthError) -> Self {
        match error {
            AuthError::ReadTokenFile(problem, path) => Self::new(
                format!("cannot read the token file {}: {problem}", path.display()),
                "give the path of a token file that this process may read",
            ),
            AuthError::AuthExecStart(problem) => Self::new(
                format!("cannot start the exec plugin: {problem}"),
                "install the command that users[].user.exec names, or give its full path",
            ),
            // Not the command line: it starts with the environment it got.
            AuthError::AuthExecRun { status, .. } => Self::new(
                format!("the exec plugin ended with {status}"),
                "run it by hand to see what it lacks",
            ),
            AuthError::AuthExecParse(_) | AuthError::ExecPluginFailed => Self::new(
                "the exec plugin's output is not understood",
                "it has to print an ExecCredential of client.authentication.k8s.io",
            ),
            other => Self::new(chain(&other), "correct the user that the context names"),
        }
    }
}

impl From<RustlsTlsError> for Problem {
    fn from(error: RustlsTlsError) -> Self {
        use RustlsTlsError as E;
        match error {
            E::AddRootCertificate(problem) => Self::new(
                format!("certificate-authority is not usable: {}", chain(&*problem)),
                "give the API server's CA certificates in PEM",
            ),
            problem @ (E::InvalidIdentityPem(_)
            | E::MissingPrivateKey
            | E::MissingCertificate
            | E::InvalidPrivateKey(_)
            | E::UnknownPrivateKeyFormat) => Self::new(
                format!("client-certificate and client-key are not usable: {}", chain(&problem)),
                "give a certificate and its own key, both in PEM",
            ),
            E::InvalidServerName(_) => Self::new(
                "tls-server-name is not a host name",
                "give a name that the server's certificate holds",
            ),
            other => Self::new(chain(&other), "correct the cluster that the context names"),
        }
    }
}

impl Problem {
    /// The CA file exists, but contains no certificate.
    pub(super) fn no_certificate() -> Self {
        Self::new(
            "certificate-authority holds no certificate",
            "give the API server's CA certificates in PEM",
        )
    }

    fn of_data(field: &str, error: &LoadDataError) -> Self {
        match error {
            LoadDataError::DecodeBase64(_) => {
                Self::new(format!("{field}-data is not base64"), "encode it with `base64 -w0`")
            }
            LoadDataError::ReadFile(problem, path) => Self::new(
                format!("cannot read {field} {}: {problem}", path.display()),
                "give a file that this process may read",
            ),
            LoadDataError::NoBase64DataOrFile => Self::new(
                format!("{field} is missing"),
                "give both client-certificate and client-key, or neither",
            ),
        }
    }
}

/// The position of a YAML error. The error's text may quote the file, which holds secrets.
fn parse_problem(text: &str) -> String {
    let is_end = |c: char| !c.is_ascii_alphanumeric() && !" ,:".contains(c);
    let place = text.find("line ").and_then(|at| text.get(at..)?.split(is_end).next());
    match place {
        Some(place) => format!("not a kubeconfig, see {}", place.trim()),
        None => "not a kubeconfig".to_owned(),
    }
}
