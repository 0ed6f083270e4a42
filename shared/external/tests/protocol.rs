//! The protocol file itself: what it says, that it goes with the contract, and that a
//! provider that was built for its first revision still works.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail by panic")]

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use ccm_cloud::{
    Call, Cloud, Detail, ErrorKind, InstanceTraits, Lookup, NodeIdentity, PowerState, ProofMethod,
    ProviderConfig, ProviderContext, ProviderFactory,
};
use ccm_external::ExternalFactory;
use prost_types::{FileDescriptorProto, field_descriptor_proto::Label};
use tokio::{net::TcpListener, task::JoinSet};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status, async_trait, transport::Server};

const FILE: &str = "quartet/cloud/v1/cloud.proto";

fn protocol(folder: &str) -> FileDescriptorProto {
    let files = protox::compile([FILE], [folder]).unwrap();
    files.file.into_iter().find(|file| file.name() == FILE).unwrap()
}

#[test]
fn every_scalar_has_explicit_presence() {
    for message in protocol("proto").message_type {
        for field in &message.field {
            let explicit = field.proto3_optional()
                || field.oneof_index.is_some()
                || field.label() == Label::Repeated
                // Messages have it by themselves.
                || field.r#type() == prost_types::field_descriptor_proto::Type::Message;
            assert!(explicit, "{}.{} is not optional", message.name(), field.name());
        }
    }
}

/// The methods of a trait, by its source.
fn methods(source: &str, name: &str) -> BTreeSet<String> {
    let (_, body) = source.split_once(&format!("pub trait {name}: ")).unwrap();
    let (body, _) = body.split_once("\n}").unwrap();
    let method = |line: &str| {
        let line = line.strip_prefix("    ")?;
        let line = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ")?;
        Some(line.split(['(', '<']).next()?.to_owned())
    };
    body.lines().filter_map(method).collect()
}

/// Fields are held together by the conversions, which do not compile when one side has a
/// field that the other lacks.
#[test]
fn trait_and_protocol_have_the_same_methods() {
    let (describe, health) = ("Provider.Describe", "Provider.Health");
    let pairs = [
        // Traits of the provider are reported once, by `Describe`.
        ("Cloud.name", describe),
        ("Cloud.schemes", describe),
        ("Cloud.identity", describe),
        ("Cloud.instances", describe),
        ("Cloud.load_balancers", describe),
        ("Cloud.routes", describe),
        ("Instances.traits", describe),
        ("LoadBalancers.traits", describe),
        ("Routes.traits", describe),
        ("Cloud.health", health),
        ("Instances.lookup", "Instances.LookupInstances"),
        ("Instances.lookup_each", "Instances.StreamLookupInstances"),
        ("Instances.list", "Instances.ListInstances"),
        ("LoadBalancers.list", "LoadBalancers.ListLoadBalancers"),
        ("LoadBalancers.ensure", "LoadBalancers.EnsureLoadBalancers"),
        ("LoadBalancers.preview", "LoadBalancers.PreviewLoadBalancers"),
        ("LoadBalancers.set_members", "LoadBalancers.SetMembers"),
        ("LoadBalancers.delete", "LoadBalancers.DeleteLoadBalancers"),
        ("Routes.list", "Routes.ListRoutes"),
        ("Routes.apply", "Routes.ApplyRoutes"),
        ("Routes.find_targets", "Routes.FindRouteTargets"),
        // These work on texts alone, on our side.
        ("Cloud.claim", ""),
        ("Cloud.canonical_id", ""),
        ("Cloud.why_foreign", ""),
        ("LoadBalancers.selector", ""),
        // About files of this process.
        ("Cloud.outdated", ""),
        ("Cloud.changed", ""),
        ("Cloud.shortfalls", ""),
        ("Cloud.in_clear", ""),
        ("Cloud.why_not_offered", ""),
    ];
    let traits = [
        ("Cloud", include_str!("../../cloud/src/provider.rs")),
        ("Instances", include_str!("../../cloud/src/instances.rs")),
        ("LoadBalancers", include_str!("../../cloud/src/load_balancers.rs")),
        ("Routes", include_str!("../../cloud/src/routes.rs")),
    ];
    let in_traits: BTreeSet<String> = traits
        .iter()
        .flat_map(|(name, source)| {
            methods(source, name).into_iter().map(move |method| format!("{name}.{method}"))
        })
        .collect();
    let in_pairs: BTreeSet<String> = pairs.iter().map(|(method, _)| (*method).to_owned()).collect();
    assert_eq!(in_traits, in_pairs, "the contract's methods");

    let services = protocol("proto").service;
    let in_protocol: BTreeSet<String> = services
        .iter()
        .flat_map(|service| {
            service.method.iter().map(move |method| format!("{}.{}", service.name(), method.name()))
        })
        .collect();
    let in_pairs: BTreeSet<String> =
        pairs.iter().map(|(_, call)| (*call).to_owned()).filter(|call| !call.is_empty()).collect();
    assert_eq!(in_protocol, in_pairs, "the protocol's methods");
}

