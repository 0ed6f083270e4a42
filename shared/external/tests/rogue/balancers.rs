//! Answers about load balancers that are empty, too long, or invalid.

use std::collections::BTreeMap;

use ccm_cloud::{
    Digest, FrontEnd, Loss, Members, MembersSet, Pool, Progress, Protocol, Traffic, Waiting, Wanted,
};
use proto::{
    ensure_load_balancers_item::Answer as Ensured, load_balancers_server,
    load_balancers_server::LoadBalancersServer, set_members_item::Answer as Changed,
};

use super::{refusals::change, *};

pub type Items<I> = BoxStream<'static, Result<I, Status>>;

/// The answers of a server about load balancers.
pub trait Answers: Send + Sync + 'static {
    fn ensured(
        &self,
        _: &proto::EnsureLoadBalancersRequest,
    ) -> Result<Vec<proto::EnsureLoadBalancersItem>, Status> {
        Err(Status::unimplemented(""))
    }

    fn changed(
        &self,
        request: proto::SetMembersRequest,
    ) -> Result<Vec<proto::SetMembersItem>, Status>;
}

/// Serves load balancers with these answers.
pub struct Balancers<A>(pub A);

pub fn items<I: Send + 'static>(items: Vec<I>) -> Response<Items<I>> {
    Response::new(stream::iter(items.into_iter().map(Ok)).boxed())
}

#[async_trait]
impl<A: Answers> load_balancers_server::LoadBalancers for Balancers<A> {
    type EnsureLoadBalancersStream = Items<proto::EnsureLoadBalancersItem>;
    type PreviewLoadBalancersStream = Items<proto::PreviewLoadBalancersItem>;
    type SetMembersStream = Items<proto::SetMembersItem>;
    type DeleteLoadBalancersStream = Items<proto::DeleteLoadBalancersItem>;

    async fn list_load_balancers(
        &self,
        _: Request<proto::ListLoadBalancersRequest>,
    ) -> Result<Response<proto::ListLoadBalancersResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn ensure_load_balancers(
        &self,
        request: Request<proto::EnsureLoadBalancersRequest>,
    ) -> Result<Response<Self::EnsureLoadBalancersStream>, Status> {
        self.0.ensured(request.get_ref()).map(items)
    }

    async fn preview_load_balancers(
        &self,
        _: Request<proto::EnsureLoadBalancersRequest>,
    ) -> Result<Response<Self::PreviewLoadBalancersStream>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn set_members(
        &self,
        request: Request<proto::SetMembersRequest>,
    ) -> Result<Response<Self::SetMembersStream>, Status> {
        self.0.changed(request.into_inner()).map(items)
    }

    async fn delete_load_balancers(
        &self,
        _: Request<proto::DeleteLoadBalancersRequest>,
    ) -> Result<Response<Self::DeleteLoadBalancersStream>, Status> {
        Err(Status::unimplemented(""))
    }
}

/// Gives these answers to each change of members, and to each load balancer that is wanted.
#[derive(Clone, Default)]
struct Crooked(Arc<Mutex<Option<Changed>>>, Arc<Mutex<Option<Ensured>>>);

impl Answers for Crooked {
    fn ensured(
        &self,
        request: &proto::EnsureLoadBalancersRequest,
    ) -> Result<Vec<proto::EnsureLoadBalancersItem>, Status> {
        // The answer says that the load balancer must not be replaced.
        let wanted = &request.wanted[0];
        assert_eq!((wanted.keep, wanted.known.as_deref()), (Some(true), Some("lb-1")));
        let (answer, owner_uid) = (self.1.lock().clone(), Some("web".to_owned()));
        Ok(vec![proto::EnsureLoadBalancersItem { place: Some(0), owner_uid, answer }])
    }

    fn changed(&self, _: proto::SetMembersRequest) -> Result<Vec<proto::SetMembersItem>, Status> {
        let (answer, owner_uid) = (self.0.lock().clone(), Some("web".to_owned()));
        Ok(vec![proto::SetMembersItem { place: Some(0), owner_uid, answer }])
    }
}

/// Returns a cloud whose server gives such answers.
async fn place() -> (Crooked, Arc<dyn Cloud>, JoinSet<()>) {
    let description = proto::DescribeResponse {
        capabilities: vec!["load-balancers".to_owned()],
        load_balancers: Some(proto::LoadBalancerTraits {
            max_batch: Some(100),
            ..Default::default()
        }),
        ..description()
    };
    let crooked = Crooked::default();
    let router =
        Server::builder().add_service(LoadBalancersServer::new(Balancers(crooked.clone())));
    let (cloud, server) = serve(router, description).await;
    cloud.health(call()).await.unwrap();
    (crooked, cloud, server)
}

