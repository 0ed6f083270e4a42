//! Tests answers about other routes, second answers, missing answers, and answers that make no
//! sense.

use ccm_cloud::{
    AddressKind, AppliedChange, ClusterId, NodeAddress, Owner, Route, RouteChange, RouteTable,
    RouteTarget, RouteTraits, Routes, TargetState, WantedRoute,
};
use proto::{
    apply_routes_item::Answer as Applied, find_route_targets_item::Answer as Found,
    route_target::Target, routes_server, routes_server::RoutesServer,
};
use tokio::time::Instant;

use super::*;

/// The items of a stream, and true if the stream hangs after them.
type Stream<I> = (Vec<Result<I, Status>>, bool);

/// The number of changes of each call, and its base.
type Asked = Arc<Mutex<Vec<(usize, Option<String>)>>>;

/// A provider that answers about routes from its scripts.
#[derive(Clone)]
struct Crooked {
    tables: Script<proto::ListRoutesResponse>,
    changes: Script<Stream<proto::ApplyRoutesItem>>,
    targets: Script<Stream<proto::FindRouteTargetsItem>>,
    asked: Asked,
}

fn items<I: Send + 'static>((items, hangs): Stream<I>) -> BoxStream<'static, Result<I, Status>> {
    let items = stream::iter(items);
    if hangs { items.chain(stream::pending()).boxed() } else { items.boxed() }
}

#[async_trait]
impl routes_server::Routes for Crooked {
    type ApplyRoutesStream = BoxStream<'static, Result<proto::ApplyRoutesItem, Status>>;
    type FindRouteTargetsStream = BoxStream<'static, Result<proto::FindRouteTargetsItem, Status>>;

    async fn list_routes(
        &self,
        _: Request<proto::ListRoutesRequest>,
    ) -> Result<Response<proto::ListRoutesResponse>, Status> {
        next(&self.tables)
    }

    async fn apply_routes(
        &self,
        request: Request<proto::ApplyRoutesRequest>,
    ) -> Result<Response<Self::ApplyRoutesStream>, Status> {
        let request = request.into_inner();
        self.asked.lock().push((request.changes.len(), request.base));
        next(&self.changes).map(|steps| steps.map(items))
    }

    async fn find_route_targets(
        &self,
        _: Request<proto::FindRouteTargetsRequest>,
    ) -> Result<Response<Self::FindRouteTargetsStream>, Status> {
        next(&self.targets).map(|steps| steps.map(items))
    }
}

struct Place {
    cloud: Arc<dyn Cloud>,
    crooked: Crooked,
    _server: JoinSet<()>,
}

impl Place {
    async fn with(traits: proto::RouteTraits) -> Self {
        let description = proto::DescribeResponse {
            capabilities: vec!["instances".to_owned(), "routes".to_owned()],
            routes: Some(traits),
            ..description()
        };
        let crooked = Crooked {
            tables: Script::default(),
            changes: Script::default(),
            targets: Script::default(),
            asked: Arc::default(),
        };
        let router = Server::builder().add_service(RoutesServer::new(crooked.clone()));
        let (cloud, server) = serve(router, description).await;
        cloud.health(call()).await.unwrap();
        Self { cloud, crooked, _server: server }
    }

    async fn new() -> Self {
        Self::with(proto::RouteTraits { max_batch: Some(100), ..Default::default() }).await
    }

    fn routes(&self) -> Arc<dyn Routes> {
        self.cloud.routes().unwrap().unwrap()
    }

    /// Returns the answers to these changes if the server answers like this.
    async fn apply(
        &self,
        changes: &[RouteChange],
        answers: Vec<Result<proto::ApplyRoutesItem, Status>>,
        hangs: bool,
        call: Call,
    ) -> Vec<Result<AppliedChange, CloudError>> {
        *self.crooked.changes.lock() = [Ok((answers, hangs))].into();
        sorted(self.routes().apply(&cluster(), changes, None, call), changes.len()).await
    }

