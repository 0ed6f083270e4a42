//! The client against servers that break the protocol: wrong counts, names, IDs and enums, half
//! answers, endless lists, bare statuses, and things that are not a provider.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail by panic")]

#[path = "rogue/balancers.rs"]
mod balancers;
#[path = "rogue/refusals.rs"]
mod refusals;
#[path = "rogue/routes.rs"]
mod routes;
#[path = "rogue/sizes.rs"]
mod sizes;
#[path = "rogue/streams.rs"]
mod streams;

use std::{collections::VecDeque, sync::Arc, time::Duration};

use ccm_cloud::{
    Call, Cloud, CloudError, Detail, ErrorKind, Instances, Lookup, LookupResult, NodeIdentity,
    ProviderContext, ProviderFactory,
};
use ccm_external::{
    ExternalFactory,
    proto::{
        self, instances_server, instances_server::InstancesServer, lookup_answer::Answer,
        provider_server, provider_server::ProviderServer,
    },
};
use futures::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    task::JoinSet,
};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{
    Code, Request, Response, Status, async_trait,
    transport::{Server, server::Router},
};

fn call() -> Call {
    Call::waiting(Duration::from_secs(10))
}

/// A provider that answers from its scripts, in order. The last answer repeats.
#[derive(Clone)]
struct Rogue {
    lists: Script<proto::ListInstancesResponse>,
    streams: Script<Vec<Step>>,
    asked: Arc<Mutex<Vec<usize>>>,
}

/// A step of a stream of answers.
#[derive(Clone)]
enum Step {
    Answer(u32, Box<proto::LookupAnswer>),
    Wait(Duration),
    Fail(Status),
}

type Script<T> = Arc<Mutex<VecDeque<Result<T, Status>>>>;

fn next<T: Clone>(script: &Script<T>) -> Result<Response<T>, Status> {
    let mut script = script.lock();
    let answer = if script.len() > 1 { script.pop_front() } else { script.front().cloned() };
    answer.unwrap_or_else(|| Err(Status::unimplemented("no script"))).map(Response::new)
}

/// A server that describes itself so.
struct Described(proto::DescribeResponse);

#[async_trait]
impl provider_server::Provider for Described {
    async fn describe(
        &self,
        _: Request<proto::DescribeRequest>,
    ) -> Result<Response<proto::DescribeResponse>, Status> {
        Ok(Response::new(self.0.clone()))
    }

    async fn health(
        &self,
        _: Request<proto::HealthRequest>,
    ) -> Result<Response<proto::HealthResponse>, Status> {
        Ok(Response::new(proto::HealthResponse {}))
    }
}

#[async_trait]
impl instances_server::Instances for Rogue {
    type LookupInstancesStream = BoxStream<'static, Result<proto::LookupInstancesItem, Status>>;

    async fn lookup_instances(
        &self,
        request: Request<proto::LookupInstancesRequest>,
    ) -> Result<Response<Self::LookupInstancesStream>, Status> {
        self.asked.lock().push(request.get_ref().nodes.len());
        let steps = next(&self.streams)?.into_inner();
        let items = stream::iter(steps).filter_map(|step| async move {
            match step {
                Step::Answer(place, answer) => {
                    let (place, answer) = (Some(place), Some(*answer));
                    Some(Ok(proto::LookupInstancesItem { place, answer }))
                }
                Step::Wait(time) => {
                    tokio::time::sleep(time).await;
                    None
                }
                Step::Fail(status) => Some(Err(status)),
            }
        });
        Ok(Response::new(items.boxed()))
    }

    async fn list_instances(
        &self,
        _: Request<proto::ListInstancesRequest>,
    ) -> Result<Response<proto::ListInstancesResponse>, Status> {
        next(&self.lists)
    }
}

fn description() -> proto::DescribeResponse {
    proto::DescribeResponse {
        provider: Some("rogue".to_owned()),
        schemes: vec!["rogue".to_owned()],
        capabilities: vec!["instances".to_owned(), "teleportation".to_owned()],
        ..Default::default()
    }
}

