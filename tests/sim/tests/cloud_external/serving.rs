//! The server side: sockets, limits, page tokens, clouds that violate the contract.

use std::{borrow::Cow, sync::Arc, time::Duration};

use async_trait::async_trait;
use ccm_cloud::{
    Call, Cloud, CloudError, Detail, ErrorKind, InstanceTraits, Instances, Lookup, NodeIdentity,
    ProviderId,
};
use ccm_external::proto::{
    self, instances_client::InstancesClient, provider_client::ProviderClient,
    routes_client::RoutesClient,
};
use ccm_external_server::Listener;
use ccm_sim::{
    cloud::SimCloud,
    faults::{Fault, FaultEffect},
};
use tonic::{Code, transport::Channel};

use crate::place::{Place, Served, Stub, call, instances};

async fn raw(served: &Served) -> Channel {
    Channel::from_shared(served.endpoint.clone()).unwrap().connect().await.unwrap()
}

#[tokio::test]
async fn stale_sockets_are_replaced_and_live_ones_are_not() {
    let place = Place::new();
    let endpoint = place.socket("s");
    drop(std::os::unix::net::UnixListener::bind(place.path("s")).unwrap());
    assert!(place.path("s").exists(), "a crash leaves the file");
    let first = Listener::bind(&endpoint).await.expect("a dead process's file is replaced");
    let error = Listener::bind(&endpoint).await.unwrap_err();
    assert!(error.to_string().contains(&endpoint), "{error}");
    // A successor's file is not removed by its predecessor.
    std::fs::remove_file(place.path("s")).unwrap();
    let second = Listener::bind(&endpoint).await.unwrap();
    drop(first);
    assert!(place.path("s").exists());
    drop(second);
    assert!(!place.path("s").exists());
    // A file that is not a socket is left alone.
    place.write("file", "precious");
    Listener::bind(&place.socket("file")).await.unwrap_err();
    assert_eq!(std::fs::read(place.path("file")).unwrap(), b"precious");
}

#[tokio::test]
async fn server_and_client_accept_the_same_endpoints() {
    for endpoint in ["unix://relative", "127.0.0.1:80", "http://127.0.0.1", "ftp://127.0.0.1:0"] {
        let error = Listener::bind(endpoint).await.unwrap_err();
        assert!(error.to_string().contains(endpoint), "{error}");
    }
    let listener = Listener::bind("http://127.0.0.1:0").await.unwrap();
    let port: u16 = listener.endpoint().strip_prefix("http://127.0.0.1:").unwrap().parse().unwrap();
    assert_ne!(port, 0);
    assert!(
        Listener::bind("https://[::1]:0").await.unwrap().endpoint().starts_with("https://[::1]:")
    );
}

#[tokio::test]
async fn limits_are_advertised_and_enforced() {
    let sim = SimCloud::new();
    sim.add_many(0, 1100);
    let served = Served::start(sim.clone(), "http://127.0.0.1:0", None).await;
    let channel = raw(&served).await;
    let description = ProviderClient::new(channel.clone())
        .describe(proto::DescribeRequest {})
        .await
        .unwrap()
        .into_inner();
    assert_eq!(description.max_batch(), 500);
    assert_eq!(
        (description.provider().to_owned(), description.capabilities),
        ("sim".to_owned(), ["instances", "load-balancers", "routes"].map(str::to_owned).to_vec())
    );

    let mut client = InstancesClient::new(channel);
    let nodes = vec![proto::NodeIdentity::default(); 10_001];
    let status = client
        .lookup_instances(proto::LookupInstancesRequest { nodes, ..Default::default() })
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("at most 10000"), "{status}");

    let page = |page_token: &str, page_size| proto::ListInstancesRequest {
        page_token: Some(page_token.to_owned()),
        page_size: Some(page_size),
        ..Default::default()
    };
    for (size, expect) in [(0, 500), (10, 10), (100_000, 500)] {
        assert_eq!(
            client.list_instances(page("", size)).await.unwrap().into_inner().instances.len(),
            expect
        );
    }
    // All pages of a list show the state at its first page.
    let first = client.list_instances(page("", 500)).await.unwrap().into_inner();
    sim.clear();
    let second =
        client.list_instances(page(first.next_page_token(), 500)).await.unwrap().into_inner();
    let third =
        client.list_instances(page(second.next_page_token(), 500)).await.unwrap().into_inner();
    assert_eq!((second.instances.len(), third.instances.len()), (500, 100));
    assert_eq!(third.next_page_token, None);
    for token in [second.next_page_token(), "x", "0.5", "0000000000000000.0", "."] {
        let status = client.list_instances(page(token, 500)).await.unwrap_err();
        assert_eq!(status.code(), Code::Aborted, "{token}");
        assert!(status.message().contains("list again from the first page"), "{status}");
    }
}

#[tokio::test]
async fn missing_capabilities_are_unimplemented() {
    let served = Served::start(Stub::offering("stub", Ok(None)), "http://127.0.0.1:0", None).await;
    let mut client = InstancesClient::new(raw(&served).await);
    let status = client.list_instances(proto::ListInstancesRequest::default()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
    assert!(status.message().contains("does not offer instances"), "{status}");
    let question = || proto::LookupInstancesRequest::default();
    let status = client.lookup_instances(question()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented, "{status}");
    let mut client = RoutesClient::new(raw(&served).await);
    let status = client.list_routes(proto::ListRoutesRequest::default()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
    assert!(status.message().contains("does not offer routes"), "{status}");
    let changes = proto::ApplyRoutesRequest::default();
    let status = client.apply_routes(changes).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented, "{status}");
    let targets = proto::FindRouteTargetsRequest::default();
    let status = client.find_route_targets(targets).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented, "{status}");
}

