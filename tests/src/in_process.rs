//! A controller in the test's own process, so that the test can pause the time.

use std::{str::FromStr, sync::Arc, time::Duration};

use anyhow::{Result, bail};
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
use ccm_settings::{Invocation, LoadError};
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

/// A controller that has read the cluster and does not lead yet.
pub struct StandingBy<P: Program> {
    process: InProcess<P>,
    program: P,
}

impl<P: Program> StandingBy<P> {
    /// Leads, after this process of it or as the first one.
    pub fn lead(self, last: Option<&Leadership>) -> InProcess<P> {
        let Self { mut process, program } = self;
        if let Some(last) = last {
            process.context.leadership = process.context.leadership.after(last);
        }
        Arc::new(program).lead(&process.context);
        process
    }
}

impl<P: Program> InProcess<P> {
    /// With these arguments on the command line: leads at once, or observes if they say so.
    pub fn new(api: &ApiServer, cloud: Arc<dyn Cloud>, arguments: &[&str]) -> Result<Self> {
        let settings = loaded::<P>(arguments)?;
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
        Self::with_metrics(api, cloud, settings, leadership, Metrics::new())
    }

    /// Starts a program that leads, after this process of it or as the first one.
    pub async fn leading(
        api: &ApiServer,
        cloud: Arc<dyn Cloud>,
        settings: &Loaded<P>,
        last: Option<&Leadership>,
        metrics: Metrics,
    ) -> Result<Self> {
        let standing_by = Self::standing_by(api, cloud, settings, metrics).await?;
        Ok(standing_by.lead(last))
    }

    /// Starts a program that has read the cluster and does not lead yet.
    pub async fn standing_by(
        api: &ApiServer,
        cloud: Arc<dyn Cloud>,
        settings: &Loaded<P>,
        metrics: Metrics,
    ) -> Result<StandingBy<P>> {
        let leadership = Leadership::unconditional();
        let process = Self::with_metrics(api, cloud, settings, leadership, metrics)?;
        match P::prepare(&process.context).await {
            Ok(program) => Ok(StandingBy { process, program }),
            Err(failure) => bail!(failure),
        }
    }

    fn with_metrics(
        api: &ApiServer,
        cloud: Arc<dyn Cloud>,
        settings: &Loaded<P>,
        leadership: Leadership,
        metrics: Metrics,
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
        let (token, mode) = (CancellationToken::new(), settings.common.mode);
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

    /// The page `/plan`.
    pub fn plans(&self) -> String {
        self.context.plans.text(None)
    }
}

/// The settings with these arguments on the command line, and the simulated cloud.
pub fn loaded<P: Program>(arguments: &[&str]) -> Result<Loaded<P>, LoadError> {
    let arguments = ["--cloud-provider=sim"].iter().chain(arguments);
    load::<P>(&Invocation::with_arguments(arguments.copied()))
}

/// The program's own settings of them, or the text of the error.
pub fn settings<P: Program>(arguments: &[&str]) -> Result<P::Settings, String> {
    let loaded = loaded::<P>(arguments).map_err(|error| error.to_string())?;
    Ok(P::Settings::clone(&loaded.own))
}

/// The sample of a page of metrics that begins with this name and labels; zero if there is none.
pub fn sample<N: FromStr + Default>(metrics: &Metrics, name: &str) -> N {
    let page = metrics.encode().unwrap_or_default();
    match page.lines().find_map(|line| line.strip_prefix(name)).map(str::trim) {
        Some(sample) => sample.parse().unwrap_or_else(|_| panic!("{name}: {sample:?}")),
        None => N::default(),
    }
}
