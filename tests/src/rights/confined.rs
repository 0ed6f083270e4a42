//! Tries which writes a program's admission policy lets pass: the tables in `tests/policies`.
//!
//! Each row is one request about a new object. A request that should pass is sent with the
//! account's own token. One that should be refused is sent in the account's name with all rights:
//! the roles and the policy of `manifests/guard` would also refuse some requests, which does not
//! prove anything about the account's own policy.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use http::{HeaderValue, Method, Request};
use kube::Client;
use serde::Deserialize;
use serde_json::Value;

use super::account::Account;
use crate::cluster::{self, repository};

/// The least rows of a table that pass, and that are refused.
const LEAST: usize = 20;
/// The patches of the programs.
const STRATEGIC: &str = "application/strategic-merge-patch+json";

/// A table.
#[derive(Deserialize)]
struct Table {
    objects: BTreeMap<String, Value>,
    rows: Vec<Row>,
}

/// One request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    /// The request in words.
    does: String,
    /// The object that is made before it.
    on: Option<String>,
    /// The subresource.
    part: Option<String>,
    patch: Option<Value>,
    create: Option<Value>,
    #[serde(default)]
    delete: bool,
    /// A part of the refusal; `None` if the request passes.
    refused: Option<String>,
}

/// Tries all rows of the program's table.
pub async fn by_its_policy(admin: &Client, account: &Account) -> Result<()> {
    let program = account.program();
    let table = read(program)?;
    let (refused, passed): (Vec<_>, Vec<_>) =
        table.rows.iter().partition(|row| row.refused.is_some());
    ensure!(passed.len() >= LEAST, "{} rows pass", passed.len());
    ensure!(refused.len() >= LEAST, "{} rows are refused", refused.len());
    let own = cluster::client_of(account.kubeconfig()).await?;
    let mut wrong = Vec::new();
    for row in &table.rows {
        let outcome = attempt(admin, &own, (program, &table), row).await;
        if let Err(error) = outcome.and_then(|answer| judge(program, row, answer)) {
            wrong.push(format!("{}: {error:#}", row.does));
        }
    }
    ensure!(wrong.is_empty(), "{} rows:\n{}", wrong.len(), wrong.join("\n"));
    Ok(())
}

fn read(program: &str) -> Result<Table> {
    let path = repository().join(format!("tests/policies/{program}.yaml"));
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let mut value: serde_yaml_ng::Value = serde_yaml_ng::from_str(&text)?;
    value.apply_merge()?;
    Ok(serde_yaml_ng::from_value(value)?)
}

/// Returns the request of this row. An error is an error of its preparation.
async fn attempt(
    admin: &Client,
    own: &Client,
    (program, table): (&str, &Table),
    row: &Row,
) -> Result<Result<String, kube::Error>> {
    let object = match (&row.on, &row.create) {
        (Some(name), _) => table.objects.get(name).context("no such object")?,
        (None, Some(object)) => object,
        (None, None) => anyhow::bail!("it has no object"),
    };
    clear(admin, object).await?;
    if row.on.is_some() {
        make(admin, object).await?;
    }
    let mut request = match (&row.create, &row.patch) {
        (Some(object), _) => request(Method::POST, &collection(object), Some(object))?,
        (_, Some(patch)) => {
            let part = row.part.as_ref().map(|part| format!("/{part}")).unwrap_or_default();
            request(Method::PATCH, &(path(object)? + &part), Some(patch))?
        }
        _ if row.delete => request(Method::DELETE, &path(object)?, None)?,
        _ => anyhow::bail!("nothing to do"),
    };
    let answer = if row.refused.is_none() {
        own.request_text(request).await
    } else {
        let account = format!("system:serviceaccount:kube-system:{program}");
        request.headers_mut().insert("impersonate-user", account.parse()?);
        request
            .headers_mut()
            .insert("impersonate-group", HeaderValue::from_static("system:masters"));
        admin.request_text(request).await
    };
    clear(admin, object).await?;
    Ok(answer)
}

fn judge(program: &str, row: &Row, answer: Result<String, kube::Error>) -> Result<()> {
    let by = format!(
        "ValidatingAdmissionPolicy '{program}' with binding '{program}' denied request: {program} may"
    );
    match (&row.refused, answer) {
        (None, Ok(_)) => Ok(()),
        (None, Err(error)) => Err(error).context("refused"),
        (Some(_), Ok(_)) => anyhow::bail!("it passed"),
        (Some(words), Err(kube::Error::Api(status))) => {
            let message = &status.message;
            ensure!(status.code == 403 && message.contains(&by), "not by the policy: {message}");
            let (_, said) = message.split_once(&by).unwrap_or_default();
            ensure!(said.contains(words), "it says {message}");
            ensure!(!message.contains('\n'), "more than one line: {message}");
            Ok(())
        }
        (Some(_), Err(error)) => Err(error).context("no answer"),
    }
}

/// Makes an object, with its status.
async fn make(admin: &Client, object: &Value) -> Result<()> {
    admin.request_text(request(Method::POST, &collection(object), Some(object))?).await?;
    if object["kind"] == "Node" {
        // The API server has added a taint.
        let taints = object.pointer("/spec/taints").cloned().unwrap_or_default();
        let taints = serde_json::json!({"spec": {"taints": taints}});
        admin.request_text(request(Method::PATCH, &path(object)?, Some(&taints))?).await?;
    }
    if let Some(status) = object.get("status") {
        let status = serde_json::json!({"status": status});
        let to = path(object)? + "/status";
        admin.request_text(request(Method::PATCH, &to, Some(&status))?).await?;
    }
    Ok(())
}

/// Removes an object, its finalizers first.
async fn clear(admin: &Client, object: &Value) -> Result<()> {
    let none = serde_json::json!({"metadata": {"finalizers": null}});
    for (method, body) in [(Method::PATCH, Some(&none)), (Method::DELETE, None)] {
        match admin.request_text(request(method, &path(object)?, body)?).await {
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
            answer => drop(answer?),
        }
    }
    Ok(())
}

fn request(method: Method, path: &str, body: Option<&Value>) -> Result<Request<Vec<u8>>> {
    let kind = if method == Method::PATCH { STRATEGIC } else { "application/json" };
    let body = body.map(Value::to_string).unwrap_or_default();
    let request = Request::builder().method(method).uri(path).header("content-type", kind);
    Ok(request.body(body.into_bytes())?)
}

fn path(object: &Value) -> Result<String> {
    let name = object["metadata"]["name"].as_str().context("a name")?;
    Ok(format!("{}/{name}", collection(object)))
}

fn collection(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let root = if version.contains('/') { "apis" } else { "api" };
    let within = match text(&object["metadata"]["namespace"]) {
        namespace if namespace.is_empty() => namespace,
        namespace => format!("/namespaces/{namespace}"),
    };
    format!("/{root}/{version}{within}/{}s", kind.to_lowercase())
}
