//! Mutating admission policies of a real API server, which undo the writes of programs. The
//! programs may then make only few writes and one event, and cause an alert.

use std::{env, time::Duration};

use anyhow::{Context as _, Result, ensure};
use ccm_sim::{poll, program::Program};
use http::Request;
use kube::Client;
use serde_json::{Value, json};

use crate::{
    nodes,
    prometheus::rules,
    scenarios::{Env, SOON},
};

/// The group of the policies.
const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

/// The node and the label that show whether a policy is in force.
const PROBE: &str = "probe";
const PROBED: &str = "example.com/probed";

/// The event about writes that are answered as done but do not last. It comes once an hour.
const REPEATED: &str = "RepeatedWrite";
/// For how long another lasting failure is not reported again. Its event then repeats the first
/// one.
const AGAIN: Duration = Duration::from_mins(10);

/// The most writes of a program to a node in ten minutes.
const MOST: usize = 12;
/// The maximum number of writes in the first minute. Each further minute allows one more.
const AT_FIRST: usize = 5;

/// Returns how long scenarios watch the nodes whose writes are undone: `QUARTET_PATIENCE` seconds,
/// by default 20.
pub fn patience() -> Duration {
    let seconds = env::var("QUARTET_PATIENCE").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(20))
}

/// A policy that is in force.
pub struct Policy {
    client: Client,
    name: String,
}

impl Policy {
    /// Changes each update of a node by the JSON patches of this CEL expression. Waits until a node
    /// shows that the policy is in force.
    pub async fn of_nodes(client: &Client, name: &str, patches: &str) -> Result<Self> {
        let patches = format!("{patches} + {}", no_label(PROBED));
        let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes", "nodes/status"]});
        let policy = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy",
            "metadata": {"name": name},
            "spec": {
                "matchConstraints": {"resourceRules": [rule]},
                "failurePolicy": "Fail", "reinvocationPolicy": "Never",
                "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patches}}]}});
        let binding = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding",
            "metadata": {"name": name}, "spec": {"policyName": name}});
        for (path, body) in
            [("mutatingadmissionpolicies", policy), ("mutatingadmissionpolicybindings", binding)]
        {
            let request =
                Request::post(format!("{GROUP}/{path}")).body(serde_json::to_vec(&body)?)?;
            client.request::<Value>(request).await?;
        }
        let policy = Self { client: client.clone(), name: name.to_owned() };
        policy.in_force().await?;
        Ok(policy)
    }

    async fn in_force(&self) -> Result<()> {
        nodes::register(&self.client, &nodes::fresh(PROBE)).await?;
        let set = |value: Value| json!({"metadata": {"labels": {PROBED: value}}});
        poll::until("the policy to be in force", SOON, || async {
            let answer = nodes::patch(&self.client, PROBE, set(json!("yes"))).await?;
            nodes::patch(&self.client, PROBE, set(json!(null))).await?;
            Ok(nodes::label(&answer, PROBED).is_none().then_some(()))
        })
        .await?;
        nodes::delete(&self.client, PROBE).await
    }

    /// Removes the policy.
    pub async fn remove(self) -> Result<()> {
        for path in ["mutatingadmissionpolicybindings", "mutatingadmissionpolicies"] {
            let request =
                Request::delete(format!("{GROUP}/{path}/{}", self.name)).body(Vec::new())?;
            self.client.request::<Value>(request).await?;
        }
        Ok(())
    }
}

/// Returns the expression of a policy that removes a label of nodes.
pub fn no_label(key: &str) -> String {
    let path = key.replace('/', "~1");
    format!(
        "(has(object.metadata.labels) && \"{key}\" in object.metadata.labels \
         ? [JSONPatch{{op: \"remove\", path: \"/metadata/labels/{path}\"}}] : [])"
    )
}

/// A program from whose nodes something is taken back.
pub struct Contested<'a> {
    /// The cluster.
    pub env: &'a Env,
    /// The user agent that its clients start with.
    pub agent: &'a str,
    /// The program.
    pub program: &'a Program,
    /// How long it has worked.
    pub time: Duration,
}

/// The reason of an event, and a part of its text.
pub type Told<'a> = (&'a str, &'a str);

impl Contested<'_> {
    /// Checks that the program has written this node rarely, and that each of these events occurred
    /// exactly once, without other warnings.
    pub async fn costs_little(&self, name: &str, warnings: &[Told<'_>]) -> Result<()> {
        let Self { env, agent, time, .. } = self;
        let mut all = env.node_writes(agent).await?;
        all.retain(|write| write.name == name);
        let accepted = all.iter().filter(|write| write.code == 200).count();
        let events = nodes::warnings(&env.client, name).await?;
        let (count, seconds) = (all.len(), time.as_secs());
        eprintln!(
            "{name}: {count} writes of {agent} in {seconds} s, {accepted} accepted; warnings: {events:?}"
        );
        let most = MOST.min(AT_FIRST + usize::try_from(seconds / 60)?);
        ensure!(count <= most, "{name}: {count} writes, at most {most} are allowed: {all:?}");
        for (reason, part) in warnings {
            let told = events.iter().filter(|(text, _)| {
                text.strip_prefix(reason).is_some_and(|text| text.contains(part))
            });
            let told: i32 = told.map(|(_, times)| times).sum();
            let again =
                if *reason == REPEATED { 0 } else { i32::try_from(seconds / AGAIN.as_secs())? };
            ensure!(
                (1..=1 + again).contains(&told),
                "{name}: {reason} about {part} was reported {told} times: {events:?}"
            );
        }
        ensure!(events.len() == warnings.len(), "{name}: not only {warnings:?}: {events:?}");
        Ok(())
    }

    /// Requires that the metric of this alert is above its limit. If the time was too short, it is
    /// enough that a counter has begun to grow.
    pub async fn alerts(&self, alert: &str, series: &str) -> Result<()> {
        let limit = limit_of(alert, series)?;
        let value = self.program.metric(series).await?;
        eprintln!("{series} {value}; {alert} fires above {limit}");
        let is_counter = series.contains("_total");
        let wanted = match is_counter {
            // Prometheus does not see the increase from no series to the first value.
            true if self.time >= Duration::from_mins(10) => limit + 1.0,
            true => 0.0,
            false => limit,
        };
        ensure!(value > wanted, "{series} is {value}, and not above {wanted}");
        Ok(())
    }

    /// Checks the alert about repeated writes.
    pub async fn alerts_of_repeated(&self, write: &str) -> Result<()> {
        let series = format!("ccm_repeated_writes_total{{object=\"Node\",write=\"{write}\"}}");
        self.alerts("CCMRepeatedWrites", &series).await
    }
}

/// Returns the number above which this alert about this series fires.
fn limit_of(alert: &str, series: &str) -> Result<f64> {
    let (rules, name) = (rules::all()?, series.split('{').next().unwrap_or_default());
    let rule = rules.iter().find(|rule| rule.name.ends_with(&format!(": {alert}")));
    let expression = &rule.with_context(|| format!("the alert {alert} does not exist"))?.expression;
    let (read, limit) = expression.rsplit_once('>').context("it has a limit")?;
    ensure!(read.contains(name), "{alert} does not read {name}: {expression}");
    Ok(limit.trim().parse()?)
}
