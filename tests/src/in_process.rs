//! A controller in the test's own process, so that the test can pause the time.

use std::{
    env, fs, io,
    path::Path,
    process,
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use anyhow::{Result, bail};
use ccm_cloud::Cloud;
use ccm_kube::{
    client::{ClientConfig, Clients, RequestLimiter, Unlimited},
    events::{EventMetrics, EventRecorder},
    metrics::RestMetrics,
};
use ccm_runtime::{
    explain::Explanations,
    health::Health,
    leadership::{CLOUD_IDENTITY, Eligibility, Leadership},
    limits::{Limits, Rate, Rates},
    metrics::Metrics,
    plans::{Mode, Plans},
    program::{Context, Loaded, Program, load},
    records::{RecordQuery, Records},
    same_cloud::{SameCloud, Where},
    supervisor::Supervisor,
};
use ccm_settings::{Invocation, LoadError};
use ccm_sim::{
    apiserver::ApiServer,
    cloud::SimCloud,
    faults::{Fault, FaultEffect},
};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

/// The identity of [`InProcess::lose_project`].
const OTHER_PROJECT: &str = "sim, project other";

/// The end of the user agent of a process that stands by.
pub const STANDBY: &str = "standby";

/// Returns the limiter of requests to the API server. The rate of the defaults is too high to
/// matter.
fn limiter(requests: Rate) -> Arc<dyn RequestLimiter> {
    match requests.per_second {
        Some(rate) if rate < 100.0 => Arc::new(Limits::new(Rates::each(requests), &Metrics::new())),
        _ => Arc::new(Unlimited),
    }
}

/// The environment of a controller with a simulated API server. When it is dropped, the
/// controller ends without an order.
pub struct InProcess<P: Program> {
    /// The controller's context.
    pub context: Context<P>,
    /// Its settings. New settings that are sent here take effect like a changed file.
    pub settings: watch::Sender<Arc<P::Settings>>,
    _end: DropGuard,
}

impl<P: Program> InProcess<P> {
    /// Starts the program with these arguments on the command line. It leads at once, or observes
    /// if they say so.
    pub fn new(api: &ApiServer, cloud: Arc<dyn Cloud>, arguments: &[&str]) -> Result<Self> {
        let settings = loaded::<P>(arguments)?;
        let leadership = match settings.common.mode {
            Mode::Control => Leadership::unconditional(),
            Mode::Observe => Leadership::observer(),
        };
        Self::with(api, cloud, &settings, leadership)
    }

    /// Starts the program with these settings and this leadership.
    pub fn with(
        api: &ApiServer,
        cloud: Arc<dyn Cloud>,
        settings: &Loaded<P>,
        leadership: Leadership,
    ) -> Result<Self> {
        Self::with_metrics(api, cloud, settings, leadership, Metrics::new(), "test")
    }

    /// Starts a program that leads, either after this process or as the first one.
    pub async fn leading(
        api: &ApiServer,
        cloud: Arc<dyn Cloud>,
        settings: &Loaded<P>,
        last: Option<&Leadership>,
        metrics: Metrics,
    ) -> Result<Self> {
        let leadership = Leadership::unconditional();
        let process = Self::with_metrics(api, cloud, settings, leadership, metrics, "test")?;
        let (mut process, program) = process.prepared().await?;
        process.take_over(program, last);
        Ok(process)
    }

    /// Starts a program that does not lead yet. Its user agent ends with [`STANDBY`].
    pub async fn standing_by(
        api: &ApiServer,
        cloud: Arc<dyn Cloud>,
        settings: &Loaded<P>,
        metrics: Metrics,
    ) -> Result<(Self, Arc<P>)> {
        let leadership = Leadership::unconditional();
        let process = Self::with_metrics(api, cloud, settings, leadership, metrics, STANDBY)?;
        process.prepared().await
    }

    async fn prepared(self) -> Result<(Self, Arc<P>)> {
        match P::prepare(&self.context).await {
            Ok(program) => Ok((self, Arc::new(program))),
            Err(failure) => bail!(failure),
        }
    }

    /// Lets a standby lead, either after this process or as the first one.
    pub fn take_over(&mut self, program: Arc<P>, last: Option<&Leadership>) {
        if let Some(last) = last {
            self.context.leadership = self.context.leadership.clone().after(last);
        }
        program.lead(&self.context);
    }

    fn with_metrics(
        api: &ApiServer,
        cloud: Arc<dyn Cloud>,
        settings: &Loaded<P>,
        leadership: Leadership,
        metrics: Metrics,
        agent: &str,
    ) -> Result<Self> {
        let config = ClientConfig {
            kubeconfig: None,
            master: None,
            user_agent: format!("{}/{agent}", P::IDENTITY.binary),
            request_timeout: Duration::from_secs(5),
            limiter: limiter(settings.common.kube.requests),
            credentials_over_http: false,
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
        let place = Where::new(&settings.common);
        let same_cloud = SameCloud::new(cloud, &leadership, &place);
        let (health, watch) = (Health::default(), same_cloud.watch(&events, &place));
        let watch = watch.run(&health, &metrics, token.clone());
        let plans = Plans::new(mode, &metrics);
        let explanations = Explanations::new(plans.clone());
        let asked = same_cloud.clone();
        explanations.refused_by(move || asked.refusal());
        let context = Context::<P> {
            clients,
            cloud: same_cloud.guarded(),
            same_cloud,
            leadership,
            eligibility: Eligibility::default(),
            events,
            explanations,
            plans,
            records: Records::new(&metrics),
            settings: own.subscribe(),
            common: watch::Sender::new(Arc::clone(&settings.common)).subscribe(),
            metrics,
            supervisor: Supervisor::new(token.clone()),
            health,
            token: token.clone(),
        };
        context.supervisor.spawn("events", writer.run(token.clone()));
        context.supervisor.spawn("cloud-identity", watch);
        Ok(Self { context, settings: own, _end: token.drop_guard() })
    }

    /// Changes an annotation of the Lease as a person does.
    pub fn annotate_lease(&self, key: &str, text: Option<&str>) {
        self.context.leadership.annotations().annotate(key, text);
    }

    /// Records the identity of the cloud, and renews the Lease.
    pub fn record_cloud(&self) {
        self.context.same_cloud.standing();
        self.annotate_lease("quartet.dev/renewed", None);
    }

    /// Puts the identity of the cloud on the Lease, and makes the cloud another project from now
    /// on, which has nothing of this cluster.
    pub fn lose_project(&self, cloud: &SimCloud) {
        self.annotate_lease("quartet.dev/renewed", None);
        assert!(self.context.same_cloud.is_proven());
        cloud.set_identity(Some(OTHER_PROJECT));
        cloud.faults().add(Fault::new(FaultEffect::WrongProject));
    }

    /// Creates in the other project what the cluster needs, and approves the project as a person
    /// does.
    pub fn approve_project(&self, cloud: &SimCloud) {
        cloud.faults().clear();
        self.annotate_lease(CLOUD_IDENTITY, Some(OTHER_PROJECT));
    }

    /// Returns true if the metric says that the cloud is another one.
    pub fn is_changed(&self) -> bool {
        sample::<u8>(&self.context.metrics, "ccm_cloud_identity_changed ") == 1
    }

    /// Returns its record.
    pub fn record(&self) -> io::Result<Vec<u8>> {
        let mut record = Vec::new();
        self.context.records.write(&RecordQuery::default(), &mut record)?;
        Ok(record)
    }

    /// Returns the page `/explain` about an object.
    pub fn explain(&self, kind: &str, name: &str) -> String {
        let explained = self.context.explanations.text(Some(kind), Some(name));
        explained.unwrap_or_else(|error| error.to_string())
    }

    /// Returns the page `/plan`.
    pub fn plans(&self) -> String {
        self.context.plans.text(None)
    }
}

impl<P: Program> Drop for InProcess<P> {
    /// Keeps the record as a file in the folder `QUARTET_RECORDS`, if that is set, so that it can
    /// be replayed.
    fn drop(&mut self) {
        static KEPT: AtomicU32 = AtomicU32::new(0);
        let Some(folder) = env::var_os("QUARTET_RECORDS") else { return };
        let (name, process) = (P::IDENTITY.binary, process::id());
        let file = format!("{name}-{process}-{}.jsonl", KEPT.fetch_add(1, Relaxed));
        match self.record() {
            Ok(record) if !record.is_empty() => {
                fs::write(Path::new(&folder).join(file), record).unwrap_or_default();
            }
            _ => {}
        }
    }
}

/// Returns the settings with these arguments on the command line, and the simulated cloud.
pub fn loaded<P: Program>(arguments: &[&str]) -> Result<Loaded<P>, LoadError> {
    let arguments = ["--cloud-provider=sim"].iter().chain(arguments);
    load::<P>(&Invocation::with_arguments(arguments.copied()))
}

/// Returns the program's own settings of them, or the text of the error.
pub fn settings<P: Program>(arguments: &[&str]) -> Result<P::Settings, String> {
    let loaded = loaded::<P>(arguments).map_err(|error| error.to_string())?;
    Ok(P::Settings::clone(&loaded.own))
}

/// Returns the sample of a page of metrics that begins with this name and labels, or zero if it
/// does not exist.
pub fn sample<N: FromStr + Default>(metrics: &Metrics, name: &str) -> N {
    let page = metrics.encode().unwrap_or_default();
    match page.lines().find_map(|line| line.strip_prefix(name)).map(str::trim) {
        Some(sample) => sample.parse().unwrap_or_else(|_| panic!("{name}: {sample:?}")),
        None => N::default(),
    }
}