#[tokio::test]
async fn answers_to_a_change_of_members_are_read_as_they_are() {
    let (crooked, cloud, _server) = place().await;
    let balancers = cloud.load_balancers().unwrap().unwrap();
    let ask = async |answer: Option<Changed>| {
        *crooked.0.lock() = answer;
        balancers.set_members(&[change("web")], call()).next().await.unwrap().1
    };
    let done = |changed, pools: Option<Vec<proto::Pool>>| {
        let pools = pools.map(|pools| proto::PoolList { pools });
        Some(Changed::Done(proto::MembersSet { version: None, changed, pools }))
    };
    let pool = || proto::Pool {
        protocol: Some(proto::TransportProtocol::Tcp.into()),
        port: Some(80),
        members: Some(0),
        why_empty: Some("two\nlines".to_owned()),
    };
    // An older server does not set these fields.
    let old = MembersSet { version: None, changed: true, pools: None };
    assert_eq!(ask(done(None, None)).await, Ok(Progress::Done(old)));
    let Ok(Progress::Done(set)) = ask(done(Some(false), Some(vec![pool()]))).await else {
        panic!("not done")
    };
    let [Pool { protocol: Protocol::Tcp, port: 80, members: 0, why_empty: Some(why) }] =
        &set.pools.unwrap()[..]
    else {
        panic!("another pool")
    };
    assert!(!set.changed && !why.contains('\n'), "{why}");
    let waits =
        |changed| Some(Changed::InProgress(proto::InProgress { changed, ..Default::default() }));
    for (changed, expect) in [(None, true), (Some(true), true), (Some(false), false)] {
        let answer = ask(waits(changed)).await;
        let is_so = matches!(answer, Ok(Progress::InProgress(Waiting { changed, .. })) if changed == expect);
        assert!(is_so, "{answer:?}");
    }
    // `NotSeen` needs no reason.
    for (reason, expect) in [
        (None, "the provider does not say what"),
        (Some(String::new()), "the provider does not say what"),
        (Some("pool 1 is empty".to_owned()), "pool 1 is empty"),
    ] {
        let answer = ask(Some(Changed::NotSeen(proto::NotSeen { reason }))).await;
        assert_eq!(answer, Ok(Progress::NotSeen(expect.to_owned())));
    }
    for answer in [
        None,
        done(Some(true), Some(vec![pool(), pool()])),
        done(Some(true), Some(vec![proto::Pool { members: None, ..pool() }])),
        done(Some(true), Some(vec![pool(); 5_000])),
    ] {
        let error = ask(answer.clone()).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Malformed, "{answer:?}: {error}");
    }
}

/// Returns an existing load balancer that must not be replaced.
fn keep() -> Wanted {
    let front_end = FrontEnd {
        owner: change("web").owner,
        digest: Digest { version: 1, hash: 1 },
        families: Vec::new(),
        requires_families: false,
        ports: Vec::new(),
        source_ranges: Vec::new(),
        address: None,
        affinity: None,
        traffic: Traffic::Cluster,
        class: None,
        settings: BTreeMap::new(),
        service: None,
    };
    Wanted {
        front_end: Arc::new(front_end),
        members: Members::default(),
        known: Some("lb-1".to_owned()),
        adopt: None,
        shown: Vec::new(),
        may_replace: false,
    }
}

/// An older server does not say whether it asks first, so the client must assume that it replaces
/// without asking.
#[tokio::test]
async fn a_loss_is_read_as_it_is() {
    let (crooked, cloud, _server) = place().await;
    let balancers = cloud.load_balancers().unwrap().unwrap();
    assert!(!balancers.traits().asks_before_replacing);
    let why = |text: &str| Some(text.to_owned());
    for (reason, gone, expect) in [
        (None, None, ("the provider does not say why", false)),
        (why(""), Some(false), ("the provider does not say why", false)),
        (why("lb-1: 404"), Some(true), ("lb-1: 404", true)),
        (why("two\nlines"), Some(true), ("two lines", true)),
    ] {
        *crooked.1.lock() = Some(Ensured::Lost(proto::Lost { reason, gone }));
        let answer = balancers.ensure(&[keep()], call()).next().await.unwrap().1;
        let loss = Loss { why: expect.0.to_owned(), is_gone: expect.1 };
        assert_eq!(answer, Ok(Progress::Lost(loss)));
    }
    *crooked.1.lock() =
        Some(Ensured::Lost(proto::Lost { reason: Some("x".repeat(1 << 20)), gone: None }));
    let answer = balancers.ensure(&[keep()], call()).next().await.unwrap().1;
    let Ok(Progress::Lost(loss)) = answer else { panic!("{answer:?}") };
    assert!(loss.why.len() < 10_000, "{}", loss.why.len());
    // A missing answer is an error.
    *crooked.1.lock() = None;
    let error = balancers.ensure(&[keep()], call()).next().await.unwrap().1.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Malformed, "{error}");
}
