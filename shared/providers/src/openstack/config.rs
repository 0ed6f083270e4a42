//! What the client needs of the configuration.

use std::{fmt, path::PathBuf, time::Duration};

use url::Url;

/// How the cloud is reached.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// Keystone, with or without `/v3`.
    pub auth_url: Url,
    /// Which of a service's endpoints are used.
    pub interface: Interface,
    /// The region whose endpoints are used; without one, the first in the catalog.
    pub region: Option<String>,
    /// Who we are.
    pub credentials: Credentials,
    /// Certificates.
    pub tls: Tls,
    /// The longest time for one request; zero for no limit but the caller's.
    pub request_timeout: Duration,
    /// What goes before our own name in `User-Agent`.
    pub user_agents: Vec<String>,
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

/// Certificates.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tls {
    /// Replaces the roots of the system.
    pub ca_file: Option<PathBuf>,
    /// Our certificate and its key.
    pub client: Option<(PathBuf, PathBuf)>,
    /// Whether any certificate is accepted.
    pub insecure: bool,
}

/// How the token is had.
#[derive(Clone, Debug)]
pub(crate) enum Credentials {
    /// A user's password.
    Password {
        /// The user.
        user: User,
        /// Their password.
        password: Secret,
        /// What the token is for.
        scope: Scope,
    },
    /// An application credential, which brings its project along.
    ApplicationCredential {
        /// Which one.
        credential: ApplicationCredential,
        /// Its secret.
        secret: Secret,
    },
    /// A token that is there already.
    Token {
        /// The token.
        token: Secret,
        /// What the new token is for.
        scope: Scope,
    },
    /// A trust, used by its trustee.
    Trust {
        /// The trustee.
        user: User,
        /// Their password.
        password: Secret,
        /// The trust.
        trust: String,
    },
}

/// A user, as Keystone is told about them.
#[derive(Clone, Debug)]
pub(crate) enum User {
    /// By ID.
    Id(String),
    /// By name within a domain.
    Name {
        /// The name.
        name: String,
        /// The domain.
        domain: Option<Domain>,
    },
}

/// A domain.
#[derive(Clone, Debug)]
pub(crate) enum Domain {
    /// By ID.
    Id(String),
    /// By name.
    Name(String),
}

/// What a token is for.
#[derive(Clone, Debug)]
pub(crate) enum Scope {
    /// The user's default project.
    Default,
    /// A project by ID.
    ProjectId(String),
    /// A project by name within a domain.
    ProjectName {
        /// The name.
        name: String,
        /// The domain.
        domain: Option<Domain>,
    },
    /// A whole domain.
    Domain(Domain),
}

/// An application credential.
#[derive(Clone, Debug)]
pub(crate) enum ApplicationCredential {
    /// By ID.
    Id(String),
    /// By name, which is unique only among its user's.
    Name {
        /// The name.
        name: String,
        /// The user.
        user: User,
    },
}

/// A text that no log may hold.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    /// Hides the text.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}