    async fn find(
        &self,
        targets: &[RouteTarget],
        answers: Vec<proto::FindRouteTargetsItem>,
    ) -> Vec<Result<TargetState, CloudError>> {
        let answers = answers.into_iter().map(Ok).collect();
        *self.crooked.targets.lock() = [Ok((answers, false))].into();
        sorted(self.routes().find_targets(targets, call()), targets.len()).await
    }

    async fn list(&self) -> Result<RouteTable, CloudError> {
        self.routes().list(&cluster(), call()).await
    }
}

/// Checks that each item has one answer, even from a server that breaks the protocol. Returns the answers in order.
async fn sorted<T>(answers: ccm_cloud::Answers<'_, T>, items: usize) -> Vec<Result<T, CloudError>> {
    let mut answers: Vec<_> = answers.collect().await;
    answers.sort_by_key(|(place, _)| *place);
    assert!(answers.iter().map(|(place, _)| *place).eq(0..items), "one answer for each item");
    answers.into_iter().map(|(_, answer)| answer).collect()
}

pub fn cluster() -> ClusterId {
    ClusterId { name: "c".to_owned(), uid: "c".to_owned() }
}

pub(super) fn create(number: u8) -> RouteChange {
    let name = format!("n{number}");
    RouteChange::Create(Arc::new(WantedRoute {
        owner: Owner {
            cluster: cluster(),
            uid: name.clone(),
            namespace: String::new(),
            name: name.clone(),
        },
        destination: format!("10.244.{number}.0/24").parse().unwrap(),
        node: NodeIdentity::named(name),
        addresses: vec![NodeAddress::new(AddressKind::InternalIp, format!("10.0.0.{number}"))],
    }))
}

fn delete(number: u8) -> RouteChange {
    let destination = format!("10.244.{number}.0/24").parse().unwrap();
    RouteChange::Delete(Box::new(Route::new(destination, RouteTarget::Node("x".to_owned()))))
}

fn target(target: Target) -> proto::RouteTarget {
    proto::RouteTarget { target: Some(target) }
}

fn node_target(name: &str) -> proto::RouteTarget {
    target(Target::Node(name.to_owned()))
}

pub(super) fn route(destination: &str) -> proto::Route {
    proto::Route {
        destination: Some(destination.to_owned()),
        target: Some(node_target("x")),
        ..Default::default()
    }
}

fn applied(place: u32, destination: &str, route: Option<proto::Route>) -> proto::ApplyRoutesItem {
    proto::ApplyRoutesItem {
        place: Some(place),
        destination: Some(destination.to_owned()),
        answer: Some(Applied::Applied(proto::AppliedRoute { route, version: None })),
    }
}

fn good(place: u32, number: u8) -> proto::ApplyRoutesItem {
    let destination = format!("10.244.{number}.0/24");
    applied(place, &destination, Some(route(&destination)))
}

/// Returns the kind of the error, and whether the change may be done.
fn failed<T>(answer: &Result<T, CloudError>) -> Option<(ErrorKind, bool)> {
    answer.as_ref().err().map(|error| (error.kind, error.maybe_done))
}

const LOST: Option<(ErrorKind, bool)> = Some((ErrorKind::Malformed, true));

#[tokio::test]
async fn a_route_that_is_never_answered_delays_no_other() {
    let place = Place::new().await;
    let (changes, began) = ([1, 2, 3].map(create), Instant::now());
    let soon = Call::waiting(Duration::from_millis(700));
    *place.crooked.changes.lock() = [Ok((vec![Ok(good(2, 3)), Ok(good(0, 1))], true))].into();
    let (routes, cluster) = (place.routes(), cluster());
    let mut answers = routes.apply(&cluster, &changes, None, soon);
    for expect in [2, 0] {
        let (place, answer) = answers.next().await.unwrap();
        assert!(place == expect && answer.is_ok(), "{place}: {answer:?}");
        assert!(began.elapsed() < soon.timeout / 2, "{:?}", began.elapsed());
    }
    let (at, answer) = answers.next().await.unwrap();
    assert_eq!((at, failed(&answer)), (1, Some((ErrorKind::Timeout, true))));
    assert!(answers.next().await.is_none());
}