struct Running {
    cloud: Arc<dyn Cloud>,
    rogue: Rogue,
    _server: JoinSet<()>,
}

impl Running {
    async fn describing(description: proto::DescribeResponse) -> Self {
        let rogue =
            Rogue { lists: Script::default(), streams: Script::default(), asked: Arc::default() };
        let router = Server::builder().add_service(InstancesServer::new(rogue.clone()));
        let (cloud, server) = serve(router, description).await;
        Self { cloud, rogue, _server: server }
    }

    async fn new() -> Self {
        let running = Self::describing(description()).await;
        running.cloud.health(call()).await.unwrap();
        running
    }

    fn instances(&self) -> Arc<dyn Instances> {
        self.cloud.instances().unwrap().unwrap()
    }

    /// Answers node by node, by this script.
    async fn streaming(steps: Vec<Step>) -> Self {
        let running = Self::new().await;
        *running.rogue.streams.lock() = [Ok(steps)].into();
        running
    }

    async fn lookup(&self, answers: Vec<proto::LookupAnswer>, nodes: &[&str]) -> Vec<LookupResult> {
        let places = answers.into_iter().zip(0..);
        let steps = places.map(|(answer, place)| Step::Answer(place, Box::new(answer)));
        *self.rogue.streams.lock() = [Ok(steps.collect())].into();
        let nodes: Vec<_> = nodes.iter().map(|name| NodeIdentity::named(*name)).collect();
        let answers = self.instances().lookup(&nodes, Detail::Everything, call()).await;
        assert_eq!(answers.len(), nodes.len(), "one answer per node, whatever the server does");
        answers
    }
}

/// Serves a capability with this description until the tasks are dropped. Returns its client.
async fn serve(
    router: Router,
    description: proto::DescribeResponse,
) -> (Arc<dyn Cloud>, JoinSet<()>) {
    let router = router.add_service(ProviderServer::new(Described(description)));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut server = JoinSet::new();
    server.spawn(async move {
        router.serve_with_incoming(TcpListenerStream::new(listener)).await.unwrap();
    });
    (client(port).await, server)
}

async fn client(port: u16) -> Arc<dyn Cloud> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("endpoint: http://127.0.0.1:{port}")).unwrap();
    let config = Some(file.path().to_owned());
    ExternalFactory.build(ProviderContext::ungated(config, "test/1")).await.unwrap()
}

fn instance(name: &str) -> proto::Instance {
    let provider_id = format!("rogue://{name}");
    proto::Instance {
        provider_id: Some(provider_id),
        name: Some(name.to_owned()),
        ..Default::default()
    }
}

fn answer(node: &str, answer: Option<Answer>) -> proto::LookupAnswer {
    proto::LookupAnswer { node: Some(node.to_owned()), answer }
}

fn good(node: &str) -> proto::LookupAnswer {
    answer(node, Some(Answer::Found(instance(node))))
}

fn is_found(result: &LookupResult, name: &str) -> bool {
    matches!(result, Ok(Lookup::Found(instance)) if instance.name == name)
}

fn is_malformed(result: &LookupResult) -> bool {
    result.as_ref().is_err_and(|error| error.kind == ErrorKind::Malformed)
}

#[tokio::test]
async fn a_bad_answer_spoils_only_its_own_node() {
    let running = Running::new().await;
    let address =
        |kind| proto::NodeAddress { kind: Some(kind), address: Some("10.0.0.1".to_owned()) };
    let absence = |method, evidence: &str| {
        let (method, evidence) = (Some(method), Some(evidence.to_owned()));
        Some(Answer::Gone(proto::Absence { method, evidence, request_id: None, kept: None }))
    };
    for bad in [
        answer("b", None),
        answer("c", Some(Answer::Found(instance("b")))),
        answer("b", Some(Answer::Found(proto::Instance::default()))),
        answer(
            "b",
            Some(Answer::Found(proto::Instance {
                provider_id: Some("no scheme".to_owned()),
                ..instance("b")
            })),
        ),
        answer(
            "b",
            Some(Answer::Found(proto::Instance { addresses: vec![address(42)], ..instance("b") })),
        ),
        answer("b", absence(0, "404")),
        answer("b", absence(77, "404")),
        answer("b", absence(1, "")),
        // The provider says "gone by owner" about a node that was asked for by name.
        answer("b", absence(4, "not there")),
        answer("b", Some(Answer::Error(proto::Error { kind: Some(99), ..Default::default() }))),
    ] {
        let answers = running.lookup(vec![good("a"), bad.clone(), good("c")], &["a", "b", "c"]);
        let answers = answers.await;
        assert!(is_found(&answers[0], "a") && is_found(&answers[2], "c"), "{bad:?}: {answers:?}");
        assert!(is_malformed(&answers[1]), "{bad:?}: {answers:?}");
    }
}