#[tokio::test]
async fn a_wrong_number_of_answers_is_rejected() {
    let place = Place::new();
    place.configure(&place.socket("s"));
    let sim = SimCloud::new();
    let known = sim.add_many(0, 600);
    let _served = Served::start(sim.clone(), &place.socket("s"), None).await;
    let cloud = place.client().await.unwrap();
    let instances = instances(&cloud).await;
    let nodes: Vec<_> = known.iter().map(|instance| NodeIdentity::named(&instance.name)).collect();
    for more in [-1, 1, -100] {
        sim.faults().add(Fault::new(FaultEffect::AnswerCount(more)).times(1));
        let answers = instances.lookup(&nodes, Detail::Everything, call()).await;
        assert_eq!(answers.len(), nodes.len());
        let malformed = answers.iter().filter(|answer| {
            answer.as_ref().is_err_and(|error| error.kind == ErrorKind::Malformed)
        });
        let count = malformed.count();
        assert!(count == 500 || count == 100, "one part only: {count}");
        assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 600 - count);
    }
}

#[tokio::test]
async fn a_cloud_that_exceeds_its_deadline_is_cancelled() {
    let served = Served::start(SimCloud::new(), "http://127.0.0.1:0", None).await;
    let mut client = ProviderClient::new(raw(&served).await);
    let mut question = tonic::Request::new(proto::HealthRequest::default());
    question.set_timeout(Duration::from_secs(5));
    client.health(question).await.unwrap();

    let place = Place::new();
    let sim = SimCloud::new();
    sim.faults().add(Fault::new(FaultEffect::Hang));
    let served = Served::start(sim, &place.socket("s"), None).await;
    place.configure(&served.endpoint);
    let cloud = place.client().await.unwrap();
    let error = cloud.health(Call::waiting(Duration::from_millis(400))).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Timeout);
    assert!(
        error.message.contains("too long") || error.message.contains("did not answer"),
        "{error}"
    );
}

/// A cloud that writes its IDs in lower case and accepts the others.
struct LowerCase(SimCloud);

#[async_trait]
impl Cloud for LowerCase {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn schemes(&self) -> Vec<String> {
        self.0.schemes()
    }

    fn canonical_id<'a>(&self, provider_id: &'a str) -> Cow<'a, str> {
        provider_id.to_lowercase().into()
    }

    fn instances(&self) -> Result<Option<Arc<dyn Instances>>, CloudError> {
        self.0.instances()
    }

    async fn health(&self, call: Call) -> Result<(), CloudError> {
        self.0.health(call).await
    }
}

#[tokio::test]
async fn the_spelling_of_the_request_is_recognised_and_returned() {
    let place = Place::new();
    place.configure(&place.socket("s"));
    let sim = SimCloud::new();
    sim.add_many(0, 3);
    let _served = Served::start(LowerCase(sim), &place.socket("s"), None).await;
    let cloud = place.client().await.unwrap();
    let instances = instances(&cloud).await;
    let asked = ["sim://I-00001", "sim://i-00002", "sim://I-00009"];
    let nodes = asked
        .map(|id| NodeIdentity { provider_id: Some(id.to_owned()), ..NodeIdentity::named("n") });
    let answers = instances.lookup(&nodes, Detail::Presence, call()).await;
    let found = |place: usize| match &answers[place] {
        Ok(Lookup::Found(instance)) => (
            instance.provider_id.as_str(),
            instance.other_ids.iter().map(ProviderId::as_str).collect(),
        ),
        other => panic!("{other:?}"),
    };
    assert_eq!(found(0), ("sim://i-00001", vec![asked[0]]));
    assert_eq!(found(1), (asked[1], vec![]));
    assert!(matches!(answers[2], Ok(Lookup::Gone(_))), "{:?}", answers[2]);
}

/// If the cloud reads a whole list for it, a lookup of a large cluster is one call.
#[tokio::test]
async fn a_lookup_of_a_large_cluster_is_one_call() {
    let place = Place::new();
    place.configure(&place.socket("s"));
    let sim = SimCloud::new();
    sim.set_traits(InstanceTraits { lists_for_lookups: true, ..InstanceTraits::default() });
    sim.add_many(0, 5_000);
    let _served = Served::start(sim, &place.socket("s"), None).await;
    let cloud = place.client().await.unwrap();
    let instances = instances(&cloud).await;
    assert!(instances.traits().lists_for_lookups);
    let nodes: Vec<_> =
        (0..5_000).map(|number| NodeIdentity::named(format!("node-{number:05}"))).collect();
    let answers = instances.lookup(&nodes, Detail::Everything, call()).await;
    assert!(answers.iter().all(|answer| matches!(answer, Ok(Lookup::Found(_)))));
    let calls = place.gate.admitted.lock();
    let lookups = calls.iter().filter(|(class, _)| class.operation == "lookup_instances").count();
    assert_eq!(lookups, 1);
}
