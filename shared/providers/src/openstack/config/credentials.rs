//! Who we are to Keystone: what the files give, and the one way to log in that follows.

use std::mem;

use serde::Deserialize;

use super::secret::Secret;

/// How the token is had.
#[derive(Clone, Debug, PartialEq, Eq)]
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
        /// What the new token is for; never [`Scope::Default`].
        scope: Scope,
    },
    /// A trust, used by its trustee.
    Trust {
        /// The trustee.
        user: User,
        /// Their password.
        password: Secret,
        /// ID of the trust.
        trust: String,
    },
}

/// A user, as Keystone is told about them.
#[derive(Clone, Debug, PartialEq, Eq)]
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Domain {
    /// By ID.
    Id(String),
    /// By name.
    Name(String),
}

/// What a token is for.
#[derive(Clone, Debug, PartialEq, Eq)]
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
#[derive(Clone, Debug, PartialEq, Eq)]
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

/// What a file says about us; the names are those of `clouds.yaml`. Holds secrets, so
/// it cannot be printed.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Given {
    pub auth_url: Option<String>,
    pub user_id: Option<String>,
    pub username: Option<String>,
    pub password: Option<String>,
    pub project_id: Option<String>,
    pub project_name: Option<String>,
    pub domain_id: Option<String>,
    pub domain_name: Option<String>,
    pub project_domain_id: Option<String>,
    pub project_domain_name: Option<String>,
    pub user_domain_id: Option<String>,
    pub user_domain_name: Option<String>,
    pub application_credential_id: Option<String>,
    pub application_credential_name: Option<String>,
    pub application_credential_secret: Option<String>,
    pub token: Option<String>,
    #[serde(skip)]
    pub trust_id: Option<String>,
    #[serde(skip)]
    pub trustee_id: Option<String>,
    #[serde(skip)]
    pub trustee_password: Option<String>,
}

/// The ways to log in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    Trust,
    ApplicationCredential,
    Token,
    Password,
}

impl Method {
    const fn key(self) -> &'static str {
        match self {
            Self::Trust => "trust-id",
            Self::ApplicationCredential => "application-credential-*",
            Self::Token => "token",
            Self::Password => "password",
        }
    }
}

impl Given {
    fn fields(&mut self) -> [&mut Option<String>; 19] {
        [
            &mut self.auth_url,
            &mut self.user_id,
            &mut self.username,
            &mut self.password,
            &mut self.project_id,
            &mut self.project_name,
            &mut self.domain_id,
            &mut self.domain_name,
            &mut self.project_domain_id,
            &mut self.project_domain_name,
            &mut self.user_domain_id,
            &mut self.user_domain_name,
            &mut self.application_credential_id,
            &mut self.application_credential_name,
            &mut self.application_credential_secret,
            &mut self.token,
            &mut self.trust_id,
            &mut self.trustee_id,
            &mut self.trustee_password,
        ]
    }

    /// The same thing by ID and by name.
    fn pairs(&mut self) -> [[&mut Option<String>; 2]; 6] {
        [
            [&mut self.user_id, &mut self.username],
            [&mut self.project_id, &mut self.project_name],
            [&mut self.domain_id, &mut self.domain_name],
            [&mut self.project_domain_id, &mut self.project_domain_name],
            [&mut self.user_domain_id, &mut self.user_domain_name],
            [&mut self.application_credential_id, &mut self.application_credential_name],
        ]
    }

    /// Takes from `other` what is empty here.
    pub(super) fn fill(&mut self, mut other: Self) {
        for (own, theirs) in self.fields().into_iter().zip(other.fields()) {
            if own.as_deref().is_none_or(str::is_empty) {
                *own = mem::take(theirs).filter(|text| !text.is_empty());
            }
        }
    }

    /// Takes from `other` what is empty here and does not go against what is set here:
    /// an ID from there would outdo a name from here, and so would another way to log in.
    pub(super) fn fill_without_contradiction(&mut self, mut other: Self) {
        for (own, theirs) in self.pairs().into_iter().zip(other.pairs()) {
            if own.iter().any(|field| field.is_some()) {
                for field in theirs {
                    *field = None;
                }
            }
        }
        let chosen = self.methods();
        let open = |method| chosen.is_empty() || chosen.contains(&method);
        if !open(Method::Token) {
            other.token = None;
        }
        if !open(Method::Password) && !open(Method::Trust) {
            other.password = None;
        }
        if !open(Method::ApplicationCredential) {
            other.application_credential_id = None;
            other.application_credential_name = None;
            other.application_credential_secret = None;
        }
        self.fill(other);
    }

    /// The ways to log in that something is set for.
    fn methods(&self) -> Vec<Method> {
        let application = self.application_credential_id.is_some()
            || self.application_credential_name.is_some()
            || self.application_credential_secret.is_some();
        let trust = self.trust_id.is_some();
        [
            (trust, Method::Trust),
            (application, Method::ApplicationCredential),
            (self.token.is_some(), Method::Token),
            // A trust is used with a password.
            (self.password.is_some() && !trust, Method::Password),
        ]
        .into_iter()
        .filter_map(|(is_set, method)| is_set.then_some(method))
        .collect()
    }

