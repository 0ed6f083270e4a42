//! The service account of a program on a real API server.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use ccm_sim::poll;
use k8s_openapi::{
    api::{
        authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
        coordination::v1::Lease,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, Client, api::PostParams};
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt as _, process::Command};

use super::manifest::{Grant, Manifest};
use crate::cluster::{Cluster, client_of, real::RealCluster, repository};

/// How long the API server may take to notice a changed role.
const NOTICED: Duration = Duration::from_secs(20);
/// The message of the policy of [`Account::confine_to_nothing`] about another Lease.
const OLDER: &str = "an older policy";

/// A program's account, with its manifests' rights.
pub struct Account {
    cluster: Arc<Cluster>,
    client: Client,
    manifest: Manifest,
    kubeconfig: PathBuf,
}

impl Account {
    /// Applies the manifests' account and roles, and gets a token. Writes the kubeconfig
    /// with it into `folder`.
    pub async fn create(
        cluster: Arc<Cluster>,
        program: &'static str,
        folder: &Path,
    ) -> Result<Self> {
        let real = real(&cluster)?;
        let source = repository().join("manifests").join(program);
        let text = run(real.kubectl().arg("kustomize").arg(&source), "").await?;
        let manifest = Manifest::rendered(program, &text)?;
        let client = cluster.client().await?;
        let kubeconfig = folder.join(format!("{program}.kubeconfig"));
        let account = Self { cluster, client, manifest, kubeconfig };
        account.apply_all().await?;
        let real = account.real()?;
        let mut command = real.kubectl();
        command.args(["create", "token", program, "-n=kube-system", "--duration=2h"]);
        let token = run(&mut command, "").await?;
        let mut config: Value = serde_json::from_slice(&std::fs::read(real.kubeconfig())?)?;
        config["users"][0]["user"] = json!({"token": token.trim()});
        std::fs::write(&account.kubeconfig, serde_json::to_vec(&config)?)?;
        account.restore().await?;
        Ok(account)
    }

    /// Returns the program of the account.
    pub fn program(&self) -> &'static str {
        self.manifest.program
    }

    /// Returns the file that the program reaches the API server with.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Returns the roles.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Grants again everything that the manifests grant, and waits until it is in force.
    pub async fn restore(&self) -> Result<()> {
        self.apply_all().await?;
        for grant in self.manifest.grants()? {
            self.wait_until(&grant, true).await?;
        }
        self.wait_confined("no Lease but its own").await
    }

    /// Installs a policy that does not allow any field of an object to be written, as if it
    /// belonged to an earlier version that does not know the fields. Waits until it is in force.
    pub async fn confine_to_nothing(&self) -> Result<()> {
        let mut items: Vec<Value> = self.manifest.policy().into_iter().cloned().collect();
        for item in &mut items {
            let mut each = |part: &str, change: &dyn Fn(&mut Value)| {
                let list = item.pointer_mut(part).and_then(Value::as_array_mut);
                list.into_iter().flatten().for_each(change);
            };
            each("/spec/variables", &|variable| {
                if ["sets", "fills", "removes"].contains(&variable["name"].as_str().unwrap_or("")) {
                    variable["expression"] = json!("[]");
                }
            });
            // The refused Lease shows that this policy is in force.
            each("/spec/validations", &|validation| {
                if validation["message"].as_str().is_some_and(|text| text.contains("no Lease")) {
                    validation["messageExpression"] = json!(format!("'{OLDER}'"));
                }
            });
        }
        self.apply(&json!({"apiVersion": "v1", "kind": "List", "items": items})).await?;
        self.wait_confined(OLDER).await
    }

    /// Removes the policy, and waits until it is not in force any more.
    pub async fn remove_policy(&self) -> Result<()> {
        for item in self.manifest.policy() {
            let mut command = self.real()?.kubectl();
            let kind = item["kind"].as_str().unwrap_or_default();
            run(command.args(["delete", kind, self.program()]), "").await?;
        }
        self.wait_confined("").await
    }

    /// Waits until the admission policy with these words is in force; if the words are empty, until
    /// no policy is. Only without a policy may the account create a Lease other than its own.
    async fn wait_confined(&self, words: &str) -> Result<()> {
        let own = client_of(&self.kubeconfig).await?;
        let leases = Api::<Lease>::namespaced(own, "kube-system");
        let params = PostParams { dry_run: true, ..PostParams::default() };
        let metadata = ObjectMeta { generate_name: Some("x".to_owned()), ..ObjectMeta::default() };
        let lease = Lease { metadata, ..Lease::default() };
        let what = format!("the policy of {} to say `{words}`", self.program());
        poll::until(&what, NOTICED, || async {
            let is_in_force = match leases.create(&params, &lease).await {
                Err(kube::Error::Api(status)) if status.code == 403 => {
                    !words.is_empty() && status.message.contains(words)
                }
                answer => answer.map(|_| words.is_empty())?,
            };
            Ok(is_in_force.then_some(()))
        })
        .await
    }

    /// Takes away one right, and waits until it is gone.
    pub async fn take(&self, grant: &Grant) -> Result<()> {
        self.apply(&self.manifest.without(grant)?).await?;
        self.wait_until(grant, false).await
    }

    /// Returns true if the API server permits this to the account.
    pub async fn may(&self, grant: &Grant) -> Result<bool> {
        let attributes = ResourceAttributes {
            verb: Some(grant.verb.clone()),
            group: Some(grant.group.clone()),
            resource: Some(grant.resource.clone()),
            subresource: Some(grant.subresource.clone()),
            namespace: Some(grant.namespace.clone()),
            name: Some(grant.name.clone()),
            ..ResourceAttributes::default()
        };
        let group = |name: &str| format!("system:{name}");
        let spec = SubjectAccessReviewSpec {
            user: Some(format!("system:serviceaccount:kube-system:{}", self.program())),
            groups: Some(vec![group("serviceaccounts"), group("authenticated")]),
            resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let answer = Api::all(self.client.clone()).create(&PostParams::default(), &review).await?;
        Ok(answer.status.context("a review has a status")?.allowed)
    }

    async fn wait_until(&self, grant: &Grant, allowed: bool) -> Result<()> {
        let program = self.program();
        let what = if allowed { "be granted" } else { "be taken from" };
        poll::until(&format!("`{grant}` to {what} {program}"), NOTICED, || async {
            Ok((self.may(grant).await? == allowed).then_some(()))
        })
        .await
    }

    async fn apply_all(&self) -> Result<()> {
        self.apply(&json!({"apiVersion": "v1", "kind": "List", "items": self.manifest.objects}))
            .await
    }

    async fn apply(&self, objects: &Value) -> Result<()> {
        let mut command = self.real()?.kubectl();
        command.args(["apply", "--validate=strict", "-f", "-"]);
        run(&mut command, &objects.to_string()).await.map(drop)
    }

    fn real(&self) -> Result<&RealCluster> {
        real(&self.cluster)
    }
}

fn real(cluster: &Cluster) -> Result<&RealCluster> {
    cluster.real().context("only a real API server grants rights")
}

/// Returns the output of a command; a failed command is an error.
pub(super) async fn run(command: &mut Command, input: &str) -> Result<String> {
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = pipes.spawn().context("starting kubectl")?;
    let mut stdin = child.stdin.take().context("it has an input")?;
    stdin.write_all(input.as_bytes()).await?;
    drop(stdin);
    let out = child.wait_with_output().await?;
    let told = String::from_utf8_lossy(&out.stderr);
    ensure!(out.status.success(), "{command:?} ended with {}: {told}", out.status);
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}
