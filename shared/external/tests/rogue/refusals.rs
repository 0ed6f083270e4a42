//! Tests a provider that refuses a request as a whole because of one item: the other items are
//! served.

use std::collections::BTreeMap;

use ccm_cloud::{MemberChange, Members, Owner, RouteChange};
use proto::{
    apply_routes_item::Answer as Applied, load_balancers_server::LoadBalancersServer,
    routes_server, routes_server::RoutesServer, set_members_item::Answer as Changed,
};

use super::{
    balancers::{Answers, Balancers, Items, items},
    routes::cluster,
    *,
};

/// A provider that refuses each request with a bad item with this status, and answers the other
/// requests.
#[derive(Clone)]
struct Picky {
    status: Status,
    /// The number of items of each request.
    asked: Arc<Mutex<Vec<usize>>>,
    /// The version of the table of routes.
    version: Arc<Mutex<u32>>,
}

impl Picky {
    fn asked(&self, names: &[String]) -> Result<(), Status> {
        self.asked.lock().push(names.len());
        let is_bad = names.iter().any(|name| name.contains("bad") || name.contains("10.244.66."));
        if is_bad { Err(self.status.clone()) } else { Ok(()) }
    }
}

fn index(place: usize) -> u32 {
    u32::try_from(place).unwrap()
}

impl Answers for Picky {
    fn changed(
        &self,
        request: proto::SetMembersRequest,
    ) -> Result<Vec<proto::SetMembersItem>, Status> {
        let uids = request.changes.into_iter().map(|change| change.owner.unwrap().uid.unwrap());
        let uids: Vec<String> = uids.collect();
        self.asked(&uids)?;
        let done = |(place, uid)| proto::SetMembersItem {
            place: Some(index(place)),
            owner_uid: Some(uid),
            answer: Some(Changed::Done(proto::MembersSet::default())),
        };
        Ok(uids.into_iter().enumerate().map(done).collect())
    }
}

#[async_trait]
impl routes_server::Routes for Picky {
    type ApplyRoutesStream = Items<proto::ApplyRoutesItem>;
    type FindRouteTargetsStream = Items<proto::FindRouteTargetsItem>;

    async fn list_routes(
        &self,
        _: Request<proto::ListRoutesRequest>,
    ) -> Result<Response<proto::ListRoutesResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn apply_routes(
        &self,
        request: Request<proto::ApplyRoutesRequest>,
    ) -> Result<Response<Self::ApplyRoutesStream>, Status> {
        let request = request.into_inner();
        let wanted = request.changes.into_iter().map(|change| match change.change {
            Some(proto::route_change::Change::Create(wanted)) => wanted,
            other => panic!("{other:?}"),
        });
        let wanted: Vec<_> = wanted.collect();
        let destinations = wanted.iter().map(|one| one.destination.clone().unwrap());
        let destinations: Vec<String> = destinations.collect();
        self.asked(&destinations)?;
        let mut version = self.version.lock();
        assert_eq!(request.base, Some(version.to_string()), "the version after the last message");
        *version += 1;
        let done = |(place, destination): (usize, String)| {
            let route = super::routes::route(&destination);
            let applied =
                proto::AppliedRoute { route: Some(route), version: Some(version.to_string()) };
            proto::ApplyRoutesItem {
                place: Some(index(place)),
                destination: Some(destination),
                answer: Some(Applied::Applied(applied)),
            }
        };
        Ok(items(destinations.into_iter().enumerate().map(done).collect()))
    }

    async fn find_route_targets(
        &self,
        _: Request<proto::FindRouteTargetsRequest>,
    ) -> Result<Response<Self::FindRouteTargetsStream>, Status> {
        Err(Status::unimplemented(""))
    }
}

#[async_trait]
impl instances_server::Instances for Picky {
    type LookupInstancesStream = Items<proto::LookupInstancesItem>;

    async fn lookup_instances(
        &self,
        request: Request<proto::LookupInstancesRequest>,
    ) -> Result<Response<Self::LookupInstancesStream>, Status> {
        let nodes = request.into_inner().nodes.into_iter().map(|node| node.name.unwrap());
        let nodes: Vec<String> = nodes.collect();
        self.asked(&nodes)?;
        let item = |(node, place): (&String, u32)| {
            Ok(proto::LookupInstancesItem { place: Some(place), answer: Some(good(node)) })
        };
        let items: Vec<_> = nodes.iter().zip(0..).map(item).collect();
        Ok(Response::new(stream::iter(items).boxed()))
    }

    async fn list_instances(
        &self,
        _: Request<proto::ListInstancesRequest>,
    ) -> Result<Response<proto::ListInstancesResponse>, Status> {
        Err(Status::unimplemented(""))
    }
}

