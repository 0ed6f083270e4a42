//! A program that fails on demand and writes to the cloud, its provider, and a process of both.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::{
    collections::HashMap,
    future::pending,
    net::SocketAddr,
    sync::{Arc, LazyLock},
    time::Duration,
};

use async_trait::async_trait;
use ccm_cloud::{
    Call, CallClass, CallGate, CallReport, Capability, Cloud, CloudError, Detail, ErrorKind, Fleet,
    Instances, LookupResult, NodeIdentity, ProviderContext, ProviderFactory, ProviderRegistry,
    Shortfall,
};
use ccm_controller::watch;
use ccm_objects::Node;
use ccm_runtime::{
    logging::LogControl,
    metrics::Metrics,
    program::{Context, Failure, Identity, Need, Program, load, run},
    rights::Right,
};
use ccm_settings::Invocation;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

/// The longest wait.
const LIMIT: Duration = Duration::from_secs(15);

/// The fault of the cloud, until the test changes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Outage {
    #[default]
    None,
    /// Its configuration is wrong.
    Invalid,
    /// The provider cannot be built.
    Down,
    /// The provider does not know yet what it offers.
    Unknown,
}

/// The events that a test asks for.
#[expect(clippy::struct_excessive_bools, reason = "each is one thing that can go wrong")]
#[derive(Clone, Debug, Default)]
pub(crate) struct Script {
    /// The cloud at the start.
    pub(crate) outage: Outage,
    /// The identity that the provider reports.
    pub(crate) identity: Option<&'static str>,
    /// The provider offers no instances.
    pub(crate) offers_nothing: bool,
    /// The shortfall that the provider reports, and why it offers no instances.
    pub(crate) shortfall: Option<&'static str>,
    pub(crate) prepare_fails: bool,
    pub(crate) prepare_hangs: bool,
    pub(crate) drain_hangs: bool,
    pub(crate) a_task_panics: bool,
    pub(crate) a_task_ends: bool,
    /// Once it leads it sends a write to the cloud, which takes so long.
    pub(crate) write: Option<Duration>,
}

/// A recorded call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Prepared,
    Led,
    Working,
    Sent(Option<u64>),
    Refused,
    Answered,
    Drained,
    Cancelled,
}

#[derive(Default)]
struct Case {
    script: Script,
    outage: Mutex<Outage>,
    user_agent: Mutex<String>,
    gate: Mutex<Option<Arc<dyn CallGate>>>,
    steps: Mutex<Vec<Step>>,
}

impl Case {
    fn note(&self, step: Step) {
        self.steps.lock().push(step);
    }

    /// Sends a write through the gate, as a provider does.
    async fn write(&self, takes: Duration) {
        let gate = self.gate.lock().clone().unwrap();
        let class = CallClass::write_once("test", "create");
        let call = Call::waiting(Duration::from_secs(30));
        let Ok(permit) = gate.admit(class, call).await else { return self.note(Step::Refused) };
        self.note(Step::Sent(permit.term));
        sleep(takes).await;
        self.note(Step::Answered);
        gate.report(class, CallReport { error: None, retry_after: None, took: takes });
        permit.finish();
    }
}

/// A program is built by a function without arguments, so it finds its case by a setting.
static CASES: LazyLock<Mutex<HashMap<String, Arc<Case>>>> = LazyLock::new(Mutex::default);

pub(crate) struct Noting(Arc<Case>);

ccm_settings::settings! {
    /// Its settings.
    #[derive(Clone, Debug, PartialEq, Serialize)]
    pub(crate) struct NotingSettings {
        /// The test.
        case: String = fixed(Text, "case", "");
        /// Its need for instances: required, optional or `none`.
        needs: String = fixed(Text, "needs", "required");
    }
}

impl Program for Noting {
    const IDENTITY: Identity = Identity {
        binary: "node-ccm",
        controller: "cloud-node-controller",
        alias: "cloud-node",
        port: 10258,
        event_component: "cloud-node-controller",
    };
    type Settings = NotingSettings;

    fn needs(settings: &Self::Settings) -> Vec<Need> {
        match settings.needs.as_str() {
            "none" => Vec::new(),
            "optional" => vec![Need::Optional(Capability::Instances)],
            _ => vec![Need::Required(Capability::Instances)],
        }
    }

    fn specimens(_: &Metrics) {}

    fn rights() -> Vec<Right> {
        watch::rights::<Node>().into()
    }

    async fn prepare(context: &Context<Self>) -> Result<Self, Failure> {
        let case = CASES.lock()[&context.settings.borrow().case].clone();
        if case.script.prepare_fails {
            return Err(Failure::Broken("no room".to_owned()));
        }
        if case.script.prepare_hangs {
            pending::<()>().await;
        }
        case.note(Step::Prepared);
        Ok(Self(case))
    }

    fn lead(self: Arc<Self>, context: &Context<Self>) {
        assert!(context.leadership.is_leader() || context.plans.is_observing());
        let case = Arc::clone(&self.0);
        case.note(Step::Led);
        let script = case.script.clone();
        let token = context.token.clone();
        context.supervisor.spawn("worker", async move {
            case.note(Step::Working);
            token.cancelled().await;
            case.note(Step::Cancelled);
        });
        if let Some(takes) = script.write {
            let case = Arc::clone(&self.0);
            context.supervisor.spawn_job("writer", async move { case.write(takes).await });
        }
        if script.a_task_panics || script.a_task_ends {
            context.supervisor.spawn("sync-1", async move {
                sleep(Duration::from_millis(200)).await;
                assert!(!script.a_task_panics, "broken");
            });
        }
    }

