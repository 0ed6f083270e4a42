//! The life of a process: start, work as the leader or as an observer, orderly end.

use std::{future::pending, sync::Arc, time::Duration};

use ccm_base::message::chain;
use ccm_cloud::{Cloud, ProviderContext, ProviderRegistry};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::{
    Context, Failure, Loaded, Program, in_clear,
    outdated::outdated,
    own_thread::on_own_thread,
    parts::{OBSERVES, Parts},
    provider::{self, Uncalled, provider_context},
};
use crate::{
    health::{Scope, Verdict},
    leadership::Elector,
    logging::LogControl,
    own_policy::OwnPolicy,
    plans::Mode,
    programs,
    rights::{self, Review},
    rivals::Survey,
    same_cloud::{SameCloud, Where},
    settings::CommonSettings,
};

/// Minimum time for tasks to notice the cancellation, after the deadline.
const MIN_STOP_TIME: Duration = Duration::from_secs(1);
/// Time for tasks to stop when the process ends because of an error.
const FAILURE_STOP_TIME: Duration = Duration::from_millis(2500);
/// Time for releasing the Lease, and for the event writer to flush its queue: a little above their
/// own limits. The Lease expires on its own if it is not released.
const RELEASE: Duration = Duration::from_secs(6);
const FLUSH: Duration = Duration::from_secs(3);

/// Runs a program until `stop` is cancelled or an error ends it, which is logged. `main` adds
/// the command line, the logger and the signals.
pub async fn run<P: Program>(
    loaded: Loaded<P>,
    providers: &ProviderRegistry,
    log: LogControl,
    stop: CancellationToken,
) -> Result<(), Failure> {
    let Some(started) = stop.run_until_cancelled(Parts::<P>::start(loaded, log)).await else {
        return Ok(());
    };
    let (parts, elector) = started.inspect_err(log_failure)?;
    let mut leading = None;
    let outcome = tokio::select! {
        biased;
        failure = parts.tasks.failed() => Err(Failure::Broken(failure)),
        () = stop.cancelled() => Ok(()),
        ended = parts.live(providers, elector, &mut leading) => ended,
        () = parts.clients_outdated() => Ok(()),
    };
    // The error is logged first, because the orderly shutdown takes time and may be killed.
    let outcome = outcome.inspect_err(log_failure);
    parts.end(outcome.is_ok(), leading).await;
    outcome
}

/// Returns the reason if the program does nothing with these settings, on any cloud.
pub(super) fn idle<P: Program>(common: &CommonSettings, own: &P::Settings) -> Option<String> {
    let names = || programs::controllers_of(&P::IDENTITY).map(|controller| controller.name);
    let disabled =
        || format!("--controllers disables {}", names().collect::<Vec<_>>().join(" and "));
    let why = (!common.enabled).then(disabled).or_else(|| P::idle(own));
    why.map(|why| format!("idle: {why}"))
}

fn log_failure(failure: &Failure) {
    tracing::error!("fatal: {}", chain(failure));
}

impl<P: Program> Parts<P> {
    /// Runs from building the provider to the end of leadership. Returns only when leadership is
    /// lost or an error occurs. Sets `leading` once the program leads or observes.
    async fn live(
        &self,
        providers: &ProviderRegistry,
        elector: Option<Elector>,
        leading: &mut Option<Arc<P>>,
    ) -> Result<(), Failure> {
        let idle = idle::<P>(&self.common.borrow(), &self.own.borrow());
        if let Some(idle) = idle {
            tracing::info!("{idle}");
            self.startup.pass(idle);
            pending::<()>().await;
        }
        self.review_rights();
        let cloud = self.cloud(providers).await?;
        let provider = Arc::clone(&cloud);
        let (changed, leads) = (|| provider.outdated(), || self.leadership.is_leader());
        tokio::select! {
            ended = self.work(cloud, elector, leading) => ended,
            () = outdated("cloud configuration", changed, leads) => Ok(()),
        }
    }

    /// Waits until the process must end because the files behind the API server's clients have
    /// changed.
    async fn clients_outdated(&self) {
        let clients = &self.clients;
        let changed = || async {
            clients.outdated().await;
            clients.origin.clone()
        };
        outdated("kubeconfig", changed, || self.leadership.is_leader()).await;
    }