/// Returns a cloud whose server refuses so.
async fn place(status: Status) -> (Picky, Arc<dyn Cloud>, JoinSet<()>) {
    let max_batch = Some(100);
    let description = proto::DescribeResponse {
        capabilities: ["instances", "load-balancers", "routes"].map(str::to_owned).into(),
        load_balancers: Some(proto::LoadBalancerTraits { max_batch, ..Default::default() }),
        routes: Some(proto::RouteTraits { max_batch, ..Default::default() }),
        ..description()
    };
    let picky = Picky { status, asked: Arc::default(), version: Arc::default() };
    let router = Server::builder()
        .add_service(LoadBalancersServer::new(Balancers(picky.clone())))
        .add_service(InstancesServer::new(picky.clone()))
        .add_service(RoutesServer::new(picky.clone()));
    let (cloud, server) = serve(router, description).await;
    cloud.health(call()).await.unwrap();
    (picky, cloud, server)
}

pub fn change(uid: &str) -> MemberChange {
    let (uid, namespace, name) = (uid.to_owned(), "default".to_owned(), uid.to_owned());
    MemberChange {
        owner: Owner { cluster: cluster(), uid, namespace, name },
        id: "lb-1".to_owned(),
        members: Members::default(),
        front_end: None,
        settings: BTreeMap::new(),
    }
}

/// Returns the places of the items that failed, and how.
fn failed<T>(
    answers: Vec<(usize, Result<T, CloudError>)>,
    items: usize,
) -> Vec<(usize, ErrorKind)> {
    let mut places: Vec<usize> = answers.iter().map(|(place, _)| *place).collect();
    places.sort_unstable();
    assert!(places.into_iter().eq(0..items), "one answer for each item");
    let errors = answers.into_iter().filter_map(|(place, it)| Some((place, it.err()?.kind)));
    errors.collect()
}

fn refusals() -> [(Status, ErrorKind); 2] {
    [
        (Status::invalid_argument("cannot read it"), ErrorKind::Invalid),
        (Status::unimplemented("no such protocol"), ErrorKind::Unsupported),
    ]
}

#[tokio::test]
async fn a_load_balancer_that_a_provider_cannot_read_fails_alone() {
    for (status, kind) in refusals() {
        let (picky, cloud, _server) = place(status).await;
        let names =
            (0..40).map(|number| if number == 23 { "bad".into() } else { format!("s{number}") });
        let changes: Vec<MemberChange> = names.map(|name: String| change(&name)).collect();
        let balancers = cloud.load_balancers().unwrap().unwrap();
        let answers = balancers.set_members(&changes, call()).collect().await;
        assert_eq!(failed(answers, 40), [(23, kind)]);
        let asked = picky.asked.lock().clone();
        assert!(asked[0] == 40 && asked.len() <= 14, "{asked:?}");
    }
}

#[tokio::test]
async fn a_node_that_a_provider_cannot_read_fails_alone() {
    for (status, kind) in refusals() {
        let (picky, cloud, _server) = place(status).await;
        let names =
            (0..40).map(|number| if number == 0 { "bad".into() } else { format!("n{number}") });
        let nodes: Vec<NodeIdentity> =
            names.map(|name: String| NodeIdentity::named(name)).collect();
        let instances = cloud.instances().unwrap().unwrap();
        let answers = instances.lookup_each(&nodes, Detail::Everything, call()).collect().await;
        assert_eq!(failed(answers, 40), [(0, kind)]);
        let asked = picky.asked.lock().clone();
        assert!(asked[0] == 40 && asked.len() <= 14, "{asked:?}");
    }
}

/// Each message names the version after the last message that was not refused.
#[tokio::test]
async fn a_route_that_a_provider_cannot_read_fails_alone() {
    for (status, kind) in refusals() {
        let (_picky, cloud, _server) = place(status).await;
        let changes: Vec<RouteChange> = (60..70).map(super::routes::create).collect();
        let (routes, cluster) = (cloud.routes().unwrap().unwrap(), cluster());
        let answers = routes.apply(&cluster, &changes, Some("0"), call()).collect().await;
        assert_eq!(failed(answers, 10), [(6, kind)]);
    }
}

/// If nothing can be read, the provider is asked a few times, and the rest comes with the next call.
#[tokio::test]
async fn a_provider_that_refuses_everything_is_asked_a_few_times() {
    let (picky, cloud, _server) = place(Status::unimplemented("")).await;
    let changes: Vec<MemberChange> =
        (0..100).map(|number| change(&format!("bad{number}"))).collect();
    let balancers = cloud.load_balancers().unwrap().unwrap();
    let answers: Vec<_> = balancers.set_members(&changes, call()).collect().await;
    assert_eq!(picky.asked.lock().len(), 32);
    let unsent = |(_, it): &&(usize, Result<_, CloudError>)| it.as_ref().is_err_and(|e| e.unsent);
    let unsent = answers.iter().filter(unsent).count();
    assert!((1..90).contains(&unsent), "{unsent} were not sent");
}
