//! Keystone: users, passwords, application credentials, tokens.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use http::Method;
use serde_json::{Value, json};

use super::{Account, Admin, text};

/// A user that a test created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Its ID.
    pub id: String,
    /// Its credentials.
    pub account: Account,
}

/// An application credential: a program logs in with it instead of its user's password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApplicationCredential {
    /// Its ID.
    pub id: String,
    /// Its secret, which Keystone returns only once.
    pub secret: String,
}

impl Admin {
    /// Makes a user with the roles of a member in a project. Only for the operator.
    pub async fn create_user(&self, account: &Account) -> Result<User> {
        let body = json!({"user": {
            "name": account.user, "password": account.password, "domain_id": "default"
        }});
        let id = text(&self.post(&self.identity_url("users"), body).await?, "/user/id")?;
        let project = self.id_by_name(&self.identity_url("projects"), &account.project).await?;
        for role in ["member", "load-balancer_member"] {
            let role = self.id_by_name(&self.identity_url("roles"), role).await?;
            let grant = self.identity_url(&format!("projects/{project}/users/{id}/roles/{role}"));
            self.done(Method::PUT, &grant, None).await?;
        }
        Ok(User { id, account: account.clone() })
    }

    /// Deletes a user. Only for the operator.
    pub async fn delete_user(&self, id: &str) -> Result<()> {
        self.delete(&self.identity_url(&format!("users/{id}"))).await
    }

    /// Returns the IDs of all users whose names start with this prefix. Only for the operator.
    pub async fn users(&self, prefix: &str) -> Result<Vec<String>> {
        let document = self.get(&self.identity_url("users")).await?;
        let all = document["users"].as_array().context("an answer without users")?;
        let named = |user: &&Value| user["name"].as_str().is_some_and(|n| n.starts_with(prefix));
        all.iter().filter(named).map(|user| text(user, "/id")).collect()
    }

    /// Gives a user another password, which ends its tokens. Only for the operator.
    pub async fn change_password(&self, user: &User, password: &str) -> Result<User> {
        let url = self.identity_url(&format!("users/{}", user.id));
        let body = json!({"user": {"password": password}});
        self.done(Method::PATCH, &url, Some(&body)).await?;
        // Keystone revokes tokens up to this whole second, including tokens issued after this.
        tokio::time::sleep(Duration::from_millis(1100)).await;
        let mut user = user.clone();
        password.clone_into(&mut user.account.password);
        Ok(user)
    }

    /// Creates an application credential for this user.
    pub async fn create_application_credential(&self, name: &str) -> Result<ApplicationCredential> {
        self.create_credential(json!({"name": name})).await
    }

    /// Creates an application credential with access rules, each with `service`, `method` and
    /// `path`.
    pub async fn create_application_credential_for(
        &self,
        name: &str,
        rules: &[Value],
    ) -> Result<ApplicationCredential> {
        self.create_credential(json!({"name": name, "access_rules": rules})).await
    }

    async fn create_credential(&self, wanted: Value) -> Result<ApplicationCredential> {
        let body = json!({"application_credential": wanted});
        let made = self.post(&self.credentials_url(), body).await?;
        Ok(ApplicationCredential {
            id: text(&made, "/application_credential/id")?,
            secret: text(&made, "/application_credential/secret")?,
        })
    }

    /// Deletes an application credential of this user, which revokes its tokens.
    pub async fn delete_application_credential(&self, id: &str) -> Result<()> {
        self.delete(&format!("{}/{id}", self.credentials_url())).await
    }

    /// Creates a trust: the other user may act as this one in its project. Returns the
    /// trust's ID.
    pub async fn trust(&self, trustee: &User) -> Result<String> {
        let body = json!({"trust": {
            "trustor_user_id": self.user_id,
            "trustee_user_id": trustee.id,
            "project_id": self.project_id,
            "impersonation": true,
            "roles": [{"name": "member"}],
        }});
        text(&self.post(&self.identity_url("OS-TRUST/trusts"), body).await?, "/trust/id")
    }

    /// Deletes a trust of this user, which revokes its tokens.
    pub async fn delete_trust(&self, id: &str) -> Result<()> {
        self.delete(&self.identity_url(&format!("OS-TRUST/trusts/{id}"))).await
    }

    /// Names a second region in the catalog, with the same services as the only one. Only for the
    /// operator.
    pub async fn name_region(&self, region: &str) -> Result<()> {
        let url = self.identity_url(&format!("regions/{region}"));
        if self.call(Method::GET, &url, None).await?.status.is_success() {
            return Ok(());
        }
        self.post(&self.identity_url("regions"), json!({"region": {"id": region}})).await?;
        let url = self.identity_url(&format!("endpoints?region_id={}", super::REGION));
        let document = self.get(&url).await?;
        for endpoint in document["endpoints"].as_array().context("no endpoints")? {
            let (interface, service) = (&endpoint["interface"], &endpoint["service_id"]);
            let same = json!({"endpoint": {
                "interface": interface, "service_id": service, "url": endpoint["url"], "region_id": region
            }});
            self.post(&self.identity_url("endpoints"), same).await?;
        }
        Ok(())
    }

    /// Removes this region and its endpoints from the catalog. Only for the operator.
    pub async fn forget_region(&self, region: &str) -> Result<()> {
        let url = self.identity_url(&format!("endpoints?region_id={region}"));
        let document = self.get(&url).await?;
        for endpoint in document["endpoints"].as_array().context("no endpoints")? {
            let id = text(endpoint, "/id")?;
            self.delete(&self.identity_url(&format!("endpoints/{id}"))).await?;
        }
        self.delete(&self.identity_url(&format!("regions/{region}"))).await
    }

    /// Revokes a token: this user's own or, as the operator, any.
    pub async fn revoke_token(&self, token: &str) -> Result<()> {
        let headers = [("x-auth-token", self.token.as_str()), ("x-subject-token", token)];
        let url = self.identity_url("auth/tokens");
        let answer = self.http.send(Method::DELETE, &url, &headers, None).await?;
        ensure!(answer.status.is_success(), "revoking: {} {}", answer.status, answer.text);
        Ok(())
    }

    fn identity_url(&self, path: &str) -> String {
        format!("{}/{path}", self.identity)
    }

    fn credentials_url(&self) -> String {
        self.identity_url(&format!("users/{}/application_credentials", self.user_id))
    }
}