#[tokio::test]
async fn what_a_stream_leaves_open_may_be_done() {
    let place = Place::new().await;
    let changes = [1, 2, 3].map(create);
    for (end, expect, words) in [
        (vec![], LOST, "no answer about this route"),
        (vec![Ok(good(0, 1))], LOST, "a second answer about place 0"),
        (vec![Ok(good(7, 7)), Ok(good(1, 2))], LOST, "an answer that was not asked for"),
        (vec![Err(Status::unavailable("gone"))], Some((ErrorKind::Unavailable, true)), "gone"),
    ] {
        let hangs = end.first().is_some_and(Result::is_ok);
        let answers = [vec![Ok(good(2, 3)), Ok(good(0, 1))], end].concat();
        let began = Instant::now();
        let answers = place.apply(&changes, answers, hangs, call()).await;
        assert!(began.elapsed() < call().timeout / 2, "{:?}", began.elapsed());
        assert!(answers[0].is_ok() && answers[2].is_ok(), "{answers:?}");
        assert_eq!(failed(&answers[1]), expect, "{answers:?}");
        assert!(answers[1].as_ref().unwrap_err().message.contains(words), "{answers:?}");
    }
    // The server lacks the method, so nothing was done.
    *place.crooked.changes.lock() = [Err(Status::unimplemented("no such method"))].into();
    let answers = sorted(place.routes().apply(&cluster(), &changes, None, call()), 3).await;
    assert!(answers.iter().all(|it| failed(it) == Some((ErrorKind::Unsupported, false))));
}

#[tokio::test]
async fn a_bad_answer_spoils_only_its_own_route() {
    let place = Place::new().await;
    let own = "10.244.2.0/24";
    let with = |change: fn(&mut proto::Route)| {
        let mut route = route(own);
        change(&mut route);
        applied(1, own, Some(route))
    };
    for bad in [
        applied(1, "10.244.3.0/24", Some(route(own))),
        applied(1, "10.244.2.0/25", Some(route(own))),
        applied(1, "", Some(route(own))),
        applied(1, own, None),
        applied(1, own, Some(route("10.244.3.0/24"))),
        with(|route| route.destination = Some("10.244.2.0".to_owned())),
        with(|route| route.destination = Some("10.244.2.0/33".to_owned())),
        with(|route| route.destination = None),
        with(|route| route.target = None),
        with(|route| route.target = Some(proto::RouteTarget::default())),
        with(|route| route.target = Some(target(Target::Address("10.0.0".to_owned())))),
        with(|route| route.target = Some(target(Target::Instance("i-1".to_owned())))),
        with(|route| route.target = Some(node_target(""))),
        with(|route| route.target = Some(node_target(&"x".repeat(2_000)))),
        with(|route| route.id = Some("two\nlines".to_owned())),
        with(|route| route.owner = Some(proto::Owner::default())),
        proto::ApplyRoutesItem { answer: None, ..good(1, 2) },
    ] {
        let answers = vec![Ok(good(0, 1)), Ok(bad.clone()), Ok(good(2, 3))];
        let answers = place.apply(&[1, 2, 3].map(create), answers, false, call()).await;
        assert!(answers[0].is_ok() && answers[2].is_ok(), "{bad:?}: {answers:?}");
        assert_eq!(failed(&answers[1]), LOST, "{bad:?}: {answers:?}");
        assert_eq!(answers[1].as_ref().unwrap_err().message.lines().count(), 1);
    }
    // After a deletion there must be no route.
    let answers = vec![Ok(good(0, 1)), Ok(applied(1, "10.244.2.0/24", None))];
    let answers = place.apply(&[delete(1), delete(2)], answers, false, call()).await;
    assert_eq!((failed(&answers[0]), failed(&answers[1])), (LOST, None));
    // Another spelling of the same network counts as the same.
    let odd = applied(0, "10.244.1.7/24", Some(route("10.244.1.9/24")));
    let answers = place.apply(&[create(1)], vec![Ok(odd)], false, call()).await;
    assert!(answers[0].is_ok(), "{answers:?}");
}