    /// The way to log in, or everything that is wrong with what is given.
    pub(super) fn decide(mut self) -> Result<Credentials, Vec<String>> {
        for field in self.fields() {
            *field = mem::take(field).filter(|text| !text.is_empty());
        }
        let methods = self.methods();
        if let [first, _, ..] = methods.as_slice() {
            let keys: Vec<_> = methods.iter().map(|method| method.key()).collect();
            return Err(vec![format!(
                "credentials contradict each other: {} are set; keep only those of one, such as {}",
                keys.join(" and "),
                first.key()
            )]);
        }
        let mut missing = Vec::new();
        let credentials = match methods.first() {
            Some(Method::Trust) => self.by_trust(&mut missing),
            Some(Method::ApplicationCredential) => self.by_application_credential(&mut missing),
            Some(Method::Token) => self.by_token(&mut missing),
            Some(Method::Password) => self.by_password(&mut missing),
            None => {
                missing.push(
                    "no credentials: set username and password, or application-credential-id and \
                     application-credential-secret, or trust-id, or token"
                        .to_owned(),
                );
                None
            }
        };
        if missing.is_empty() { credentials.ok_or(missing) } else { Err(missing) }
    }

    fn by_trust(mut self, missing: &mut Vec<String>) -> Option<Credentials> {
        self.user_id = self.trustee_id.take().or(self.user_id);
        let user = self.user("trust-id", missing);
        let password = self.trustee_password.take().or(self.password.take());
        if password.is_none() {
            missing.push("trust-id needs trustee-password or password".to_owned());
        }
        Some(Credentials::Trust {
            user: user?,
            password: Secret::new(password?),
            trust: self.trust_id?,
        })
    }

    fn by_application_credential(mut self, missing: &mut Vec<String>) -> Option<Credentials> {
        let secret = self.application_credential_secret.take();
        if secret.is_none() {
            missing
                .push("the application credential needs application-credential-secret".to_owned());
        }
        let id = self.application_credential_id.take().map(ApplicationCredential::Id);
        let credential = match (id, self.application_credential_name.take()) {
            (Some(id), _) => Some(id),
            (None, Some(name)) => self
                .user("application-credential-name", missing)
                .map(|user| ApplicationCredential::Name { name, user }),
            (None, None) => {
                missing.push(
                    "application-credential-secret needs application-credential-id or \
                     application-credential-name"
                        .to_owned(),
                );
                None
            }
        };
        Some(Credentials::ApplicationCredential {
            credential: credential?,
            secret: Secret::new(secret?),
        })
    }

    fn by_token(mut self, missing: &mut Vec<String>) -> Option<Credentials> {
        let scope = self.scope(missing)?;
        if scope == Scope::Default {
            missing.push(
                "token needs what it is for: tenant-id, or tenant-name with a domain, or domain-id"
                    .to_owned(),
            );
        }
        Some(Credentials::Token { token: Secret::new(self.token.take()?), scope })
    }

    fn by_password(mut self, missing: &mut Vec<String>) -> Option<Credentials> {
        let (user, scope) = (self.user("password", missing), self.scope(missing));
        Some(Credentials::Password {
            user: user?,
            password: Secret::new(self.password.take()?),
            scope: scope?,
        })
    }

    fn user(&self, needed_by: &str, missing: &mut Vec<String>) -> Option<User> {
        let domain = domain(self.user_domain_id.as_ref(), self.user_domain_name.as_ref());
        match (&self.user_id, &self.username, domain.or(self.domain())) {
            (Some(id), ..) => Some(User::Id(id.clone())),
            (None, Some(name), Some(domain)) => {
                Some(User::Name { name: name.clone(), domain: Some(domain) })
            }
            (None, Some(_), None) => {
                missing.push(
                    "username needs the user's domain: user-domain-name, user-domain-id, \
                     domain-name or domain-id"
                        .to_owned(),
                );
                None
            }
            (None, None, _) => {
                missing.push(format!("{needed_by} needs user-id, or username with a domain"));
                None
            }
        }
    }

    fn scope(&self, missing: &mut Vec<String>) -> Option<Scope> {
        if let Some(id) = &self.project_id {
            return Some(Scope::ProjectId(id.clone()));
        }
        let own = domain(self.project_domain_id.as_ref(), self.project_domain_name.as_ref());
        match (&self.project_name, own.or(self.domain())) {
            (Some(name), Some(domain)) => {
                Some(Scope::ProjectName { name: name.clone(), domain: Some(domain) })
            }
            (Some(_), None) => {
                missing.push(
                    "tenant-name needs the project's domain: tenant-domain-name, \
                     tenant-domain-id, domain-name or domain-id"
                        .to_owned(),
                );
                None
            }
            (None, _) => Some(self.domain().map_or(Scope::Default, Scope::Domain)),
        }
    }

    /// The domain of whatever has none of its own.
    fn domain(&self) -> Option<Domain> {
        domain(self.domain_id.as_ref(), self.domain_name.as_ref())
    }
}

fn domain(id: Option<&String>, name: Option<&String>) -> Option<Domain> {
    id.cloned().map(Domain::Id).or_else(|| name.cloned().map(Domain::Name))
}

#[cfg(test)]
mod tests;