    /// Runs from the provider to the end of leadership.
    async fn work(
        &self,
        cloud: Arc<dyn Cloud>,
        elector: Option<Elector>,
        leading: &mut Option<Arc<P>>,
    ) -> Result<(), Failure> {
        let needs = P::needs(&self.own.borrow());
        let (shown, of) = (Arc::clone(&cloud), needs.clone());
        self.health.add("provider-settings", Scope::Information, move || {
            provider::shortfalls(&*shown, &of)
        });
        let (shown, asked) = (Arc::clone(&cloud), Arc::clone(&cloud));
        self.health.add("encryption", Scope::Information, move || in_clear::verdict(&*shown));
        in_clear::collect(&self.metrics, move || asked.in_clear().is_some());
        provider::wait_capable(cloud.as_ref(), &needs, &self.startup).await;
        self.startup.fail("preparing");
        let place = Where::new(&self.common.borrow());
        let same_cloud = SameCloud::new(cloud, &self.leadership, &place);
        let watch = same_cloud.watch(&self.events, &place);
        let asked = same_cloud.clone();
        self.explanations.refused_by(move || asked.refusal());
        let mut rivals = self.rivals();
        let context = self.context(same_cloud);
        let program = Arc::new(P::prepare(&context).await?);
        self.startup.pass("prepared");
        let elects = elector.is_some();
        self.plans.stand_by(elects);
        rivals.wait_alone().await;
        if let Some(elector) = elector {
            self.start_election(elector);
        }
        self.leadership.wait_leading().await;
        if let Some(why) = rivals.yields().await {
            return Err(Failure::Broken(format!("does not lead: {why}")));
        }
        self.plans.stand_by(false);
        match self.plans.mode() {
            Mode::Control => self.metrics.set_running(P::IDENTITY.alias, true),
            Mode::Observe => tracing::info!("{OBSERVES}"),
        }
        *leading = Some(Arc::clone(&program));
        // Upstream names this check after the controller.
        let work = self.work.clone();
        self.health.add(P::IDENTITY.controller, Scope::Liveness, move || {
            Verdict::Passed(format!("{} tasks", work.running().len()))
        });
        if !needs.is_empty() {
            let shown = watch.run(&self.health, &self.metrics, self.tasks.token().clone());
            self.tasks.spawn("cloud-identity", shown);
        }
        program.lead(&context);
        let why = tokio::select! {
            () = self.leadership.lost() => "leaderelection lost".to_owned(),
            failed = self.eligibility.lost(), if elects => {
                format!("is releasing the lease: {failed}")
            }
            why = rivals.run() => format!("stops leading: {why}"),
        };
        Err(Failure::Broken(why))
    }

    /// Returns the survey of other cloud controllers.
    fn rivals(&self) -> Survey {
        let common = self.common.borrow();
        let (client, parts) = (self.clients.main.clone(), (&self.health, &self.metrics));
        let clock = self.clients.clock.clone();
        Survey::new(
            &P::IDENTITY,
            (&common.election, common.mode),
            client,
            &self.events,
            parts,
            Box::new(move || clock.verdict().err()),
        )
    }

    /// Reviews the program's permissions, and what its admission policy refuses, in the background.
    fn review_rights(&self) {
        let needed = match self.plans.mode() {
            Mode::Control => rights::needed(P::rights(), &self.common.borrow().election),
            Mode::Observe => rights::reads(P::rights()),
        };
        let client = self.clients.main.clone();
        let review = Review::new(P::IDENTITY.binary, needed, client, &self.health, &self.metrics);
        self.tasks.spawn_job("rights", review.run(self.tasks.token().clone()));
        if self.plans.mode() == Mode::Control {
            let (program, token) = (P::IDENTITY.binary, self.tasks.token().clone());
            let policy = OwnPolicy::new(program, &self.clients, &self.health, &self.metrics);
            self.tasks.spawn("admission-policy", policy.run(token));
        }
    }

