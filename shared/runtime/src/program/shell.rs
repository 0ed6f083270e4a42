//! The parts that live as long as the process, around the program's own work.

use std::{sync::Arc, time::Duration};

use ccm_base::message::chain;
use ccm_cloud::{Cloud, ProviderContext, ProviderRegistry};
use ccm_kube::{
    client::{ClientConfig, Clients, RequestLimiter},
    events::{EventMetrics, EventRecorder},
    metrics::RestMetrics,
};
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout_at},
};
use tokio_util::sync::CancellationToken;

use super::{
    Context, Failure, Loaded, Program,
    election::Candidacy,
    provider::{self, provider_context},
    reload::Reload,
};
use crate::{
    cloud_gate::CloudGate,
    health::{Condition, Health, Scope, Verdict},
    http::{Pages, Server},
    limits::{ApiLimits, ApiRates, CloudLimits, CloudRates, LimitMetrics, Rate},
    logging::LogControl,
    metrics::{Metrics, RunningController},
    plans::{Mode, Plans},
    rights::{self, Review},
    settings::{CommonSettings, RateSettings},
    supervisor::Supervisor,
};

/// Interval for checking again whether a provider has gained a missing capability.
const LOOK_AGAIN: Duration = Duration::from_mins(1);
/// Minimum time for tasks to notice the cancellation, after the deadline.
const NOTICE: Duration = Duration::from_secs(1);
/// Time for tasks to stop when the process ends because of an error.
const ABANDON: Duration = Duration::from_millis(2500);
/// Time for the event writer to flush its queue, a little above its own limit.
const FLUSH: Duration = Duration::from_secs(3);

/// The message of an observer.
const OBSERVES: &str = "observes: takes no Lease and writes nothing; /plan shows what it would do";

/// A program that leads or observes.
pub(super) struct Leading<P> {
    program: Arc<P>,
    /// `None` for an observer: it runs, but manages nothing.
    _running: Option<RunningController>,
}

/// The parts that live as long as the process.
pub(super) struct Shell<P: Program> {
    /// The runtime's own tasks: pages, settings, election.
    tasks: Supervisor,
    /// The program's tasks, which stop first.
    work: Supervisor,
    /// The event writer, which stops after the tasks that record events.
    events_task: Supervisor,
    events: EventRecorder,
    plans: Plans,
    health: Health,
    metrics: Metrics,
    clients: Clients,
    gate: CloudGate,
    candidacy: Candidacy,
    startup: Condition,
    common: watch::Receiver<Arc<CommonSettings>>,
    own: watch::Receiver<Arc<P::Settings>>,
}

impl<P: Program> Shell<P> {
    /// Builds everything that needs no response from a server, and starts the admin pages. Does
    /// not start the election.
    pub(super) async fn start(loaded: Loaded<P>, log: LogControl) -> Result<Self, Failure> {
        let (health, metrics) = (Health::new(), Metrics::of(P::IDENTITY.binary));
        let startup = health.condition("startup", Scope::Readiness, "starting");
        let reload = Reload::new(loaded, &health, &metrics);
        let (common, own) = (reload.common(), reload.own());
        let settings = Arc::clone(&common.borrow());

        let limit_metrics = LimitMetrics::new(&metrics);
        let api_limits = ApiLimits::new(api_rates(&settings), &limit_metrics);
        let cloud_limits = CloudLimits::new(cloud_rates(&settings), &limit_metrics);
        let clients = connect::<P>(&settings, &api_limits, &metrics).await?;
        let supervisor = || Supervisor::new(CancellationToken::new());
        let (tasks, events_task) = (supervisor(), supervisor());
        let events = record_events::<P>(&settings, &clients, &metrics, &events_task);
        let candidacy = Candidacy::new(&settings, &clients, &events, &metrics);
        let leadership = candidacy.leadership().clone();
        let guard = move || {
            leadership.check_cloud_write().map(|term| term.number).map_err(|lost| chain(&lost))
        };
        let gate = CloudGate::new(cloud_limits.clone(), &metrics, Some(Box::new(guard)));
        show_cloud(&health, &gate);
        let plans = Plans::new(settings.mode, &metrics);
        if settings.mode == Mode::Observe {
            health.condition("mode", Scope::Information, "").pass(OBSERVES);
        }

        if let Some(pages) = &settings.pages {
            let content = Pages {
                health: health.clone(),
                metrics: metrics.clone(),
                configz: reload.page(),
                plans: plans.clone(),
                open: pages.open.clone(),
            };
            let server =
                Server::bind(pages, content).await.map_err(|e| Failure::Broken(chain(&e)))?;
            tasks.spawn("pages", server.run(tasks.token().clone()));
        }
        tasks.spawn(
            "settings",
            apply(common.clone(), api_limits, cloud_limits, log, tasks.token().clone()),
        );
        tasks.spawn("config-file", reload.run(tasks.token().clone()));
        let work = supervisor();
        let shell = Self {
            tasks,
            work,
            events_task,
            events,
            plans,
            health,
            metrics,
            clients,
            gate,
            candidacy,
            startup,
            common,
            own,
        };
        Ok(shell)
    }