#[tokio::test]
async fn a_wrong_number_of_answers_is_not_guessed_at() {
    let running = Running::new().await;
    for count in [0, 1, 3, 900] {
        let answers = running.lookup(vec![good("a"); count], &["a", "b"]).await;
        assert!(is_malformed(&answers[1]), "{count}: {answers:?}");
        assert_eq!(answers[0].is_ok(), count > 0, "{count}: {answers:?}");
    }
    // An answer in another order is an answer about another node.
    let answers = running.lookup(vec![good("b"), good("a")], &["a", "b"]).await;
    assert!(answers.iter().all(is_malformed), "{answers:?}");
}

#[tokio::test]
async fn the_servers_own_limit_is_kept() {
    for (max_batch, expect) in [(2, vec![2, 2, 1]), (4, vec![4, 1]), (u32::MAX, vec![5])] {
        let running = Running::describing(proto::DescribeResponse {
            max_batch: Some(max_batch),
            ..description()
        })
        .await;
        running.cloud.health(call()).await.unwrap();
        running.lookup(Vec::new(), &["a", "b", "c", "d", "e"]).await;
        let mut asked = running.rogue.asked.lock().clone();
        asked.sort_unstable_by(|a, b| b.cmp(a));
        assert_eq!(asked, expect);
    }
}

#[tokio::test]
async fn bad_entries_of_a_list_are_reported_and_left_out() {
    let running = Running::new().await;
    let bad = proto::Instance { name: Some("bad".to_owned()), ..Default::default() };
    let page = |instances, next: &str| {
        let malformed = vec!["an odd\nentry".to_owned()];
        Ok(proto::ListInstancesResponse {
            instances,
            malformed,
            next_page_token: Some(next.to_owned()),
        })
    };
    *running.rogue.lists.lock() = [
        page(vec![instance("a"), bad.clone()], "2"),
        page(Vec::new(), "3"),
        page(vec![bad, instance("b")], ""),
    ]
    .into();
    let fleet = running.instances().list(call()).await.unwrap();
    let names: Vec<_> = fleet.instances.iter().map(|instance| instance.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(fleet.malformed.len(), 5, "{:?}", fleet.malformed);
    assert!(fleet.malformed.iter().all(|line| line.lines().count() == 1));

    // Each line may name a node, so none of them may be lost.
    let long = format!("{} node-1", "x".repeat(2000));
    for malformed in [vec!["x".to_owned(); 1001], vec![long]] {
        let page = proto::ListInstancesResponse { malformed, ..Default::default() };
        *running.rogue.lists.lock() = [Ok(page)].into();
        let error = running.instances().list(call()).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Malformed);
    }
}

#[tokio::test]
async fn a_list_without_end_ends() {
    let running = Running::new().await;
    let page = |token: &str| {
        Ok(proto::ListInstancesResponse {
            next_page_token: Some(token.to_owned()),
            ..Default::default()
        })
    };
    *running.rogue.lists.lock() = [page("1"), page("2"), page("1")].into();
    let error = running.instances().list(call()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Malformed);
    assert!(error.message.contains("same next page twice"), "{error}");
}