    /// Returns the cloud. Nothing has been asked of it yet.
    async fn cloud(&self, providers: &ProviderRegistry) -> Result<Arc<dyn Cloud>, Failure> {
        let settings = Arc::clone(&self.common.borrow());
        let factory = providers
            .get(&settings.cloud.provider)
            .map_err(|error| Failure::Usage(error.to_string()))?;
        let needs = P::needs(&self.own.borrow());
        if needs.is_empty() {
            return Ok(Arc::new(Uncalled));
        }
        let context = ProviderContext {
            gate: Arc::new(self.gate.clone()),
            metrics: Arc::new(self.metrics.clone()),
            ..provider_context::<P>(&settings)
        };
        provider::build(factory.as_ref(), &context, &self.startup).await
    }

    fn context(&self, same_cloud: SameCloud) -> Context<P> {
        Context {
            clients: self.clients.clone(),
            cloud: same_cloud.guarded(),
            same_cloud,
            leadership: self.leadership.clone(),
            eligibility: self.eligibility.clone(),
            events: self.events.clone(),
            plans: self.plans.clone(),
            explanations: self.explanations.clone(),
            records: self.records.clone(),
            settings: self.own.clone(),
            common: self.common.clone(),
            metrics: self.metrics.clone(),
            supervisor: self.work.clone(),
            health: self.health.clone(),
            token: self.work.token().clone(),
        }
    }

    /// Starts the election and adds its checks: upstream's, which fails for a process that still
    /// leads after its term expired, and one that fails while another program holds the Lease.
    fn start_election(&self, elector: Elector) {
        let (leadership, lease) =
            (self.leadership.clone(), self.common.borrow().election.lease.clone());
        let (me, rival) = (elector.identity().to_owned(), elector.rival());
        let eligibility = self.eligibility.clone();
        self.health.add("leaderElection", Scope::Liveness, move || {
            if leadership.is_overdue() {
                let why = format!("failed election to renew leadership on lease {lease}");
                return Verdict::Failed(why);
            }
            Verdict::Passed(match leadership.remaining().as_secs() {
                _ if !leadership.is_leader() => {
                    let stands = match eligibility.obstacle() {
                        Some(obstacle) => format!("not a candidate for lease {lease}: {obstacle}"),
                        None => format!("standing by for lease {lease} as {me}"),
                    };
                    match rival() {
                        rival if rival.is_empty() => stands,
                        rival => format!("{stands}; {rival}"),
                    }
                }
                left => {
                    format!(
                        "leads with lease {lease} as {me}, term ends in {left} s unless renewed"
                    )
                }
            })
        });
        let shared = elector.shared();
        self.health.add("lease", Scope::Readiness, move || match shared() {
            Some(problem) => Verdict::Failed(problem),
            None => Verdict::Passed("no other program holds it".to_owned()),
        });
        let release = self.election.token().clone();
        // The candidate has its own thread, so that work that keeps all threads busy does not cost
        // the Lease.
        self.election.spawn_job(
            "election",
            on_own_thread("election", async move {
                elector.run(release).await;
            }),
        );
    }

    /// Shuts down in order: not ready, drain, stop the tasks, release the Lease, flush the events,
    /// close the pages. Without `drain`, because of an error, the work is abandoned.
    async fn end(self, drain: bool, leading: Option<Arc<P>>) {
        self.startup.fail("ending");
        let time = if drain { self.common.borrow().drain_timeout } else { FAILURE_STOP_TIME };
        let deadline = Instant::now() + time;
        if drain
            && self.leadership.is_leader()
            && let Some(program) = &leading
        {
            tracing::info!("draining");
            tokio::select! {
                drained = timeout_at(deadline, program.drain()) => if drained.is_err() {
                    tracing::warn!("running work did not finish within --drain-timeout");
                },
                () = self.leadership.lost() => tracing::warn!("leadership lost while draining"),
            }
        }
        if leading.is_some() && self.plans.mode() == Mode::Control {
            self.metrics.set_running(P::IDENTITY.alias, false);
        }
        self.work.token().cancel();
        // The deadline does not limit this, because a sent write cannot be cancelled.
        self.gate.end_writes().await;
        let left = deadline.saturating_duration_since(Instant::now()).max(MIN_STOP_TIME);
        match self.work.wait_all(left).await {
            Ok(()) => self.election.stop(RELEASE).await,
            // While a write may still be in flight, the Lease must not be released early; it
            // expires on its own.
            Err(late) => tracing::warn!("tasks did not end: {late}"),
        }
        self.events_task.stop(FLUSH).await;
        self.tasks.stop(FLUSH).await;
    }
}
