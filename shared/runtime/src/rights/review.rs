//! Reviews the program's permissions until the API server grants all of them.
//!
//! A program without a permission starts and works as far as it can, but is not ready: a
//! rollout with an insufficient role stops there, and the old replicas stay. A failure of the
//! review itself proves nothing about permissions and does not affect readiness.

use std::time::Duration;

use ccm_base::message::chain;
use ccm_kube::ApiError;
use ccm_metrics::{Gauge, metrics};
use futures::{StreamExt as _, stream};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::{Api, Client, api::PostParams};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::Right;
use crate::{
    health::{Condition, Health, Scope, Verdict},
    metrics::Metrics,
};

/// Maximum number of concurrent requests.
const AT_ONCE: usize = 4;
/// Time limit for one round; the program is not ready before the first round has ended.
const ROUND: Duration = Duration::from_secs(5);
/// Pause between two rounds.
const AGAIN: Duration = Duration::from_secs(30);

/// The state of one permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PermissionState {
    Unknown,
    Granted,
    Denied,
}

/// The permissions of one program, and their states.
pub(crate) struct Review {
    program: &'static str,
    api: Api<SelfSubjectAccessReview>,
    rights: Vec<(Right, PermissionState)>,
    check: Condition,
    metrics: RightsMetrics,
    /// The last verdict logged.
    logged: Option<Verdict>,
}

impl Review {
    /// Creates a review of these permissions. Its check and its metric appear at once; the first
    /// request is made by [`Review::run`].
    pub(crate) fn new(
        program: &'static str,
        rights: Vec<Right>,
        client: Client,
        health: &Health,
        metrics: &Metrics,
    ) -> Self {
        Self {
            program,
            api: Api::all(client),
            rights: rights.into_iter().map(|right| (right, PermissionState::Unknown)).collect(),
            check: health.condition("rights", Scope::Readiness, "being reviewed"),
            metrics: RightsMetrics::new(metrics),
            logged: None,
        }
    }

    /// Requests a review of each permission once, and every 30 s again while it is not granted.
    /// Ends when all are granted, when this API server does not support reviews, or when cancelled.
    pub(crate) async fn run(mut self, token: CancellationToken) {
        token.run_until_cancelled(self.rounds()).await;
    }

    async fn rounds(&mut self) {
        loop {
            let trouble = self.round().await.err();
            let verdict = self.verdict(trouble.as_ref());
            self.show(verdict);
            let done = self.rights.iter().all(|(_, answer)| *answer == PermissionState::Granted);
            let is_useless = trouble.as_ref().is_some_and(is_final);
            // A denied permission may be granted later, and the review with it.
            if done || is_useless && self.missing().next().is_none() {
                return;
            }
            sleep(AGAIN).await;
        }
    }

    /// Reviews all permissions not granted yet, up to the first request that fails.
    async fn round(&mut self) -> Result<(), ApiError> {
        let open = self.rights.iter().enumerate();
        let open = open.filter(|(_, (_, answer))| *answer != PermissionState::Granted);
        let questions: Vec<_> = open.map(|(at, (right, _))| (at, question(right))).collect();
        let api = self.api.clone();
        let mut answers = stream::iter(questions)
            .map(move |(at, question)| {
                let api = api.clone();
                async move { (at, api.create(&PostParams::default(), &question).await) }
            })
            .buffered(AT_ONCE);
        let rights = &mut self.rights;
        let asking = async {
            while let Some((at, answer)) = answers.next().await {
                let granted = answer?.status.is_some_and(|status| status.allowed);
                if let Some((_, known)) = rights.get_mut(at) {
                    *known =
                        if granted { PermissionState::Granted } else { PermissionState::Denied };
                }
            }
            Ok(())
        };
        timeout(ROUND, asking).await.map_err(|_| ApiError::Timeout)?
    }

    fn verdict(&self, trouble: Option<&ApiError>) -> Verdict {
        let missing: Vec<_> = self.missing().map(ToString::to_string).collect();
        if !missing.is_empty() {
            let Self { program, .. } = self;
            return Verdict::Failed(format!(
                "{program} may not {}; apply the roles that belong to this version (manifests/common/role.yaml, \
                 manifests/{program}/clusterrole.yaml), or bind them to the account it runs as; reviewed again every {} s",
                missing.join(", nor "),
                AGAIN.as_secs()
            ));
        }
        Verdict::Passed(match trouble {
            None => format!("all {} that are needed are granted", self.rights.len()),
            Some(error) if is_final(error) => {
                format!("not known: this API server does not review them: {}", chain(error))
            }
            Some(error) => format!(
                "not known yet, reviewed again every {} s: {}",
                AGAIN.as_secs(),
                chain(error)
            ),
        })
    }

    fn show(&mut self, verdict: Verdict) {
        self.metrics.missing.set(i64::try_from(self.missing().count()).unwrap_or(i64::MAX));
        self.check.set(verdict.clone());
        if self.logged.as_ref() == Some(&verdict) {
            return;
        }
        match &verdict {
            Verdict::Passed(detail) => tracing::info!("rights: {detail}"),
            Verdict::Failed(reason) => tracing::error!("rights are missing: {reason}"),
        }
        self.logged = Some(verdict);
    }

    fn missing(&self) -> impl Iterator<Item = &Right> {
        self.rights
            .iter()
            .filter(|(_, answer)| *answer == PermissionState::Denied)
            .map(|(right, _)| right)
    }
}

metrics! {
    pub(crate) struct RightsMetrics {
        /// Rights that the program needs and the API server does not grant; /readyz?verbose names them
        [ALPHA] ccm_missing_rights => missing: Gauge;
    }
}

/// Returns true if a retry is pointless. Every authenticated client may request a review unless the
/// cluster's administrator has revoked that right.
fn is_final(error: &ApiError) -> bool {
    matches!(error, ApiError::Forbidden(_) | ApiError::NotFound | ApiError::Invalid(_))
}

fn question(right: &Right) -> SelfSubjectAccessReview {
    let text = |part: &str| (!part.is_empty()).then(|| part.to_owned());
    let attributes = ResourceAttributes {
        group: text(&right.group),
        name: text(&right.name),
        namespace: text(&right.namespace),
        resource: text(&right.resource),
        subresource: text(right.subresource),
        verb: text(right.verb),
        ..ResourceAttributes::default()
    };
    let spec = SelfSubjectAccessReviewSpec {
        resource_attributes: Some(attributes),
        ..SelfSubjectAccessReviewSpec::default()
    };
    SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() }
}
