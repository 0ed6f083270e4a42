//! Finds our identity for Keystone: reads the data in the files, and decides on the one way to log
//! in.

use ccm_settings::{Problems, settings};

use super::{Given, secret::Secret};

/// How we get the token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credentials {
    /// A user's password.
    Password {
        /// The user.
        user: User,
        /// The user's password.
        password: Secret,
        /// The scope of the token.
        scope: Scope,
    },
    /// An application credential, which brings its project along.
    ApplicationCredential {
        /// The credential.
        credential: ApplicationCredential,
        /// Its secret.
        secret: Secret,
    },
    /// An existing token.
    Token {
        /// The token.
        token: Secret,
        /// The scope of the new token; never [`Scope::Default`].
        scope: Scope,
    },
    /// A trust, used by its trustee.
    Trust {
        /// The trustee.
        user: User,
        /// The user's password.
        password: Secret,
        /// ID of the trust.
        trust: String,
    },
}

/// How a login names the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum User {
    /// By ID.
    Id(String),
    /// By name within a domain.
    Name {
        /// The name.
        name: String,
        /// The domain.
        domain: Domain,
    },
}

/// A domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Domain {
    /// By ID.
    Id(String),
    /// By name.
    Name(String),
}

/// The scope of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The user's default project.
    Default,
    /// A project by ID.
    ProjectId(String),
    /// A project by name within a domain.
    ProjectName {
        /// The name.
        name: String,
        /// The domain.
        domain: Domain,
    },
}

/// An application credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApplicationCredential {
    /// By ID.
    Id(String),
    /// By name, which is unique only among the credentials of its user.
    Name {
        /// The name.
        name: String,
        /// The user.
        user: User,
    },
}

settings! {
    /// The login data of `[Global]` and of `auth` in `clouds.yaml`. Holds secrets, so it cannot be
    /// printed.
    pub struct Login {
        /// Keystone, with or without /v3. Required, here or in clouds.yaml.
        auth_url: Option<String> = fixed(Text, "auth-url", "");
        /// Name of the user. Needs a domain: user-domain-* or domain-*.
        username: Option<String> = fixed(Text, "username", "");
        /// ID of the user; takes precedence over username.
        user_id: Option<String> = fixed(Text, "user-id", "");
        /// The user's password.
        password: Option<String> = fixed(Secret, "password", "");
        /// ID of the project; takes precedence over tenant-name.
        project_id: Option<String> = fixed(Text, "tenant-id", "");
        /// Name of the project. Needs a domain: tenant-domain-* or domain-*.
        project_name: Option<String> = fixed(Text, "tenant-name", "");
        /// ID of the domain of user and project if no separate domain is set for them.
        domain_id: Option<String> = fixed(Text, "domain-id", "");
        /// The same by name.
        domain_name: Option<String> = fixed(Text, "domain-name", "");
        /// ID of the project's domain; takes precedence over the name.
        project_domain_id: Option<String> = fixed(Text, "tenant-domain-id", "");
        /// Name of the project's domain.
        project_domain_name: Option<String> = fixed(Text, "tenant-domain-name", "");
        /// ID of the user's domain; takes precedence over the name.
        user_domain_id: Option<String> = fixed(Text, "user-domain-id", "");
        /// Name of the user's domain.
        user_domain_name: Option<String> = fixed(Text, "user-domain-name", "");
        /// ID of an application credential; takes precedence over its name.
        application_credential_id: Option<String> = fixed(Text, "application-credential-id", "");
        /// Name of an application credential. Needs its user, and the user's domain if the user is given by name.
        application_credential_name: Option<String> = fixed(Text, "application-credential-name", "");
        /// The application credential's secret.
        application_credential_secret: Option<String> = fixed(Secret, "application-credential-secret", "");
        /// A trust that is used with a user's password.
        trust_id: Option<String> = fixed(Text, "trust-id", "");
        /// With trust-id: ID of the user, instead of user-id.
        trustee_id: Option<String> = fixed(Text, "trustee-id", "");
        /// With trust-id: the password, instead of password.
        trustee_password: Option<String> = fixed(Secret, "trustee-password", "");
        /// A token of Keystone; needs a project. It cannot renew itself: use it for short runs only.
        token: Option<String> = fixed(Secret, "token", "");
    }
}

/// The same thing by ID and by name.
const PAIRS: [[&str; 2]; 6] = [
    ["user-id", "username"],
    ["tenant-id", "tenant-name"],
    ["domain-id", "domain-name"],
    ["tenant-domain-id", "tenant-domain-name"],
    ["user-domain-id", "user-domain-name"],
    ["application-credential-id", "application-credential-name"],
];

/// The ways to log in, by what messages call their keys.
const TRUST: &str = "trust-id";
const APPLICATION_CREDENTIAL: &str = "application-credential-*";
const TOKEN: &str = "token";
const PASSWORD: &str = "password";

impl Login {
    /// Takes out of `theirs` what goes against `own`, from which this was read: an ID from there would
    /// outdo a name from here, and so would another way to log in.
    pub fn keep_fitting(&self, own: &Given, theirs: &mut Given) {
        let chosen = self.methods();
        let open = |method| chosen.is_empty() || chosen.contains(&method);
        theirs.retain(|key, _| {
            let is_paired = |pair: &[&str; 2]| {
                pair.contains(key) && pair.iter().any(|name| own.contains_key(name))
            };
            let is_open = match *key {
                "token" => open(TOKEN),
                "password" => open(PASSWORD) || open(TRUST),
                key if key.starts_with("application-") => open(APPLICATION_CREDENTIAL),
                _ => true,
            };
            is_open && !PAIRS.iter().any(is_paired)
        });
    }