/// Each message of a call names the version after the message before.
#[tokio::test]
async fn the_servers_own_limit_of_changes_is_kept() {
    for (max_batch, expect) in [(None, 1), (Some(0), 1), (Some(2), 2), (Some(u32::MAX), 3)] {
        let place = Place::with(proto::RouteTraits { max_batch, ..Default::default() }).await;
        let mut first = good(0, 1);
        if let Some(Applied::Applied(applied)) = &mut first.answer {
            applied.version = Some("8".to_owned());
        }
        *place.crooked.changes.lock() =
            [Ok((vec![Ok(first)], false)), Ok((Vec::new(), false))].into();
        let changes = [1, 2, 3].map(create);
        let (routes, cluster) = (place.routes(), cluster());
        let answers = sorted(routes.apply(&cluster, &changes, Some("7"), call()), 3).await;
        assert!(answers[0].is_ok());
        let asked = place.crooked.asked.lock().clone();
        assert!(asked.iter().all(|(count, _)| *count <= expect), "{asked:?}");
        assert_eq!(asked.iter().map(|(count, _)| count).sum::<usize>(), 3);
        assert_eq!(asked[0].1.as_deref(), Some("7"));
        assert!(asked[1..].iter().all(|(_, base)| base.as_deref() == Some("8")), "{asked:?}");
    }
}

#[tokio::test]
async fn what_routes_a_server_says_nothing_about_has_defaults() {
    let traits = |wire| async move { Place::with(wire).await.routes().traits() };
    let expect = RouteTraits { max_batch: 1, ..RouteTraits::default() };
    assert_eq!(traits(proto::RouteTraits::default()).await, expect);
    let odd = proto::RouteTraits {
        families: vec![2, 0, 99],
        target_ids: Some(false),
        max_batch: Some(u32::MAX),
        ..Default::default()
    };
    let expect = RouteTraits {
        families: vec![ccm_cloud::IpFamily::V6],
        target_ids: false,
        max_batch: 500,
        ..RouteTraits::default()
    };
    assert_eq!(traits(odd).await, expect);
    // A provider without the capability does not offer routes.
    let running = Running::new().await;
    assert!(matches!(running.cloud.routes(), Ok(None)));
}

#[tokio::test]
async fn bad_routes_of_a_list_are_reported_and_left_out() {
    let place = Place::new().await;
    let page = |routes, next: &str, version: &str, room| {
        Ok(proto::ListRoutesResponse {
            routes,
            malformed: vec!["an odd\nentry".to_owned()],
            next_page_token: Some(next.to_owned()),
            version: Some(version.to_owned()),
            room: Some(room),
        })
    };
    let bad = |change: fn(&mut proto::Route)| {
        let mut route = route("10.244.9.0/24");
        change(&mut route);
        route
    };
    *place.crooked.tables.lock() = [
        page(
            vec![
                route("10.244.1.0/24"),
                bad(|route| route.destination = Some("everywhere".to_owned())),
                bad(|route| route.target = Some(proto::RouteTarget::default())),
            ],
            "2",
            "7",
            3,
        ),
        page(
            vec![
                bad(|route| route.owner = Some(proto::Owner::default())),
                bad(|route| route.target = None),
            ],
            "",
            "8",
            2,
        ),
    ]
    .into();
    let table = place.list().await.unwrap();
    let shown: Vec<_> =
        table.routes.iter().map(|it| (it.destination.to_string(), it.target.is_some())).collect();
    assert_eq!(shown, [("10.244.1.0/24".to_owned(), true), ("10.244.9.0/24".to_owned(), false)]);
    assert_eq!(table.malformed.len(), 5, "{:?}", table.malformed);
    assert!(table.malformed.iter().all(|line| line.lines().count() == 1));
    // If a table changes while it is read, the version of the first page counts.
    assert_eq!((table.version.as_deref(), table.room), (Some("7"), Some(3)));
}

