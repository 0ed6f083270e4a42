//! A real Prometheus as a child process, and its HTTP API.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use ccm_base::clock;
use ccm_sim::{poll, program::free_port};
use http::Method;
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::openstack::http::Http;

/// The time from one scrape to the next.
pub const SCRAPE_SECONDS: u64 = 1;

/// How long Prometheus may take to start, and to see a target.
const PATIENCE: Duration = Duration::from_secs(30);

/// The beginning and the end, in Unix seconds.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// The first second.
    pub start: u64,
    /// The last one.
    pub end: u64,
}

impl Span {
    /// Returns the length in seconds.
    pub fn seconds(self) -> u64 {
        self.end.saturating_sub(self.start)
    }
}

/// Returns this second.
pub fn now() -> u64 {
    clock::wall().as_second().unsigned_abs()
}

/// Processes that Prometheus scrapes under one name.
pub struct Job {
    /// The label `job`.
    pub name: String,
    /// The processes, as `host:port`, each with its further labels.
    pub targets: Vec<(String, Value)>,
}

/// A running Prometheus. Dropping it ends it.
pub struct Server {
    _child: Child,
    address: String,
    http: Http,
}

impl Server {
    /// Starts it: `programs` is the folder with `prometheus`, `folder` the one for its
    /// data. It scrapes these jobs and evaluates the rules of these files.
    pub async fn start(
        programs: &Path,
        folder: &Path,
        jobs: &[Job],
        rules: &[PathBuf],
    ) -> Result<Self> {
        let interval = format!("{SCRAPE_SECONDS}s");
        let scrapes = jobs.iter().map(|job| {
            let each = |(address, labels): &_| json!({"targets": [address], "labels": labels});
            let targets: Vec<_> = job.targets.iter().map(each).collect();
            json!({"job_name": job.name, "static_configs": targets})
        });
        let configuration = json!({
            "global": {"scrape_interval": interval, "evaluation_interval": interval},
            "rule_files": rules,
            "scrape_configs": scrapes.collect::<Vec<_>>(),
        });
        let file = folder.join("prometheus.yaml");
        std::fs::write(&file, serde_yaml_ng::to_string(&configuration)?)?;
        let log = folder.join("prometheus.log");
        let address = format!("127.0.0.1:{}", free_port()?);
        let child = Command::new(programs.join("prometheus"))
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("prometheus").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&log)?)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("starting {}/prometheus", programs.display()))?;
        let server = Self { _child: child, address, http: Http::new() };
        let targets: usize = jobs.iter().map(|job| job.targets.len()).sum();
        let up = poll::until("Prometheus to scrape all programs", PATIENCE, || async {
            let result = server.query("count(up == 1)").await?;
            let seen = result[0]["value"][1].as_str().unwrap_or("0");
            Ok((seen == targets.to_string()).then_some(()))
        });
        match up.await {
            Ok(()) => Ok(server),
            Err(error) => Err(error.context(std::fs::read_to_string(&log)?)),
        }
    }

    /// Returns its address as `host:port`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns the present value of an expression.
    pub async fn query(&self, expression: &str) -> Result<Value> {
        let data = self.get("query", &[("query", expression)]).await?;
        Ok(data["result"].clone())
    }

    /// Returns the value of an expression at one moment.
    pub async fn query_at(&self, expression: &str, at: u64) -> Result<Value> {
        let at = at.to_string();
        let data = self.get("query", &[("query", expression), ("time", &at)]).await?;
        Ok(data["result"].clone())
    }

    /// Returns the values of an expression, second by second.
    pub async fn query_range(&self, expression: &str, span: Span) -> Result<Value> {
        let (start, end) = (span.start.to_string(), span.end.to_string());
        let step = SCRAPE_SECONDS.to_string();
        let parameters = [("query", expression), ("start", &start), ("end", &end), ("step", &step)];
        Ok(self.get("query_range", &parameters).await?["result"].clone())
    }

    /// Returns the values that a label of these series has had.
    pub async fn label_values(
        &self,
        selector: &str,
        label: &str,
        span: Span,
    ) -> Result<Vec<String>> {
        let (start, end) = (span.start.to_string(), span.end.to_string());
        let parameters = [("match[]", selector), ("start", &start), ("end", &end)];
        let data = self.get(&format!("label/{label}/values"), &parameters).await?;
        Ok(strings(&data))
    }

    /// Returns the names of all series that were ever seen.
    pub async fn metrics(&self) -> Result<BTreeSet<String>> {
        Ok(strings(&self.get("label/__name__/values", &[]).await?).into_iter().collect())
    }

    /// Returns the names of all labels that series ever had.
    pub async fn labels(&self) -> Result<Vec<String>> {
        Ok(strings(&self.get("labels", &[]).await?))
    }

    /// Returns the rules, and how their last evaluation went.
    pub async fn rules(&self) -> Result<Value> {
        Ok(self.get("rules", &[]).await?["groups"].clone())
    }

    async fn get(&self, path: &str, parameters: &[(&str, &str)]) -> Result<Value> {
        let query: Vec<_> = parameters
            .iter()
            .map(|(name, value)| format!("{}={}", encode(name), encode(value)))
            .collect();
        let url = format!("http://{}/api/v1/{path}?{}", self.address, query.join("&"));
        let answer = self.http.send(Method::GET, &url, &[], None).await?;
        let body = answer.json()?;
        if body["status"] != "success" {
            bail!("{}", body["error"].as_str().unwrap_or(&answer.text));
        }
        Ok(body["data"].clone())
    }
}

fn strings(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Encodes a text for the query of a URL.
fn encode(text: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(byte);
    let each = text.bytes().map(|byte| {
        if plain(&byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }
    });
    each.collect()
}
