//! Follows the admission policy of the program's own account (`manifests/common/policy.yaml`):
//! shows if it is in force, and which writes it has refused.
//!
//! A program works without its policy, because an API server older than 1.30 does not have such
//! policies, and not everybody may install them. It then reports that. A policy of another version
//! may refuse what this version writes: one line of the log and of `/readyz?verbose` names the file
//! to apply.

use std::{collections::BTreeSet, mem, time::Duration};

use ccm_kube::{
    ApiError,
    client::{Clients, Denial, Denials},
};
use ccm_metrics::{Counter, Gauge, metrics};
use kube::Client;
use serde_json::Value;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::{
    health::{Condition, Health, Scope, Verdict},
    metrics::Metrics,
    rights::{self, POLICIES, POLICY_BINDINGS},
};

/// The time between two reads of the policy. A refusal is shown for as long.
const PERIOD: Duration = Duration::from_mins(5);
/// The same while the API server does not answer.
const AGAIN: Duration = Duration::from_secs(30);
/// The time between two looks at refusals: several are reported as one.
const GATHERED: Duration = Duration::from_secs(1);
/// The most refusals that are told one by one.
const MOST_TOLD: usize = 16;

metrics! {
    pub(crate) struct OwnPolicyMetrics {
        /// 1 if the admission policy of the program's account is installed and denies, 0 if not or not known
        [ALPHA] ccm_admission_policy_installed => installed: Gauge;
        /// Writes of this process that the admission policy of its account has refused: it belongs to another version
        [ALPHA] ccm_admission_policy_refusals => refusals: Counter;
    }
}

/// The result of a look at the policy and its binding.
#[derive(Clone, Debug, PartialEq, Eq)]
enum FoundPolicy {
    NotLooked,
    InForce,
    /// The policy or its binding does not exist.
    NotInstalled,
    /// The binding only warns or audits, or binds another policy.
    NotDenying,
    Unknown(ApiError),
}

impl FoundPolicy {
    /// Returns true if the API server only did not answer.
    fn is_transient(&self) -> bool {
        matches!(self, Self::Unknown(error) if !matches!(error, ApiError::Forbidden(_)))
    }
}

/// Follows the policy of one program.
pub(crate) struct OwnPolicy {
    program: &'static str,
    client: Client,
    denials: Denials,
    line: Condition,
    metrics: OwnPolicyMetrics,
    counted: u64,
    /// The refusals that the log has named, by their [`words`].
    told: BTreeSet<Vec<String>>,
}

impl OwnPolicy {
    /// Shows the line and the metrics at once; the first request is made by [`OwnPolicy::run`].
    pub(crate) fn new(
        program: &'static str,
        clients: &Clients,
        health: &Health,
        metrics: &Metrics,
    ) -> Self {
        let line = health.condition("admission-policy", Scope::Information, "");
        line.pass("not checked yet");
        Self {
            program,
            client: clients.main.clone(),
            denials: clients.denials.clone(),
            line,
            metrics: OwnPolicyMetrics::new(metrics),
            counted: 0,
            told: BTreeSet::new(),
        }
    }

    /// Reads the policy at the start and every five minutes, and follows refusals, until cancelled.
    pub(crate) async fn run(mut self, token: CancellationToken) {
        let denials = self.denials.clone();
        let rounds = async {
            let mut found = FoundPolicy::NotLooked;
            loop {
                let before = mem::replace(&mut found, self.look().await);
                self.show(&found, found != before);
                let next = Instant::now() + if found.is_transient() { AGAIN } else { PERIOD };
                while tokio::select! {
                    () = denials.news() => true,
                    () = sleep_until(next) => false,
                } {
                    self.show(&found, false);
                    sleep(GATHERED).await;
                }
            }
        };
        token.run_until_cancelled(rounds).await;
    }

