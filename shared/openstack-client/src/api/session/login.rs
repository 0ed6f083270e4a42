//! Makes the requests to Keystone for a token, by method.

use bytes::Bytes;
use serde_json::{Value, json};
use url::Url;
use zeroize::{Zeroize as _, Zeroizing};

use crate::config::{ApplicationCredential, Credentials, Domain, Scope, Secret, User};

/// The size of a request with the longest secret that Keystone accepts by default, in bytes.
const ENOUGH: usize = 16 * 1024;

/// One way to log in.
#[derive(Debug)]
pub struct Login {
    /// `auth-url` as configured, for messages.
    pub auth_url: String,
    /// Where the request goes.
    pub url: String,
    credentials: Credentials,
}

impl Login {
    /// Creates a login with these credentials at the Keystone whose version 3 has this base.
    pub fn new(auth_url: &Url, base: &Url, credentials: Credentials) -> Self {
        let mut shown = auth_url.clone();
        // A URL without a host cannot contain them.
        shown.set_password(None).ok();
        shown.set_username("").ok();
        Self { auth_url: shown.to_string(), url: format!("{base}auth/tokens"), credentials }
    }

    /// Returns the method, who logs in and for which project, for messages. No secrets.
    pub fn method(&self) -> String {
        match &self.credentials {
            Credentials::Password { user, scope, .. } => {
                format!("password of user {}{}", user.shown(), scope.shown())
            }
            Credentials::ApplicationCredential { credential, .. } => match credential {
                ApplicationCredential::Id(id) => format!("application credential {id:?}"),
                ApplicationCredential::Name { name, user } => {
                    format!("application credential {name:?} of user {}", user.shown())
                }
            },
            Credentials::Token { scope, .. } => format!("token{}", scope.shown()),
            Credentials::Trust { user, trust, .. } => {
                format!("trust {trust:?} and password of user {}", user.shown())
            }
        }
    }

    /// Returns secrets that only Keystone may see.
    pub fn secret(&self) -> &Secret {
        match &self.credentials {
            Credentials::Password { password, .. } | Credentials::Trust { password, .. } => {
                password
            }
            Credentials::ApplicationCredential { secret, .. } => secret,
            Credentials::Token { token, .. } => token,
        }
    }

    /// Returns true if another login gives a token that lives longer. A token obtained with another
    /// token ends with it.
    pub fn prolongs(&self) -> bool {
        !matches!(self.credentials, Credentials::Token { .. })
    }

    /// Returns the body of the request. Its memory is wiped when it is dropped.
    pub fn body(&self) -> Bytes {
        let (identity, scope) = match &self.credentials {
            Credentials::Password { user, password, scope } => {
                (by_password(user, password), scope.json())
            }
            // An application credential has its own project; Keystone would refuse a scope.
            Credentials::ApplicationCredential { credential, secret } => {
                (by_application_credential(credential, secret), None)
            }
            Credentials::Token { token, scope } => {
                (json!({ "methods": ["token"], "token": { "id": token.expose() } }), scope.json())
            }
            Credentials::Trust { user, password, trust } => {
                (by_password(user, password), Some(json!({ "OS-TRUST:trust": { "id": trust } })))
            }
        };
        let mut auth = json!({ "identity": identity });
        if let Some(scope) = scope {
            auth["scope"] = scope;
        }
        let mut document = json!({ "auth": auth });
        // A buffer that grows would leave copies of the secret in memory.
        let mut text = Zeroizing::new(Vec::with_capacity(ENOUGH));
        serde_json::to_writer(&mut *text, &document).unwrap_or_default();
        wipe(&mut document);
        Bytes::from_owner(text)
    }
}

/// Wipes all texts of a document.
fn wipe(document: &mut Value) {
    match document {
        Value::String(text) => text.zeroize(),
        Value::Array(values) => values.iter_mut().for_each(wipe),
        Value::Object(fields) => fields.values_mut().for_each(wipe),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn by_password(user: &User, password: &Secret) -> Value {
    let mut user = user.json();
    user["password"] = password.expose().into();
    json!({ "methods": ["password"], "password": { "user": user } })
}

fn by_application_credential(credential: &ApplicationCredential, secret: &Secret) -> Value {
    let mut shown = match credential {
        ApplicationCredential::Id(id) => json!({ "id": id }),
        ApplicationCredential::Name { name, user } => {
            json!({ "name": name, "user": user.json() })
        }
    };
    shown["secret"] = secret.expose().into();
    json!({ "methods": ["application_credential"], "application_credential": shown })
}

impl User {
    fn json(&self) -> Value {
        match self {
            Self::Id(id) => json!({ "id": id }),
            Self::Name { name, domain } => named(name, domain),
        }
    }

    fn shown(&self) -> String {
        match self {
            Self::Id(text) | Self::Name { name: text, .. } => format!("{text:?}"),
        }
    }
}

impl Domain {
    fn json(&self) -> Value {
        match self {
            Self::Id(id) => json!({ "id": id }),
            Self::Name(name) => json!({ "name": name }),
        }
    }
}

impl Scope {
    fn shown(&self) -> String {
        match self {
            Self::Default => String::new(),
            Self::ProjectId(text) | Self::ProjectName { name: text, .. } => {
                format!(" for project {text:?}")
            }
        }
    }

    fn json(&self) -> Option<Value> {
        match self {
            Self::Default => None,
            Self::ProjectId(id) => Some(json!({ "project": { "id": id } })),
            Self::ProjectName { name, domain } => Some(json!({ "project": named(name, domain) })),
        }
    }
}

fn named(name: &str, domain: &Domain) -> Value {
    json!({ "name": name, "domain": domain.json() })
}

#[cfg(test)]
mod tests;