#[tokio::test]
async fn a_table_without_end_and_one_too_large_are_refused() {
    let place = Place::new().await;
    let page = |token: &str| {
        let next_page_token = Some(token.to_owned());
        Ok(proto::ListRoutesResponse { next_page_token, ..Default::default() })
    };
    *place.crooked.tables.lock() = [page("1"), page("2"), page("1")].into();
    let many = proto::ListRoutesResponse {
        malformed: vec!["x".to_owned(); 200_001],
        ..Default::default()
    };
    let huge = proto::Route { defect: Some("x".repeat(65 << 20)), ..route("10.0.0.0/8") };
    let huge = proto::ListRoutesResponse { routes: vec![huge], ..Default::default() };
    for (script, words) in [
        (None, "same next page twice"),
        (Some(many), "more than 200000 entries"),
        (Some(huge), "longer than 32 MiB"),
    ] {
        if let Some(page) = script {
            *place.crooked.tables.lock() = [Ok(page)].into();
        }
        let error = place.list().await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Malformed, "{error}");
        assert!(error.message.contains(words), "{error}");
    }
}

/// Routes are deleted because of "gone": an incomplete proof, or one about another target, must
/// not count.
#[tokio::test]
async fn a_target_is_gone_only_with_its_own_proof() {
    let place = Place::new().await;
    let gone = |method: proto::ProofMethod, evidence: &str| {
        Some(Found::Gone(proto::Absence {
            method: Some(method.into()),
            evidence: Some(evidence.to_owned()),
            request_id: None,
            kept: None,
        }))
    };
    let instance = || target(Target::Instance("rogue://1".to_owned()));
    let targets = [
        RouteTarget::Instance("rogue://1".to_owned().try_into().unwrap()),
        RouteTarget::Address("fd00::1".parse().unwrap()),
    ];
    let item = |place, target, answer| proto::FindRouteTargetsItem {
        place: Some(place),
        target: Some(target),
        answer,
    };
    let by_id = || gone(proto::ProofMethod::ById, "404");
    for (about, answer) in [
        (instance(), None),
        (instance(), gone(proto::ProofMethod::ById, " ")),
        (instance(), gone(proto::ProofMethod::Unspecified, "404")),
        (instance(), gone(proto::ProofMethod::ByName, "empty")),
        (instance(), gone(proto::ProofMethod::ByOwner, "empty")),
        (instance(), gone(proto::ProofMethod::ProvidersWord, "no")),
        (target(Target::Instance("rogue://2".to_owned())), by_id()),
        (node_target("rogue://1"), by_id()),
        (proto::RouteTarget::default(), by_id()),
    ] {
        let spelt = target(Target::Address("fd00:0::1".to_owned()));
        let other = item(1, spelt, gone(proto::ProofMethod::ByName, "no port fd00::1"));
        let bad = item(0, about, answer);
        let answers = place.find(&targets, vec![other, bad.clone()]).await;
        assert_eq!(failed(&answers[0]), Some((ErrorKind::Malformed, false)), "{bad:?}");
        assert!(matches!(&answers[1], Ok(TargetState::Gone(_))), "{answers:?}");
    }
    let answers = place.find(&targets, vec![item(0, instance(), by_id())]).await;
    assert!(matches!(&answers[0], Ok(TargetState::Gone(_))), "{answers:?}");
    assert_eq!(failed(&answers[1]), Some((ErrorKind::Malformed, false)), "no answer");
    // A cloud that shows the end of a target only by its route has no ID to ask for.
    let blackhole = RouteTarget::Blackhole("rtb-1".to_owned());
    let word = gone(proto::ProofMethod::ProvidersWord, "blackhole");
    let about = target(Target::Blackhole("rtb-1".to_owned()));
    let answers = place.find(&[blackhole], vec![item(0, about, word)]).await;
    assert!(matches!(&answers[0], Ok(TargetState::Gone(_))), "{answers:?}");
}