    /// Returns the ways to log in that something is set for.
    fn methods(&self) -> Vec<&'static str> {
        let application = self.application_credential_id.is_some()
            || self.application_credential_name.is_some()
            || self.application_credential_secret.is_some();
        let trust = self.trust_id.is_some();
        [
            (trust, TRUST),
            (application, APPLICATION_CREDENTIAL),
            (self.token.is_some(), TOKEN),
            // A trust needs a password.
            (self.password.is_some() && !trust, PASSWORD),
        ]
        .into_iter()
        .filter_map(|(is_set, method)| is_set.then_some(method))
        .collect()
    }

    /// Returns the way to log in. Records everything that is wrong with what is given.
    pub fn decide(self, problems: &mut Problems) -> Option<Credentials> {
        match self.methods().as_slice() {
            [] => {
                let what = "no credentials: set username and password, or application-credential-id and \
                            application-credential-secret, or trust-id, or token";
                need(None, what, problems)
            }
            [TRUST] => self.by_trust(problems),
            [APPLICATION_CREDENTIAL] => self.by_application_credential(problems),
            [TOKEN] => self.by_token(problems),
            [PASSWORD] => self.by_password(problems),
            methods @ [first, ..] => {
                let what = format!(
                    "credentials contradict each other: {} are set; keep only one method, such as {first}",
                    methods.join(" and ")
                );
                need(None, &what, problems)
            }
        }
    }

    fn by_trust(mut self, problems: &mut Problems) -> Option<Credentials> {
        self.user_id = self.trustee_id.take().or(self.user_id);
        let user = self.user("trust-id", problems);
        let password = self.trustee_password.or(self.password);
        let password = need(password, "trust-id needs trustee-password or password", problems)?;
        Some(Credentials::Trust {
            user: user?,
            password: Secret::new(password),
            trust: self.trust_id?,
        })
    }

    fn by_application_credential(mut self, problems: &mut Problems) -> Option<Credentials> {
        let what = "the application credential needs application-credential-secret";
        let secret = need(self.application_credential_secret.take(), what, problems);
        let credential = match self.application_credential_id.take() {
            Some(id) => ApplicationCredential::Id(id),
            None => {
                let what = "application-credential-secret needs application-credential-id or \
                            application-credential-name";
                let name = need(self.application_credential_name.take(), what, problems)?;
                let user = self.user("application-credential-name", problems)?;
                ApplicationCredential::Name { name, user }
            }
        };
        Some(Credentials::ApplicationCredential { credential, secret: Secret::new(secret?) })
    }

    fn by_token(self, problems: &mut Problems) -> Option<Credentials> {
        let scope = self.scope(problems)?;
        let what = "token needs a project: tenant-id, or tenant-name with a domain";
        let scope = need((scope != Scope::Default).then_some(scope), what, problems)?;
        Some(Credentials::Token { token: Secret::new(self.token?), scope })
    }

    fn by_password(self, problems: &mut Problems) -> Option<Credentials> {
        let (user, scope) = (self.user("password", problems), self.scope(problems));
        let (user, scope, password) = (user?, scope?, Secret::new(self.password?));
        if scope == Scope::Default {
            problems.warn(
                "[Global]: no project is set, so the login is for the user's default project, if \
                 there is one: set tenant-id, or tenant-name with its domain",
            );
        }
        Some(Credentials::Password { user, password, scope })
    }

    fn user(&self, needed_by: &str, problems: &mut Problems) -> Option<User> {
        if let Some(id) = &self.user_id {
            return Some(User::Id(id.clone()));
        }
        let what = format!("{needed_by} needs user-id, or username with a domain");
        let name = need(self.username.clone(), &what, problems)?;
        let own = domain(self.user_domain_id.as_ref(), self.user_domain_name.as_ref());
        let what = "username needs the user's domain: user-domain-name, user-domain-id, \
                    domain-name or domain-id";
        let domain = need(own.or(self.domain()), what, problems)?;
        Some(User::Name { name, domain })
    }

    fn scope(&self, problems: &mut Problems) -> Option<Scope> {
        if let Some(id) = &self.project_id {
            return Some(Scope::ProjectId(id.clone()));
        }
        let Some(name) = self.project_name.clone() else {
            return self.without_project(problems);
        };
        let own = domain(self.project_domain_id.as_ref(), self.project_domain_name.as_ref());
        let what = "tenant-name needs the project's domain: tenant-domain-name, \
                    tenant-domain-id, domain-name or domain-id";
        let domain = need(own.or(self.domain()), what, problems)?;
        Some(Scope::ProjectName { name, domain })
    }

    /// Decides without a project. A user may have a default project. A login for a domain would
    /// have no service in its catalog.
    fn without_project(&self, problems: &mut Problems) -> Option<Scope> {
        let may_be = self.token.is_some() || self.domain().is_none();
        let what = "no project is set, and a login for a domain has no servers: set tenant-id, or \
                    tenant-name";
        need(may_be.then_some(Scope::Default), what, problems)
    }

    /// Returns the default domain.
    fn domain(&self) -> Option<Domain> {
        domain(self.domain_id.as_ref(), self.domain_name.as_ref())
    }
}

fn domain(id: Option<&String>, name: Option<&String>) -> Option<Domain> {
    id.cloned().map(Domain::Id).or_else(|| name.cloned().map(Domain::Name))
}

/// Returns the given value; if it is missing, a problem.
fn need<T>(given: Option<T>, what: &str, problems: &mut Problems) -> Option<T> {
    if given.is_none() {
        problems.add("[Global]", what);
    }
    given
}

#[cfg(test)]
mod tests;
