//! A process of the program with a simulated API server and a provider that fails on
//! demand.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use async_trait::async_trait;
use ccm_cloud::{
    Call, Cloud, CloudError, Detail, ErrorKind, Fleet, Instance, Instances, Lookup, LookupResult,
    NodeIdentity, ProviderContext, ProviderFactory, ProviderId, ProviderRegistry,
};
use ccm_runtime::{
    logging::LogControl,
    program::{Failure, load, run},
};
use ccm_settings::Invocation;
use ccm_sim::apiserver::{ApiServer, Fault, ListenHandle, Options};
use parking_lot::Mutex;
use serde_json::json;
use template_ccm::{TemplateCcm, plan::INSTANCE_NAME};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

/// The time limit of each wait.
const LIMIT: Duration = Duration::from_secs(15);

/// The fault of the cloud, until the test changes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Outage {
    #[default]
    None,
    /// The provider cannot be built.
    Down,
    /// It does not know its capabilities yet.
    Unknown,
}

/// The faults that a test injects.
#[derive(Clone, Debug, Default)]
pub(crate) struct Script {
    /// The cloud at the start.
    pub(crate) outage: Outage,
    /// The provider's configuration is wrong.
    pub(crate) invalid: bool,
    /// The provider offers no instances.
    pub(crate) offers_nothing: bool,
    /// A lookup panics.
    pub(crate) lookup_panics: bool,
    /// No server listens on the address of the API server.
    pub(crate) no_server: bool,
    /// The fault of the API server.
    pub(crate) fault: Option<Fault>,
}

/// The provider `test`, with its recorded calls.
#[derive(Clone)]
struct Scripted {
    script: Script,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    outage: Mutex<Outage>,
    user_agent: Mutex<String>,
    /// The time limits of the lookups.
    lookups: Mutex<Vec<Duration>>,
}

#[async_trait]
impl ProviderFactory for Scripted {
    fn name(&self) -> &'static str {
        "test"
    }

    async fn build(&self, context: ProviderContext) -> Result<Arc<dyn Cloud>, CloudError> {
        *self.shared.user_agent.lock() = context.user_agent;
        if self.script.invalid {
            return Err(CloudError::new(ErrorKind::Invalid, "region must be set"));
        }
        if *self.shared.outage.lock() == Outage::Down {
            return Err(CloudError::new(ErrorKind::Unavailable, "no route"));
        }
        Ok(Arc::new(self.clone()))
    }
}

#[async_trait]
impl Cloud for Scripted {
    fn name(&self) -> &'static str {
        "test"
    }

    fn schemes(&self) -> Vec<String> {
        vec!["test".to_owned()]
    }

    fn instances(&self) -> Result<Option<Arc<dyn Instances>>, CloudError> {
        if *self.shared.outage.lock() == Outage::Unknown {
            return Err(CloudError::new(ErrorKind::Timeout, "no answer"));
        }
        Ok((!self.script.offers_nothing).then(|| Arc::new(self.clone()) as Arc<dyn Instances>))
    }

    async fn health(&self, _: Call) -> Result<(), CloudError> {
        Ok(())
    }
}

#[async_trait]
impl Instances for Scripted {
    async fn lookup(&self, nodes: &[NodeIdentity], _: Detail, call: Call) -> Vec<LookupResult> {
        assert!(!self.script.lookup_panics, "broken");
        self.shared.lookups.lock().push(call.timeout);
        let found = |node: &NodeIdentity| {
            let id = ProviderId::parse(&format!("test://{}", node.name)).unwrap();
            Ok(Lookup::Found(Box::new(Instance::new(id, &node.name))))
        };
        nodes.iter().map(found).collect()
    }

    async fn list(&self, _: Call) -> Result<Fleet, CloudError> {
        Ok(Fleet::default())
    }
}

/// A process of the program and the provider.
pub(crate) struct Process {
    pub(crate) api: Arc<ApiServer>,
    _listener: ListenHandle,
    shared: Arc<Shared>,
    pages: SocketAddr,
    stop: CancellationToken,
    life: JoinHandle<Result<(), Failure>>,
}