    /// Runs `life` until `stop` is cancelled or a task fails.
    pub(super) async fn watch(
        &self,
        stop: &CancellationToken,
        life: impl Future<Output = Result<(), Failure>>,
    ) -> Result<(), Failure> {
        tokio::select! {
            biased;
            failure = self.tasks.failed() => Err(Failure::Broken(failure.to_string())),
            failure = self.work.failed() => Err(Failure::Broken(failure.to_string())),
            failure = self.events_task.failed() => Err(Failure::Broken(failure.to_string())),
            () = stop.cancelled() => Ok(()),
            ended = life => ended,
        }
    }

    /// From building the provider to the end of leadership. Returns only when leadership is lost
    /// or an error occurs.
    pub(super) async fn live(
        &self,
        providers: &ProviderRegistry,
        leading: &mut Option<Leading<P>>,
    ) -> Result<(), Failure> {
        if !self.common.borrow().enabled {
            let idle = format!("--controllers switches {} off", P::IDENTITY.controller);
            tracing::info!("idle: {idle}");
            self.startup.pass(format!("idle: {idle}"));
            std::future::pending::<()>().await;
        }
        self.review_rights();
        let cloud = self.cloud(providers).await?;
        self.startup.fail("preparing");
        let context = self.context(cloud);
        let program = Arc::new(P::prepare(context.clone()).await?);
        self.startup.pass("prepared");
        self.candidacy.start(&self.tasks, &self.health);
        self.candidacy.won().await;
        let running = match self.plans.mode() {
            Mode::Control => Some(self.metrics.running(P::IDENTITY.alias)),
            Mode::Observe => {
                tracing::info!("{OBSERVES}");
                None
            }
        };
        *leading = Some(Leading { program: Arc::clone(&program), _running: running });
        self.show_work();
        program.lead(context);
        self.candidacy.lost().await;
        Err(Failure::Broken("leaderelection lost".to_owned()))
    }

    /// Reviews the program's permissions in the background.
    fn review_rights(&self) {
        let needed = match self.plans.mode() {
            Mode::Control => rights::needed(P::rights(), &self.common.borrow().election),
            Mode::Observe => rights::reads(P::rights()),
        };
        let client = self.clients.main.clone();
        let review = Review::new(P::IDENTITY.binary, needed, client, &self.health, &self.metrics);
        self.tasks.spawn_job("rights", review.run(self.tasks.token().clone()));
    }

    /// The cloud, once it has the capabilities that the program needs.
    async fn cloud(&self, providers: &ProviderRegistry) -> Result<Arc<dyn Cloud>, Failure> {
        let settings = Arc::clone(&self.common.borrow());
        let factory = providers
            .get(&settings.cloud.provider)
            .map_err(|error| Failure::Usage(error.to_string()))?;
        let context = ProviderContext {
            gate: Arc::new(self.gate.clone()),
            metrics: Arc::new(self.metrics.clone()),
            ..provider_context::<P>(&settings)
        };
        let cloud = provider::build(factory.as_ref(), &context, &self.startup).await?;
        let needs = P::needs(&self.own.borrow());
        let mut said = String::new();
        while let Some(missing) = provider::missing(cloud.as_ref(), &needs, &self.startup).await {
            let idle = format!("the cloud provider {} does not offer {missing}", cloud.name());
            // Set each time, because a failed probe replaces the message.
            self.startup.pass(format!("idle: {idle}"));
            if idle != said {
                tracing::info!("idle: {idle}");
                said = idle;
            }
            sleep(LOOK_AGAIN).await;
        }
        Ok(cloud)
    }

    fn context(&self, cloud: Arc<dyn Cloud>) -> Context<P> {
        Context {
            clients: self.clients.clone(),
            cloud,
            leadership: self.candidacy.leadership().clone(),
            events: self.events.clone(),
            plans: self.plans.clone(),
            settings: self.own.clone(),
            common: self.common.clone(),
            metrics: self.metrics.clone(),
            supervisor: self.work.clone(),
            health: self.health.clone(),
            token: self.work.token().clone(),
        }
    }

    /// The health check that upstream names after the controller.
    fn show_work(&self) {
        let work = self.work.clone();
        self.health.add(P::IDENTITY.controller, Scope::Liveness, move || {
            Verdict::Passed(format!("{} tasks", work.running().len()))
        });
    }

    /// Orderly shutdown: not ready, drain, stop the tasks, release the Lease, flush the events,
    /// close the pages.
    pub(super) async fn end(
        self,
        outcome: Result<(), Failure>,
        leading: Option<Leading<P>>,
    ) -> Result<(), Failure> {
        self.startup.fail("ending");
        let time = if outcome.is_ok() { self.common.borrow().drain_timeout } else { ABANDON };
        let ended = self.end_work(outcome.is_ok(), leading, Instant::now() + time).await;
        // While a write may still be in flight, the Lease must not be released early; it expires
        // by itself.
        if ended {
            self.candidacy.release().await;
        }
        for (group, time) in [(&self.events_task, FLUSH), (&self.tasks, FLUSH)] {
            group.token().cancel();
            if let Err(late) = group.wait_all(time).await {
                tracing::warn!("not waited for: {late}");
            }
        }
        outcome
    }