/// A wrong path, a proxy and a mesh answer UNIMPLEMENTED, too. Only the provider's own
/// description says that there is no list: nodes are deleted by other rules then.
#[tokio::test]
async fn a_list_that_is_not_implemented_is_an_error_and_no_description() {
    let running = Running::new().await;
    let error = running.instances().list(call()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unsupported);
    assert!(error.message.contains("lists = false"), "{error}");
    assert!(running.instances().traits().lists);

    let description = proto::DescribeResponse { lists: Some(false), ..description() };
    let running = Running::describing(description).await;
    running.cloud.health(call()).await.unwrap();
    assert!(!running.instances().traits().lists);
}

#[tokio::test]
async fn an_answer_too_large_is_refused() {
    let running = Running::new().await;
    let name = "x".repeat(65 << 20);
    let huge = proto::ListInstancesResponse {
        instances: vec![proto::Instance { name: Some(name), ..Default::default() }],
        ..Default::default()
    };
    *running.rogue.lists.lock() = [Ok(huge)].into();
    let error = running.instances().list(call()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Malformed, "{error}");
}

#[tokio::test]
async fn bare_statuses_are_understood() {
    let running = Running::new().await;
    for (status, kind) in [
        (Status::resource_exhausted("slow down"), ErrorKind::Throttled),
        (Status::unauthenticated("who are you"), ErrorKind::Unauthorized),
        (Status::permission_denied("no"), ErrorKind::Forbidden),
        (Status::internal("oops"), ErrorKind::Unavailable),
        (Status::new(Code::Unknown, ""), ErrorKind::Unavailable),
        (Status::deadline_exceeded("late"), ErrorKind::Timeout),
        (Status::cancelled("stopping"), ErrorKind::Unavailable),
        // No status means "gone": only an answer can say that.
        (Status::not_found("no such project"), ErrorKind::NotFound),
    ] {
        *running.rogue.streams.lock() = [Err(status.clone())].into();
        let nodes = ["a", "b"].map(NodeIdentity::named);
        for answer in running.instances().lookup(&nodes, Detail::Everything, call()).await {
            let error = answer.unwrap_err();
            assert_eq!(error.kind, kind, "{status:?}");
            assert!(error.message.contains(status.message()), "{error}");
        }
    }
}

#[tokio::test]
async fn a_description_that_makes_no_sense_is_not_believed() {
    for (spoilt, expect) in [
        (
            proto::DescribeResponse { provider: Some(" ".to_owned()), ..description() },
            "does not name the provider",
        ),
        (
            proto::DescribeResponse { schemes: vec!["rogue://".to_owned()], ..description() },
            "not a provider ID scheme",
        ),
        (
            proto::DescribeResponse { schemes: vec![String::new()], ..description() },
            "not a provider ID scheme",
        ),
    ] {
        let running = Running::describing(spoilt).await;
        let error = running.cloud.health(call()).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Malformed);
        assert!(error.message.contains(expect), "{error}");
        assert_eq!(running.cloud.instances().err().unwrap().kind, ErrorKind::Unavailable);
    }
}

/// A server listens, but it does not speak gRPC.
#[tokio::test]
async fn what_is_no_provider_is_an_error_and_no_panic() {
    let replies: [&[u8]; 4] = [
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.9\r\n",
        b"\x00\x00\x00\x04\x00\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff",
        b"",
    ];
    for reply in replies {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let mut start = [0; 24];
                if socket.read_exact(&mut start).await.is_ok() {
                    socket.write_all(reply).await.ok();
                }
            }
        });
        let cloud = client(port).await;
        let error: CloudError =
            cloud.health(Call::waiting(Duration::from_secs(3))).await.unwrap_err();
        assert!(
            matches!(
                error.kind,
                ErrorKind::Unavailable | ErrorKind::Timeout | ErrorKind::Throttled
            ),
            "{reply:?}: {error}"
        );
    }
}

/// While the first request hangs, the error says that the provider was asked.
#[tokio::test]
async fn a_provider_that_hangs_has_been_asked() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let cloud = client(listener.local_addr().unwrap().port()).await;
    let ask = cloud.health(Call::waiting(Duration::from_secs(60)));
    assert!(tokio::time::timeout(Duration::from_millis(300), ask).await.is_err());
    let Err(error) = cloud.instances() else { panic!("the provider has not answered") };
    assert!(error.message.contains("has not answered yet"), "{error}");
}
