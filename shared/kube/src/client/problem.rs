//! Errors in the configuration of the clients: kube's own, without secrets, and with the
//! remedy.

use ccm_base::message::{LONGEST_LINE, chain, one_line};
use kube::config::KubeconfigError;

use crate::error::auth_problem;

/// The reason why no client could be built. It is displayed as one line: the origin of the setting,
/// the problem, the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// A source of configuration does not exist.
    #[error(
        "no Kubernetes configuration: --kubeconfig is not set, and this is not a pod (KUBERNETES_SERVICE_HOST is not \
         set); give --kubeconfig=<file> (KUBECONFIG and ~/.kube/config are not read)"
    )]
    NotConfigured,
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
pub(super) struct ConfigProblem {
    pub(super) what: String,
    pub(super) remedy: String,
}

impl ConfigProblem {
    pub(super) fn new(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { what: one_line(&what.into(), LONGEST_LINE), remedy: remedy.into() }
    }

    /// Returns the error that names where the configuration comes from.
    pub(super) fn into_error(self, origin: &str) -> ClientError {
        ClientError::Unusable { origin: origin.to_owned(), problem: self.what, remedy: self.remedy }
    }
}

impl From<KubeconfigError> for ConfigProblem {
    fn from(error: KubeconfigError) -> Self {
        use KubeconfigError as E;
        let what = match &error {
            E::Parse(problem) => parse_problem(&problem.to_string()),
            other => chain(other),
        };
        let remedy = match error {
            E::CurrentContextNotSet | E::LoadContext(_) => {
                "choose a context with `kubectl config use-context <name>`"
            }
            E::LoadClusterOfContext(_) => "name a cluster of this file in the context",
            E::MissingClusterUrl | E::ParseClusterUrl(_) => {
                "set clusters[].cluster.server to https://host:port"
            }
            E::ParseProxyUrl(_) => "set proxy-url or HTTPS_PROXY to http://host:port",
            E::LoadCertificateAuthority(_) | E::ParseCertificates(_) => {
                "give the API server's CA certificates in PEM, as a readable file or in base64"
            }
            E::LoadClientCertificate(_) | E::LoadClientKey(_) => {
                "give both client-certificate and client-key as readable files or in base64, or neither"
            }
            _ => "give the path of a readable kubeconfig file in YAML",
        };
        Self::new(what, remedy)
    }
}

impl From<kube::Error> for ConfigProblem {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::InferKubeconfig(problem) => problem.into(),
            kube::Error::Auth(problem) => Self::new(
                auth_problem(&problem),
                "give a readable token file, or an exec command that prints an ExecCredential",
            ),
            other => Self::new(
                chain(&other),
                "certificate-authority, and client-certificate with its own client-key, have to be PEM",
            ),
        }
    }
}

/// Returns the position of a YAML error. The error's text may quote the file, which holds secrets.
fn parse_problem(text: &str) -> String {
    let is_end = |c: char| !c.is_ascii_alphanumeric() && !" ,:".contains(c);
    let place = text.find("line ").and_then(|at| text.get(at..)?.split(is_end).next());
    match place {
        Some(place) => format!("not a kubeconfig, see {}", place.trim()),
        None => "not a kubeconfig".to_owned(),
    }
}