    /// Stops the program's tasks. Returns whether all of them have ended.
    async fn end_work(&self, drain: bool, leading: Option<Leading<P>>, deadline: Instant) -> bool {
        if let Some(leading) = leading.filter(|_| drain && self.candidacy.leadership().is_leader())
        {
            tracing::info!("draining");
            tokio::select! {
                drained = timeout_at(deadline, leading.program.drain()) => if drained.is_err() {
                    tracing::warn!("work was not drained within --drain-timeout");
                },
                () = self.candidacy.lost() => tracing::warn!("leadership lost while draining"),
            }
        }
        self.work.token().cancel();
        // Not limited by the deadline: a sent write cannot be cancelled.
        self.gate.end_writes().await;
        let left = deadline.saturating_duration_since(Instant::now()).max(NOTICE);
        match self.work.wait_all(left).await {
            Ok(()) => true,
            Err(late) => {
                tracing::warn!("work did not end: {late}");
                false
            }
        }
    }
}

/// The event recorder, with its writer unless this process only observes.
fn record_events<P: Program>(
    settings: &CommonSettings,
    clients: &Clients,
    metrics: &Metrics,
    tasks: &Supervisor,
) -> EventRecorder {
    let own = EventMetrics::default();
    metrics.with(|registry| own.register(registry));
    if settings.mode == Mode::Observe {
        return EventRecorder::muted(own);
    }
    let (client, component) = (clients.events.clone(), P::IDENTITY.event_component);
    let (events, writer) = EventRecorder::new(client, component, own);
    tasks.spawn("events", writer.run(tasks.token().clone()));
    events
}

async fn connect<P: Program>(
    settings: &CommonSettings,
    limits: &ApiLimits,
    metrics: &Metrics,
) -> Result<Clients, Failure> {
    let rest = Arc::new(RestMetrics::default());
    metrics.with(|registry| rest.register(registry));
    let config = client_config::<P>(settings, Arc::new(limits.clone()), rest);
    // Only the kubeconfig can fail here; this makes no request.
    Clients::connect(config).await.map_err(|error| Failure::Usage(chain(&error)))
}

/// The configuration of the API server clients.
pub(super) fn client_config<P: Program>(
    settings: &CommonSettings,
    limiter: Arc<dyn RequestLimiter>,
    metrics: Arc<RestMetrics>,
) -> ClientConfig {
    ClientConfig {
        kubeconfig: settings.kube.kubeconfig.clone(),
        master: settings.kube.master.clone(),
        user_agent: P::IDENTITY.user_agent(),
        request_timeout: settings.kube.timeout,
        limiter,
        metrics,
    }
}

/// The last results of each cloud service, for `/readyz?verbose`.
fn show_cloud(health: &Health, gate: &CloudGate) {
    let gate = gate.clone();
    health.add("cloud", Scope::Information, move || {
        let services = gate.services();
        let failing = |(_, state): &(_, crate::cloud_gate::ServiceState)| match (
            state.last_success,
            state.last_failure,
        ) {
            (success, Some((failure, _))) => success.is_none_or(|success| success < failure),
            (_, None) => false,
        };
        let bad = services.iter().any(failing);
        let lines: Vec<String> = services
            .into_iter()
            .map(|(name, state)| {
                let ago = |then: Instant| format!("{} s ago", then.elapsed().as_secs());
                let success = state.last_success.map_or("never".to_owned(), ago);
                let failure = state
                    .last_failure
                    .map(|(then, kind)| format!(", last failure {}: {kind}", ago(then)));
                format!("{name} last success {success}{}", failure.unwrap_or_default())
            })
            .collect();
        let text = if lines.is_empty() { "not called yet".to_owned() } else { lines.join("; ") };
        if bad { Verdict::Failed(text) } else { Verdict::Passed(text) }
    });
}

/// Applies live settings as they change.
async fn apply(
    mut common: watch::Receiver<Arc<CommonSettings>>,
    api: ApiLimits,
    cloud: CloudLimits,
    log: LogControl,
    token: CancellationToken,
) {
    while let Some(Ok(())) = token.run_until_cancelled(common.changed()).await {
        let settings = Arc::clone(&common.borrow_and_update());
        api.configure(api_rates(&settings));
        cloud.configure(cloud_rates(&settings));
        if let Err(error) = log.apply(&settings.logging) {
            tracing::error!("the log levels stay as they are: {}", chain(&error));
        }
    }
    token.cancelled().await;
}

impl From<RateSettings> for Rate {
    fn from(settings: RateSettings) -> Self {
        let burst = f64::from(settings.burst);
        settings.per_second.map_or(Self::UNLIMITED, |per_second| Self::new(per_second, burst))
    }
}

fn api_rates(settings: &CommonSettings) -> ApiRates {
    let requests = Rate::from(settings.kube.requests);
    ApiRates { read: requests, write: requests, event: settings.kube.events.into() }
}

fn cloud_rates(settings: &CommonSettings) -> CloudRates {
    CloudRates { read: settings.cloud.reads.into(), write: settings.cloud.writes.into() }
}