/// Within v1 nothing is taken away and nothing changes its number or its type.
#[test]
fn the_first_revision_is_part_of_this_one() {
    type Fields = BTreeMap<(String, i32), (String, i32, bool)>;
    let fields = |folder| {
        let mut fields = Fields::new();
        for message in protocol(folder).message_type {
            for field in &message.field {
                let repeated = field.label() == Label::Repeated;
                let what = (field.name().to_owned(), field.r#type().into(), repeated);
                fields.insert((message.name().to_owned(), field.number()), what);
            }
        }
        fields
    };
    let (old, new) = (fields("tests/revision_1"), fields("proto"));
    assert!(old.len() > 40, "{old:?}");
    for (key, what) in old {
        assert_eq!(new.get(&key), Some(&what), "{key:?}");
    }
}

#[expect(clippy::pedantic, clippy::allow_attributes_without_reason, reason = "generated code")]
mod revision_1 {
    include!(concat!(env!("OUT_DIR"), "/revision_1/quartet.cloud.v1.rs"));
}

/// A provider of the first revision: one machine, `a`.
#[derive(Clone)]
struct Veteran;

#[async_trait]
impl revision_1::provider_server::Provider for Veteran {
    async fn describe(
        &self,
        _: Request<revision_1::DescribeRequest>,
    ) -> Result<Response<revision_1::DescribeResponse>, Status> {
        Ok(Response::new(revision_1::DescribeResponse {
            provider: "veteran".to_owned(),
            schemes: vec!["metal".to_owned()],
            capabilities: vec!["instances".to_owned()],
            protocol_revision: 1,
            max_batch: 2,
        }))
    }

    async fn health(
        &self,
        _: Request<revision_1::HealthRequest>,
    ) -> Result<Response<revision_1::HealthResponse>, Status> {
        Ok(Response::new(revision_1::HealthResponse {}))
    }
}

fn machine() -> revision_1::Instance {
    revision_1::Instance {
        provider_id: "metal://1".to_owned(),
        name: "a".to_owned(),
        power: revision_1::PowerState::Running.into(),
        ..Default::default()
    }
}

#[async_trait]
impl revision_1::instances_server::Instances for Veteran {
    async fn lookup_instances(
        &self,
        request: Request<revision_1::LookupInstancesRequest>,
    ) -> Result<Response<revision_1::LookupInstancesResponse>, Status> {
        use revision_1::lookup_answer::Answer;
        let request = request.into_inner();
        assert_eq!(request.detail(), revision_1::Detail::Presence);
        assert_eq!(request.priority(), revision_1::Priority::Routine);
        let answers = request.nodes.into_iter().map(|node| {
            let gone = || revision_1::Absence {
                method: revision_1::ProofMethod::ByName.into(),
                evidence: "no such machine".to_owned(),
                request_id: None,
            };
            let answer = match node.name.as_str() {
                "a" => Answer::Found(machine()),
                "odd" => Answer::Error(revision_1::Error::default()),
                _ => Answer::Gone(gone()),
            };
            revision_1::LookupAnswer { node: node.name, answer: Some(answer) }
        });
        let answers = answers.collect();
        Ok(Response::new(revision_1::LookupInstancesResponse { answers }))
    }

    async fn list_instances(
        &self,
        request: Request<revision_1::ListInstancesRequest>,
    ) -> Result<Response<revision_1::ListInstancesResponse>, Status> {
        let first = request.get_ref().page_token.is_empty();
        Ok(Response::new(revision_1::ListInstancesResponse {
            instances: if first { Vec::new() } else { vec![machine()] },
            malformed: Vec::new(),
            next_page_token: if first { "2".to_owned() } else { String::new() },
        }))
    }
}

#[tokio::test]
async fn a_provider_of_the_first_revision_goes_on_working() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let router = Server::builder()
        .add_service(revision_1::provider_server::ProviderServer::new(Veteran))
        .add_service(revision_1::instances_server::InstancesServer::new(Veteran));
    let mut server = JoinSet::new();
    server.spawn(async move {
        router.serve_with_incoming(TcpListenerStream::new(listener)).await.unwrap();
    });
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("endpoint: http://127.0.0.1:{port}")).unwrap();
    let config = ProviderConfig { path: Some(file.path().to_owned()) };
    let context = ProviderContext::ungated(config, "test/1");
    let cloud: Arc<dyn Cloud> = ExternalFactory.build(context).await.unwrap();
    let call = Call::routine(Duration::from_secs(10));
    cloud.health(call).await.unwrap();
    assert_eq!(cloud.schemes(), ["metal"]);
    assert!(matches!(cloud.routes(), Ok(None)), "a capability of a later revision");
    let instances = cloud.instances().unwrap().unwrap();
    assert_eq!(instances.traits(), InstanceTraits::default());
    let nodes = ["a", "b", "odd"].map(NodeIdentity::named);
    let answers = instances.lookup(&nodes, Detail::Presence, call).await;
    assert!(
        matches!(&answers[0], Ok(Lookup::Found(found)) if found.power == PowerState::Running),
        "{answers:?}"
    );
    assert!(
        matches!(&answers[1], Ok(Lookup::Gone(proof)) if proof.method == ProofMethod::ByName),
        "{answers:?}"
    );
    assert_eq!(answers[2].as_ref().unwrap_err().kind, ErrorKind::Malformed);
    let fleet = instances.list(call).await.unwrap();
    assert_eq!(fleet.instances.len(), 1, "both pages: {fleet:?}");
}