    async fn drain(&self) {
        self.0.note(Step::Drained);
        if self.0.script.drain_hangs {
            pending::<()>().await;
        }
    }
}

/// The provider `test`.
#[derive(Clone)]
struct Scripted(Arc<Case>);

#[async_trait]
impl ProviderFactory for Scripted {
    fn name(&self) -> &'static str {
        "test"
    }

    async fn build(&self, context: ProviderContext) -> Result<Arc<dyn Cloud>, CloudError> {
        *self.0.user_agent.lock() = context.user_agent;
        *self.0.gate.lock() = Some(context.gate);
        match *self.0.outage.lock() {
            Outage::Invalid => {
                return Err(CloudError::new(ErrorKind::Invalid, "region must be set"));
            }
            Outage::Down => return Err(CloudError::new(ErrorKind::Unavailable, "no route")),
            Outage::Unknown | Outage::None => {}
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

    fn identity(&self) -> Option<String> {
        self.0.script.identity.map(str::to_owned)
    }

    fn why_not_offered(&self, _: Capability) -> Option<String> {
        self.0.script.shortfall.map(str::to_owned)
    }

    fn shortfalls(&self) -> Vec<Shortfall> {
        let text = self.0.script.shortfall.map(str::to_owned);
        text.map(|text| Shortfall { capability: Capability::Instances, text }).into_iter().collect()
    }

    fn instances(&self) -> Result<Option<Arc<dyn Instances>>, CloudError> {
        if *self.0.outage.lock() == Outage::Unknown {
            return Err(CloudError::new(ErrorKind::Timeout, "no answer"));
        }
        Ok((!self.0.script.offers_nothing).then(|| Arc::new(self.clone()) as Arc<dyn Instances>))
    }

    async fn health(&self, _: Call) -> Result<(), CloudError> {
        Ok(())
    }
}

#[async_trait]
impl Instances for Scripted {
    async fn lookup(&self, nodes: &[NodeIdentity], _: Detail, _: Call) -> Vec<LookupResult> {
        nodes.iter().map(|_| Err(CloudError::new(ErrorKind::Unavailable, "no route"))).collect()
    }

    async fn list(&self, _: Call) -> Result<Fleet, CloudError> {
        Ok(Fleet::default())
    }
}

/// A process of the program and the provider.
pub(crate) struct Process {
    case: Arc<Case>,
    pages: SocketAddr,
    stop: CancellationToken,
    life: JoinHandle<Result<(), Failure>>,
}

/// Begins one, with an API server that does not answer.
pub(crate) fn begin(script: Script, arguments: &[&str]) -> Process {
    begin_at("127.0.0.1:9", script, arguments)
}

/// Begins one, with the API server at this address.
pub(crate) fn begin_at(server: &str, script: Script, arguments: &[&str]) -> Process {
    let port = ccm_sim::program::free_port().unwrap();
    let name = format!("case-{port}");
    let outage = Mutex::new(script.outage);
    let case = Arc::new(Case { script, outage, ..Case::default() });
    CASES.lock().insert(name.clone(), Arc::clone(&case));
    let mut all = vec![
        "--cloud-provider=test".to_owned(),
        format!("--master=http://{server}"),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
        format!("--case={name}"),
    ];
    all.extend(arguments.iter().map(|argument| (*argument).to_owned()));
    let loaded = load::<Noting>(&Invocation::with_arguments(all)).unwrap();
    let providers = ProviderRegistry::default().with(Scripted(Arc::clone(&case)));
    let stop = CancellationToken::new();
    let token = stop.clone();
    #[expect(clippy::disallowed_methods, reason = "the handle is kept and awaited")]
    let life = tokio::spawn(async move {
        run::<Noting>(loaded, &providers, LogControl::detached(), token).await
    });
    Process { case, pages: ([127, 0, 0, 1], port).into(), stop, life }
}

impl Process {
    /// Returns the calls so far.
    pub(crate) fn steps(&self) -> Vec<Step> {
        self.case.steps.lock().clone()
    }

    /// Returns true if it has ended on its own.
    pub(crate) fn has_ended(&self) -> bool {
        self.life.is_finished()
    }

    /// Waits until this was called.
    pub(crate) async fn reached(&mut self, step: Step) {
        self.until(&format!("{step:?}"), async |this| this.steps().contains(&step)).await;
    }

    /// Changes the fault of the cloud.
    pub(crate) fn cloud_is(&self, outage: Outage) {
        *self.case.outage.lock() = outage;
    }

    /// Returns the user agent that the provider was built with.
    pub(crate) fn user_agent(&self) -> String {
        self.case.user_agent.lock().clone()
    }

    /// Waits until a page contains this.
    pub(crate) async fn page_has(&mut self, page: &str, part: &str) {
        self.until(part, async |this| this.get(page).await.1.contains(part)).await;
    }

    /// Waits until a line of `/readyz?verbose` begins so.
    pub(crate) async fn shows(&mut self, line: &str) {
        let is = async |this: &Self| {
            let (_, page) = this.get("/readyz?verbose").await;
            page.lines().any(|one| one.starts_with(line))
        };
        self.until(line, is).await;
    }

    async fn until(&mut self, what: &str, holds: impl AsyncFn(&Self) -> bool) {
        let wait = async {
            while !holds(self).await {
                assert!(!self.life.is_finished(), "ended before {what}: {:?}", self.steps());
                sleep(Duration::from_millis(20)).await;
            }
        };
        if timeout(LIMIT, wait).await.is_ok() {
            return;
        }
        panic!("{what}: {:?} {:?}", self.steps(), self.get("/readyz?verbose").await);
    }

    /// Status and text of a page, once the pages are served.
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
}
