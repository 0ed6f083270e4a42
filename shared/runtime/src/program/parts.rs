//! The parts that live as long as the process, around the program's own work.

use std::sync::Arc;

use ccm_base::message::chain;
use ccm_kube::{
    client::{ClientConfig, Clients, RequestLimiter, ServerClock},
    events::{EventMetrics, EventRecorder},
    metrics::RestMetrics,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tower::layer::layer_fn;

use super::{Failure, Loaded, Program, reload::Reload};
use crate::{
    cloud_gate::CloudGate,
    explain::Explanations,
    health::{Condition, Health, Scope, Verdict},
    http::{PageSettings, Pages, Scrapes, Server},
    leadership::{Elector, Eligibility, Leadership, LeadershipMetrics, guard::LeaseGuard},
    limits::Limits,
    logging::LogControl,
    metrics::Metrics,
    plans::{Mode, Plans},
    records::Records,
    settings::CommonSettings,
    supervisor::Supervisor,
};

/// The message of an observer.
pub(super) const OBSERVES: &str =
    "observe mode: no Lease and no writes; /plan shows the planned changes";

/// The parts that live as long as the process.
pub(super) struct Parts<P: Program> {
    /// The runtime's own tasks: pages, settings, rights. Failures of all tasks appear here.
    pub(super) tasks: Supervisor,
    /// The program's tasks, which stop first.
    pub(super) work: Supervisor,
    /// The election, which stops after the work.
    pub(super) election: Supervisor,
    /// The event writer, which stops after the tasks that record events.
    pub(super) events_task: Supervisor,
    pub(super) events: EventRecorder,
    pub(super) plans: Plans,
    pub(super) explanations: Explanations,
    pub(super) records: Records,
    pub(super) health: Health,
    pub(super) metrics: Metrics,
    pub(super) clients: Clients,
    pub(super) gate: CloudGate,
    pub(super) leadership: Leadership,
    pub(super) eligibility: Eligibility,
    pub(super) startup: Condition,
    pub(super) common: watch::Receiver<Arc<CommonSettings>>,
    pub(super) own: watch::Receiver<Arc<P::Settings>>,
}

impl<P: Program> Parts<P> {
    /// Builds everything that needs no response from a server, and starts the admin pages. The
    /// candidate that it returns has not started yet. Without election it returns `None` instead.
    pub(super) async fn start(
        loaded: Loaded<P>,
        log: LogControl,
    ) -> Result<(Self, Option<Elector>), Failure> {
        let (health, metrics) = (Health::default(), Metrics::for_program(P::IDENTITY.binary));
        let startup = health.condition("startup", Scope::Readiness, "starting");
        let reload = Reload::new(loaded, &health, &metrics);
        let (common, own) = (reload.common(), reload.own());
        let settings = Arc::clone(&common.borrow());
        let tasks = Supervisor::new(CancellationToken::new());
        let (events_task, eligibility) = (tasks.sibling(), Eligibility::default());

        let limits = Limits::new(settings.rates(), &metrics);
        let rest = Arc::new(RestMetrics::new(&metrics));
        let config = client_config::<P>(&settings, Arc::new(limits.clone()), rest);
        // Only the kubeconfig can fail here; this makes no request.
        let clients =
            Clients::connect(config).await.map_err(|error| Failure::Usage(chain(&error)))?;
        // Errors of connections do not name the server.
        tracing::info!(server = clients.server, from = clients.origin, "the API server");
        let events = record_events::<P>(&settings, &clients, &metrics, &events_task);
        let elector = elector::<P>(&settings, &clients, &events, &eligibility, &metrics);
        let leadership = match &elector {
            Some(elector) => elector.leadership().clone(),
            None if settings.mode == Mode::Observe => Leadership::observer(),
            None => Leadership::unconditional(),
        };
        let gate = gate(&limits, &leadership, &health, &metrics);
        let (plans, records) = (Plans::new(settings.mode, &metrics), Records::new(&metrics));
        let explanations = Explanations::new(plans.clone());
        show(&health, &plans, &clients.clock, &tasks);

        if let Some(pages) = &settings.pages {
            let content = Pages {
                health: health.clone(),
                scrapes: Scrapes::new(metrics.clone()),
                configz: reload.page(),
                plans: plans.clone(),
                explanations: explanations.clone(),
                records: records.clone(),
                open: pages.open.clone(),
            };
            serve(pages, content, &tasks)?;
        }
        tasks.spawn("settings", apply(common.clone(), limits, log, tasks.token().clone()));
        tasks.spawn("config-file", reload.run(tasks.token().clone()));
        let parts = Self {
            work: tasks.sibling(),
            election: tasks.sibling(),
            tasks,
            events_task,
            events,
            plans,
            explanations,
            records,
            health,
            metrics,
            clients,
            gate,
            leadership,
            eligibility,
            startup,
            common,
            own,
        };
        Ok((parts, elector))
    }
}

/// Serves the pages.
fn serve(pages: &PageSettings, content: Pages, tasks: &Supervisor) -> Result<(), Failure> {
    let server = Server::bind(pages, content).map_err(|e| Failure::Broken(chain(&e)))?;
    tasks.spawn("pages", server.run(tasks.token().clone()));
    Ok(())
}

/// Adds the checks that do not depend on the program.
fn show(health: &Health, plans: &Plans, clock: &ServerClock, tasks: &Supervisor) {
    let (seen, token) = (health.clone(), tasks.token().clone());
    tasks.spawn("health", async move {
        token.run_until_cancelled(seen.follow()).await;
    });
    let (shown, clock) = (plans.clone(), clock.clone());
    health.add("waiting", Scope::Information, move || shown.waiting());
    health.add("clock", Scope::Information, move || match clock.verdict() {
        Ok(text) => Verdict::Passed(text),
        Err(text) => Verdict::Failed(text),
    });
    if plans.is_observing() {
        health.condition("mode", Scope::Information, "").pass(OBSERVES);
    }
}

/// Returns the candidate. Returns `None` without election, and for a process that only observes.
fn elector<P: Program>(
    settings: &CommonSettings,
    clients: &Clients,
    events: &EventRecorder,
    eligibility: &Eligibility,
    metrics: &Metrics,
) -> Option<Elector> {
    if settings.mode == Mode::Observe || !settings.election.enabled {
        return None;
    }
    let own = LeadershipMetrics::new(&settings.election.lease);
    metrics.with(|registry| own.register(registry));
    let guarded = |guard: LeaseGuard| clients.lease_client(layer_fn(|stack| guard.layer(stack)));
    let config = settings.election.clone();
    let (program, watcher) = (P::IDENTITY.binary, clients.watch.clone());
    let elector = Elector::new(program, config, guarded, watcher, own, events.clone());
    Some(elector.while_eligible(eligibility.clone()))
}

/// Returns the gate to the cloud, which lets writes pass only while this process leads, and adds
/// its check.
fn gate(limits: &Limits, leadership: &Leadership, health: &Health, metrics: &Metrics) -> CloudGate {
    let leadership = leadership.clone();
    let guard = move || match leadership.check_cloud_write() {
        Ok(term) => Ok(term.number),
        Err(lost) => Err(chain(&lost)),
    };
    let gate = CloudGate::new(limits.clone(), metrics, Some(Box::new(guard)));
    let shown = gate.clone();
    health.add("cloud", Scope::Information, move || shown.verdict());
    let shown = gate.clone();
    health.add("cloud-items", Scope::Information, move || shown.items_verdict());
    gate
}

/// Returns the event recorder, with its writer unless this process only observes.
fn record_events<P: Program>(
    settings: &CommonSettings,
    clients: &Clients,
    metrics: &Metrics,
    tasks: &Supervisor,
) -> EventRecorder {
    let own = EventMetrics::new(metrics);
    if settings.mode == Mode::Observe {
        return EventRecorder::muted(own);
    }
    let (client, component) = (clients.events.clone(), P::IDENTITY.event_component);
    let (events, writer) = EventRecorder::new(client, component, own);
    tasks.spawn("events", writer.run(tasks.token().clone()));
    events
}

/// Returns the configuration of the API server clients.
pub(super) fn client_config<P: Program>(
    settings: &CommonSettings,
    limiter: Arc<dyn RequestLimiter>,
    metrics: Arc<RestMetrics>,
) -> ClientConfig {
    ClientConfig {
        kubeconfig: settings.kube.kubeconfig.clone(),
        master: settings.kube.master.clone(),
        credentials_over_http: settings.kube.credentials_over_http,
        user_agent: P::IDENTITY.user_agent(),
        request_timeout: settings.kube.timeout,
        limiter,
        metrics,
    }
}

/// Applies live settings as they change.
async fn apply(
    mut common: watch::Receiver<Arc<CommonSettings>>,
    limits: Limits,
    log: LogControl,
    token: CancellationToken,
) {
    while let Some(Ok(())) = token.run_until_cancelled(common.changed()).await {
        let settings = Arc::clone(&common.borrow_and_update());
        limits.configure(settings.rates());
        log.apply(&settings.logging);
    }
    token.cancelled().await;
}