/// Starts one in a cluster with one node, `node-1`.
pub(crate) async fn begin(script: Script, arguments: &[&str]) -> Process {
    let api = ApiServer::new(Options { taint_new_nodes: false, ..Options::default() });
    let listener = api.listen(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    if let Some(fault) = script.fault.clone() {
        api.faults().add(fault);
    }
    let master =
        if script.no_server { "127.0.0.1:9".to_owned() } else { listener.addr.to_string() };
    let port = ccm_sim::program::free_port().unwrap();
    let mut all = vec![
        "--cloud-provider=test".to_owned(),
        format!("--master=http://{master}"),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
    ];
    all.extend(arguments.iter().map(|argument| (*argument).to_owned()));
    let loaded = load::<TemplateCcm>(&Invocation::with_arguments(all)).unwrap();
    let shared = Arc::new(Shared { outage: Mutex::new(script.outage), ..Shared::default() });
    let provider = Scripted { script, shared: Arc::clone(&shared) };
    let providers = ProviderRegistry::new().with(provider);
    let stop = CancellationToken::new();
    let token = stop.clone();
    #[expect(clippy::disallowed_methods, reason = "the handle is kept and awaited")]
    let life = tokio::spawn(async move {
        run::<TemplateCcm>(loaded, &providers, LogControl::detached(), token).await
    });
    let process = Process {
        api,
        _listener: listener,
        shared,
        pages: ([127, 0, 0, 1], port).into(),
        stop,
        life,
    };
    process.register("node-1");
    process
}

impl Process {
    /// Changes the fault of the cloud.
    pub(crate) fn cloud_is(&self, outage: Outage) {
        *self.shared.outage.lock() = outage;
    }

    /// Registers a node.
    pub(crate) fn register(&self, name: &str) {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        self.api.create(node).unwrap();
    }

    /// Returns true if this node has its annotation.
    pub(crate) fn is_named(&self, name: &str) -> bool {
        self.api.get("nodes", name).unwrap()["metadata"]["annotations"][INSTANCE_NAME] == name
    }

    /// Waits until this node has its annotation: the program leads and works.
    pub(crate) async fn named(&mut self, name: &str) {
        self.until(&format!("{name} named"), async |this| this.is_named(name)).await;
    }

    /// The requests to the API server for objects of this kind, as `patch nodes`.
    pub(crate) fn requests(&self, plural: &str) -> Vec<String> {
        let records = self.api.audit().records();
        let about = records.iter().filter(|record| record.resource == plural);
        about.map(ccm_sim::apiserver::Record::what).collect()
    }

    /// Waits until the API server has received a request like this.
    pub(crate) async fn requested(&mut self, plural: &str, what: &str) {
        let is_there = async |this: &Self| this.requests(plural).iter().any(|sent| sent == what);
        self.until(what, is_there).await;
    }

    /// The time limits of the lookups so far.
    pub(crate) fn lookups(&self) -> Vec<Duration> {
        self.shared.lookups.lock().clone()
    }

    /// Waits until the provider is built, and returns its user agent.
    pub(crate) async fn user_agent(&mut self) -> String {
        self.until("provider", async |this| !this.shared.user_agent.lock().is_empty()).await;
        self.shared.user_agent.lock().clone()
    }

    /// Waits until a page contains this.
    pub(crate) async fn page_has(&mut self, page: &str, part: &str) {
        self.until(part, async |this| this.get(page).await.1.contains(part)).await;
    }

    /// Waits until it is ready.
    pub(crate) async fn ready(&mut self) {
        self.until("readiness", async |this| this.get("/readyz").await.0 == 200).await;
    }

    async fn until(&mut self, what: &str, holds: impl AsyncFn(&Self) -> bool) {
        let wait = async {
            while !holds(self).await {
                assert!(!self.life.is_finished(), "ended before {what}");
                sleep(Duration::from_millis(20)).await;
            }
        };
        if timeout(LIMIT, wait).await.is_ok() {
            return;
        }
        panic!("{what}: {:?}", self.get("/readyz?verbose").await);
    }

    /// Status and body of a page, once the server is up.
    pub(crate) async fn get(&self, page: &str) -> (u16, String) {
        let mut stream = loop {
            match TcpStream::connect(self.pages).await {
                Ok(stream) => break stream,
                Err(error) => assert!(!self.life.is_finished(), "{error}"),
            }
            sleep(Duration::from_millis(10)).await;
        };
        let request =
            format!("GET {page} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        timeout(LIMIT, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
        let (head, text) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), text.to_owned())
    }

    /// Stops it, as the first signal does.
    pub(crate) async fn end(&mut self) -> Result<(), Failure> {
        self.stop.cancel();
        self.ended().await
    }

    /// Waits for its end.
    pub(crate) async fn ended(&mut self) -> Result<(), Failure> {
        timeout(LIMIT * 2, &mut self.life).await.unwrap().unwrap()
    }

    /// Checks that all its tasks have stopped: a watch that is cut is not opened again.
    pub(crate) async fn is_silent(&self) {
        let sent = self.api.audit().records().len();
        self.api.cut_watches("", true);
        sleep(Duration::from_millis(500)).await;
        assert_eq!(self.api.audit().records().len(), sent, "{:?}", self.requests("nodes"));
    }
}
