//! A controller in the test's own process, so that the test can pause the time.

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use ccm_cloud::Cloud;
use ccm_kube::{
    client::{ClientConfig, Clients, Unlimited},
    events::{EventMetrics, EventRecorder},
    metrics::RestMetrics,
};
use ccm_runtime::{
    health::Health,
    leadership::{Eligibility, Leadership},
    metrics::Metrics,
    plans::{Mode, Plans},
    program::{Context, Loaded, Program, load},
    supervisor::Supervisor,
};
use ccm_settings::Invocation;
use ccm_sim::apiserver::ApiServer;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

/// The environment of a controller with a simulated API server. When it is dropped, the
/// controller ends without an order.
pub struct InProcess<P: Program> {
    /// What the controller gets.
    pub context: Context<P>,
    /// Its settings; those that are sent here come into force as those of a new file do.
    pub settings: watch::Sender<Arc<P::Settings>>,
    _end: DropGuard,
}

impl<P: Program> InProcess<P> {
    /// With these arguments on the command line: leads at once, or observes if they say so.
    pub fn new(api: &ApiServer, cloud: Arc<dyn Cloud>, arguments: &[&str]) -> Result<Self> {
        let arguments = ["--cloud-provider=sim"].iter().chain(arguments);
        let settings = load::<P>(&Invocation::with_arguments(arguments.copied()))?;
        let leadership = match settings.common.mode {
            Mode::Control => Leadership::unconditional(),
            Mode::Observe => Leadership::observer(),
        };
        Self::with(api, cloud, &settings, leadership)
    }

    /// With these settings and this leadership.
    pub fn with(
        api: &ApiServer,
        cloud: Arc<dyn Cloud>,
        settings: &Loaded<P>,
        leadership: Leadership,
    ) -> Result<Self> {
        let config = ClientConfig {
            kubeconfig: None,
            master: None,
            user_agent: format!("{}/test", P::IDENTITY.binary),
            request_timeout: Duration::from_secs(5),
            limiter: Arc::new(Unlimited),
            metrics: Arc::new(RestMetrics::default()),
        };
        let clients = Clients::in_process(api.service(), &config)?;
        let (metrics, token, mode) =
            (Metrics::new(), CancellationToken::new(), settings.common.mode);
        let (events, writer) =
            EventRecorder::new(clients.events.clone(), "test", EventMetrics::default());
        let events = match mode {
            Mode::Control => events,
            Mode::Observe => EventRecorder::muted(EventMetrics::default()),
        };
        let own = watch::Sender::new(Arc::clone(&settings.own));
        let context = Context::<P> {
            clients,
            cloud,
            leadership,
            eligibility: Eligibility::default(),
            events,
            plans: Plans::new(mode, &metrics),
            settings: own.subscribe(),
            common: watch::Sender::new(Arc::clone(&settings.common)).subscribe(),
            metrics,
            supervisor: Supervisor::new(token.clone()),
            health: Health::new(),
            token: token.clone(),
        };
        context.supervisor.spawn("events", writer.run(token.clone()));
        Ok(Self { context, settings: own, _end: token.drop_guard() })
    }
}
