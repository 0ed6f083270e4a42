//! A folder with a configuration, servers that start and stop, and a recording gate.

use std::{path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use ccm_cloud::{
    Call, CallClass, CallGate, CallReport, Cloud, CloudError, ErrorKind, Instances, Permit,
    ProviderContext, ProviderFactory,
};
use ccm_external::ExternalFactory;
use ccm_external_server::{Listener, ServeError, ServerTls, serve};
use ccm_sim::cloud::SimCloud;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub fn call() -> Call {
    Call::waiting(Duration::from_secs(10))
}

/// The environment of a test.
pub struct Place {
    pub folder: tempfile::TempDir,
    pub gate: Arc<Recorder>,
}

impl Place {
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), gate: Arc::default() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the endpoint of a Unix socket with this name.
    pub fn socket(&self, name: &str) -> String {
        format!("unix://{}", self.path(name).display())
    }

    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), text).unwrap();
    }

    pub fn configure(&self, endpoint: &str) {
        self.write("cloud.yaml", format!("endpoint: {endpoint}\n"));
    }

    pub async fn client(&self) -> Result<Arc<dyn Cloud>, CloudError> {
        let config = Some(self.path("cloud.yaml"));
        let gate = Arc::clone(&self.gate) as Arc<dyn CallGate>;
        let context = ProviderContext { gate, ..ProviderContext::ungated(config, "test/1") };
        ExternalFactory.build(context).await
    }
}

/// A running server. Dropping it acts as a crash.
pub struct Served {
    pub endpoint: String,
    stop: CancellationToken,
    tasks: JoinSet<Result<(), ServeError>>,
}

impl Served {
    pub async fn start(
        cloud: impl Cloud + 'static,
        endpoint: &str,
        tls: Option<ServerTls>,
    ) -> Self {
        let listener = Listener::bind(endpoint).await.unwrap();
        let (endpoint, stop, mut tasks) =
            (listener.endpoint().to_owned(), CancellationToken::new(), JoinSet::new());
        tasks.spawn(serve(Arc::new(cloud), listener, tls, stop.clone()));
        Self { endpoint, stop, tasks }
    }

    /// Stops it as SIGTERM would.
    pub async fn stop(mut self) {
        self.stop.cancel();
        self.tasks.join_next().await.unwrap().unwrap().unwrap();
    }

    /// Stops it as SIGKILL would.
    pub async fn crash(mut self) {
        self.tasks.shutdown().await;
    }
}

/// A simulated cloud, and a client of it over a Unix socket that knows what it offers.
pub struct Wire {
    pub sim: SimCloud,
    pub cloud: Arc<dyn Cloud>,
    _place: Place,
    _served: Served,
}

impl Wire {
    /// Creates this cloud, which describes itself as it is now.
    pub async fn new(sim: SimCloud) -> Self {
        let place = Place::new();
        place.configure(&place.socket("s"));
        let served = Served::start(sim.clone(), &place.socket("s"), None).await;
        let cloud = place.client().await.unwrap();
        instances(&cloud).await;
        Self { sim, cloud, _place: place, _served: served }
    }
}

type Offer = Result<Option<Arc<dyn Instances>>, CloudError>;

/// A cloud that only describes itself.
#[derive(Clone, Default)]
pub struct Stub {
    pub schemes: Vec<&'static str>,
    pub instances: Arc<Mutex<Option<Offer>>>,
}

impl Stub {
    pub fn offering(scheme: &'static str, offer: Offer) -> Self {
        Self { schemes: vec![scheme], instances: Arc::new(Mutex::new(Some(offer))) }
    }
}

#[async_trait]
impl Cloud for Stub {
    fn name(&self) -> &'static str {
        "stub"
    }

    fn schemes(&self) -> Vec<String> {
        self.schemes.iter().map(|scheme| (*scheme).to_owned()).collect()
    }

    fn instances(&self) -> Result<Option<Arc<dyn Instances>>, CloudError> {
        self.instances.lock().clone().unwrap_or(Ok(None))
    }

    async fn health(&self, _: Call) -> Result<(), CloudError> {
        Ok(())
    }
}

/// Records calls, and refuses as configured.
#[derive(Default)]
pub struct Recorder {
    pub admitted: Mutex<Vec<(CallClass, Call)>>,
    pub reported: Mutex<Vec<(CallClass, CallReport)>>,
    pub items: Mutex<Vec<Option<ErrorKind>>>,
    pub refuse: Mutex<Option<CloudError>>,
}

impl Recorder {
    /// Returns the operations reported since the last call, without the keeper's.
    pub fn take(&self) -> Vec<(&'static str, CallReport)> {
        let all = std::mem::take(&mut *self.reported.lock());
        all.into_iter()
            .map(|(class, report)| (class.operation, report))
            .filter(|(name, _)| *name != "describe")
            .collect()
    }
}

impl CallGate for Recorder {
    fn admit(&self, class: CallClass, call: Call) -> BoxFuture<'_, Result<Permit, CloudError>> {
        self.admitted.lock().push((class, call));
        let refused = self.refuse.lock().clone().filter(|_| class.operation != "describe");
        Box::pin(std::future::ready(refused.map_or_else(|| Ok(Permit::default()), Err)))
    }

    fn report(&self, class: CallClass, report: CallReport) {
        self.reported.lock().push((class, report));
    }

    fn items(&self, _: CallClass, results: &[Option<ErrorKind>]) {
        self.items.lock().extend(results);
    }
}

/// Waits until `done` returns a value.
pub async fn until<T>(what: &str, mut done: impl FnMut() -> Option<T>) -> T {
    for _ in 0..1000 {
        if let Some(value) = done() {
            return value;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never happened: {what}");
}

/// Returns the instances, as soon as they are known.
pub async fn instances(cloud: &Arc<dyn Cloud>) -> Arc<dyn Instances> {
    until("the provider describes itself", || cloud.instances().ok())
        .await
        .expect("instances are offered")
}

/// Advances the timers by this time. Sockets continue in real time.
pub async fn skip(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}