    async fn look(&self) -> FoundPolicy {
        let policy = self.get(POLICIES).await;
        match (policy, self.get(POLICY_BINDINGS).await) {
            (Err(ApiError::NotFound), _) | (_, Err(ApiError::NotFound)) => {
                FoundPolicy::NotInstalled
            }
            (Err(error), _) | (_, Err(error)) => FoundPolicy::Unknown(error),
            (Ok(_), Ok(binding)) if denies(&binding, self.program) => FoundPolicy::InForce,
            (Ok(_), Ok(_)) => FoundPolicy::NotDenying,
        }
    }

    async fn get(&self, kind: &str) -> Result<Value, ApiError> {
        let path = format!("/apis/{}/v1/{kind}/{}", rights::ADMISSION, self.program);
        let request = http::Request::get(path).body(Vec::new());
        let request = request.map_err(|error| ApiError::Invalid(error.to_string()))?;
        Ok(self.client.request(request).await?)
    }

    fn show(&mut self, found: &FoundPolicy, is_news: bool) {
        self.metrics.installed.set(i64::from(*found == FoundPolicy::InForce));
        let denial = self.denials.last(self.program);
        let count = denial.as_ref().map_or(0, |denial| denial.count);
        self.metrics.refusals.inc_by(count.saturating_sub(self.counted));
        let is_refused = count > self.counted;
        self.counted = count;
        let denial = denial.filter(|denial| denial.at.elapsed() < PERIOD);
        let is_shown = denial.is_some();
        let verdict = verdict(self.program, found, denial.as_ref());
        self.line.set(verdict.clone());
        match denial {
            None => self.told.clear(),
            Some(denial) if is_refused && self.told.len() < MOST_TOLD => {
                if self.told.insert(words(&denial.message)) {
                    tracing::error!("{}", verdict.detail());
                }
            }
            Some(_) => {}
        }
        if is_news && !is_shown && !found.is_transient() {
            match &verdict {
                Verdict::Passed(text) => tracing::info!("admission policy: {text}"),
                Verdict::Failed(text) => tracing::warn!("admission policy: {text}"),
            }
        }
    }
}

/// Returns the words of a refusal in one order: the API server names the same fields in another
/// order each time.
fn words(message: &str) -> Vec<String> {
    let words = message.split([' ', ',']).filter(|word| !word.is_empty());
    let mut words: Vec<String> = words.map(str::to_owned).collect();
    words.sort_unstable();
    words
}

/// Returns true if the API server refuses what violates this policy.
fn denies(binding: &Value, policy: &str) -> bool {
    let actions = binding.pointer("/spec/validationActions").and_then(Value::as_array);
    binding.pointer("/spec/policyName").is_some_and(|name| name == policy)
        && actions.is_some_and(|actions| actions.iter().any(|action| action == "Deny"))
}

fn verdict(program: &str, found: &FoundPolicy, denial: Option<&Denial>) -> Verdict {
    if let Some(Denial { message, .. }) = denial {
        return Verdict::Failed(format!(
            "the admission policy {program} has refused a write, so it belongs to another version: {message}; apply the \
             policy of this version (manifests/{program}, or its file in manifests/rendered); the write is tried again"
        ));
    }
    let why = match found {
        FoundPolicy::NotLooked => return Verdict::Passed("not checked yet".to_owned()),
        FoundPolicy::InForce => {
            return Verdict::Passed(format!(
                "{program} is in force: the account writes only what the program writes"
            ));
        }
        FoundPolicy::NotInstalled => {
            format!("the policy {program} is not installed, or this API server is older than 1.30")
        }
        FoundPolicy::NotDenying => {
            format!(
                "the binding {program} does not deny anything: it only warns or audits, or binds another policy"
            )
        }
        FoundPolicy::Unknown(error) => {
            return Verdict::Failed(format!(
                "not known if {program} is installed: {error}; the program works as before; without the policy its account may write everything that its role grants; apply manifests/{program}, or its file in \
                 manifests/rendered"
            ));
        }
    };
    Verdict::Failed(format!(
        "{why}; the program works as before, but its account may write everything that its role grants; apply \
         manifests/{program}, or its file in manifests/rendered"
    ))
}

#[cfg(test)]
mod tests;
