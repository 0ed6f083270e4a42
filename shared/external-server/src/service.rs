//! The gRPC services, implemented with a [`Cloud`].

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use ccm_cloud::{
    Call, Capability, Cloud, CloudError, Detail, ErrorKind, Fleet, InstanceTraits, Instances,
    Lookup::Found, LookupResult, NodeIdentity, ProviderId,
};
use ccm_external::{
    MAX_BATCH, MAX_LOOKUP, TERM,
    answers::flowing,
    proto::{self, instances_server, provider_server},
};
use futures::{StreamExt as _, stream::BoxStream};
use tokio::time::timeout_at;
use tonic::{Request, Response, Status, async_trait, metadata::MetadataMap};

use super::{
    convert::{
        answer_to_wire, detail_from_wire, error_to_wire, instance_to_wire, load_balancers,
        node_from_wire, priority_from_wire, routes, to_status, wants_to_wire,
    },
    snapshots::Snapshots,
};

/// The time limit of a call without a client deadline.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
/// The server's deadline is shorter than the client's by this, so that the client receives the
/// server's timeout error.
const HEAD_START: Duration = Duration::from_millis(20);

pub struct ProviderService {
    cloud: Arc<dyn Cloud>,
}

impl ProviderService {
    pub fn new(cloud: Arc<dyn Cloud>) -> Self {
        Self { cloud }
    }
}

#[async_trait]
impl provider_server::Provider for ProviderService {
    async fn describe(
        &self,
        _: Request<proto::DescribeRequest>,
    ) -> Result<Response<proto::DescribeResponse>, Status> {
        let (mut capabilities, mut unknown) = (Vec::new(), Vec::new());
        let instances = self.cloud.instances();
        let balancers = self.cloud.load_balancers();
        let tables = self.cloud.routes();
        for (capability, offered) in [
            (Capability::Instances, instances.as_ref().map(Option::is_some)),
            (Capability::LoadBalancers, balancers.as_ref().map(Option::is_some)),
            (Capability::Routes, tables.as_ref().map(Option::is_some)),
        ] {
            let name = capability.to_string();
            match offered {
                Ok(true) => capabilities.push(name),
                Ok(false) => {}
                Err(error) => unknown.push(proto::UnknownCapability {
                    name: Some(name),
                    error: Some(error_to_wire(error)),
                }),
            }
        }
        // The client asks again if the provider does not know its description yet.
        if let (true, Err(error)) = (capabilities.is_empty(), &instances) {
            return Err(to_status(error));
        }
        let traits = instances.ok().flatten().map(|instances| instances.traits());
        let traits = traits.unwrap_or_default();
        let balancers = balancers.ok().flatten().map(|offered| offered.traits());
        let tables = tables.ok().flatten().map(|offered| offered.traits());
        let InstanceTraits { lists, labels_only_add, lists_for_lookups, wants } = traits;
        let max_batch = if lists_for_lookups { MAX_LOOKUP } else { MAX_BATCH };
        Ok(Response::new(proto::DescribeResponse {
            provider: Some(self.cloud.name().to_owned()),
            schemes: self.cloud.schemes(),
            capabilities,
            max_batch: u32::try_from(max_batch).ok(),
            lists: Some(lists),
            labels_only_add: Some(labels_only_add),
            wants: wants_to_wire(wants),
            load_balancers: balancers.as_ref().map(load_balancers::traits_to_wire),
            unknown,
            routes: tables.as_ref().map(routes::traits_to_wire),
            identity: self.cloud.identity(),
        }))
    }

    async fn health(
        &self,
        request: Request<proto::HealthRequest>,
    ) -> Result<Response<proto::HealthResponse>, Status> {
        let call = terms(request.metadata(), request.get_ref().priority());
        within(call, self.cloud.health(call)).await?.map_err(|error| to_status(&error))?;
        Ok(Response::new(proto::HealthResponse {}))
    }
}

pub struct InstancesService {
    cloud: Arc<dyn Cloud>,
    snapshots: Snapshots<Fleet>,
}

impl InstancesService {
    pub fn new(cloud: Arc<dyn Cloud>) -> Self {
        Self { cloud, snapshots: Snapshots::default() }
    }

    fn instances(&self) -> Result<Arc<dyn Instances>, CloudError> {
        offered(&*self.cloud, Capability::Instances, self.cloud.instances())
    }
}

/// A lookup requested by the client.
struct Lookup {
    nodes: Vec<NodeIdentity>,
    /// The client's spelling of a provider ID, if the cloud has another one for it.
    spelt: Vec<Option<ProviderId>>,
    detail: Detail,
    call: Call,
}

impl Lookup {
    fn read(
        cloud: &dyn Cloud,
        request: Request<proto::LookupInstancesRequest>,
    ) -> Result<Self, Status> {
        let question = request.get_ref();
        let call = terms(request.metadata(), question.priority());
        let detail = detail_from_wire(question.detail());
        let mut nodes: Vec<NodeIdentity> =
            request.into_inner().nodes.into_iter().map(node_from_wire).collect();
        if nodes.len() > MAX_LOOKUP {
            let what =
                format!("{} nodes in one lookup; at most {MAX_LOOKUP} are taken", nodes.len());
            return Err(to_status(&CloudError::new(ErrorKind::Invalid, what)));
        }
        let spelt = nodes.iter_mut().map(|node| canonicalise(cloud, node)).collect();
        Ok(Self { nodes, spelt, detail, call })
    }

    /// Sends each answer when the cloud returns it, and an error for each late one.
    async fn answer(
        self,
        instances: Arc<dyn Instances>,
        send: impl Fn(usize, &NodeIdentity, &LookupResult),
    ) {
        let Self { nodes, spelt, detail, call } = self;
        let mut left: BTreeSet<usize> = (0..nodes.len()).collect();
        let mut answers = instances.lookup_each(&nodes, detail, call);
        let pass_on = async {
            while let Some((place, mut answer)) = answers.next().await {
                if let Some(node) = nodes.get(place).filter(|_| left.remove(&place)) {
                    recognise(&mut answer, spelt.get(place));
                    send(place, node, &answer);
                }
            }
            CloudError::new(ErrorKind::Malformed, "the cloud gave no answer about this node")
        };
        let missing = timeout_at(call.end, pass_on).await.unwrap_or_else(|_| too_late(call));
        for (place, node) in nodes.iter().enumerate().filter(|(place, _)| left.contains(place)) {
            send(place, node, &Err(missing.clone()));
        }
    }
}

/// Changes the node's provider ID to the cloud's spelling. Returns the old one if it differed: a
/// client does not know the spellings of the cloud behind this server.
fn canonicalise(cloud: &dyn Cloud, node: &mut NodeIdentity) -> Option<ProviderId> {
    let asked = node.provider_id.take()?;
    let canonical = cloud.canonical_id(&asked).into_owned();
    let is_other = canonical != asked;
    node.provider_id = Some(canonical);
    ProviderId::parse(&asked).ok().filter(|_| is_other)
}

/// Adds the request's spelling to the instance's.
fn recognise(answer: &mut LookupResult, spelt: Option<&Option<ProviderId>>) {
    if let (Ok(Found(instance)), Some(Some(spelt))) = (answer, spelt)
        && instance.provider_id != *spelt
        && !instance.other_ids.contains(spelt)
    {
        instance.other_ids.push(spelt.clone());
    }
}

#[async_trait]
impl instances_server::Instances for InstancesService {
    type LookupInstancesStream = BoxStream<'static, Result<proto::LookupInstancesItem, Status>>;

    async fn lookup_instances(
        &self,
        request: Request<proto::LookupInstancesRequest>,
    ) -> Result<Response<Self::LookupInstancesStream>, Status> {
        let lookup = Lookup::read(&*self.cloud, request)?;
        let instances = self.instances().map_err(|error| to_status(&error))?;
        let answers = flowing(|sender| {
            lookup.answer(instances, move |place, node, answer| {
                let answer = Some(answer_to_wire(&node.name, answer));
                let item = proto::LookupInstancesItem { place: u32::try_from(place).ok(), answer };
                // The client has disconnected and needs no answer.
                sender.unbounded_send(Ok(item)).ok();
            })
        });
        Ok(Response::new(answers.boxed()))
    }

    async fn list_instances(
        &self,
        request: Request<proto::ListInstancesRequest>,
    ) -> Result<Response<proto::ListInstancesResponse>, Status> {
        let question = request.get_ref();
        let call = terms(request.metadata(), question.priority());
        let instances = self.instances().map_err(|error| to_status(&error))?;
        let read = async {
            let list = within(call, instances.list(call)).await?;
            list.map_err(|error| to_status(&error))
        };
        let page = self.snapshots.open(question.page_token(), read).await?;
        let all = &page.list.instances;
        let (range, next_page_token) = self.snapshots.cut(&page, all.len(), question.page_size());
        let malformed = if range.start == 0 { page.list.malformed.clone() } else { Vec::new() };
        let shown = all.get(range).unwrap_or_default();
        Ok(Response::new(proto::ListInstancesResponse {
            instances: shown.iter().map(instance_to_wire).collect(),
            malformed,
            next_page_token,
        }))
    }
}

/// Returns the client's parameters of the call.
pub fn terms(metadata: &MetadataMap, priority: proto::Priority) -> Call {
    let given =
        metadata.get("grpc-timeout").and_then(|value| value.to_str().ok()).and_then(parse_timeout);
    let timeout =
        given.map_or(DEFAULT_TIMEOUT, |given| given.saturating_sub(HEAD_START.min(given / 4)));
    let term = metadata.get(TERM).and_then(|term| term.to_str().ok()?.parse().ok());
    Call::new(timeout, priority_from_wire(priority)).in_term(term)
}

/// Parses `grpc-timeout`: at most eight digits and a unit.
fn parse_timeout(text: &str) -> Option<Duration> {
    let unit = text.chars().last()?;
    let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
    Some(match unit {
        'H' => Duration::from_secs(number.saturating_mul(3600)),
        'M' => Duration::from_secs(number.saturating_mul(60)),
        'S' => Duration::from_secs(number),
        'm' => Duration::from_millis(number),
        'u' => Duration::from_micros(number),
        'n' => Duration::from_nanos(number),
        _ => return None,
    })
}

/// Enforces the deadline, even if the cloud does not.
pub async fn within<T>(call: Call, work: impl Future<Output = T>) -> Result<T, Status> {
    timeout_at(call.end, work).await.map_err(|_| to_status(&too_late(call)))
}

/// Returns a capability as the cloud has returned it, or the error that it does not offer it.
pub fn offered<C: ?Sized>(
    cloud: &dyn Cloud,
    what: Capability,
    found: Result<Option<Arc<C>>, CloudError>,
) -> Result<Arc<C>, CloudError> {
    let none = || {
        let what = format!("the provider {:?} does not offer {what}", cloud.name());
        CloudError::new(ErrorKind::Unsupported, what)
    };
    found?.ok_or_else(none)
}

pub fn too_late(call: Call) -> CloudError {
    let what = format!("the cloud did not answer within {:.1} s", call.timeout.as_secs_f64());
    CloudError::new(ErrorKind::Timeout, what)
}

#[cfg(test)]
mod tests {
    use ccm_cloud::Priority;

    use super::*;

    #[test]
    fn reads_the_deadline_of_the_wire() {
        for (text, expect) in [
            ("30000000u", Some(Duration::from_secs(30))),
            ("5S", Some(Duration::from_secs(5))),
            ("2M", Some(Duration::from_mins(2))),
            ("1H", Some(Duration::from_hours(1))),
            ("7m", Some(Duration::from_millis(7))),
            ("9n", Some(Duration::from_nanos(9))),
            ("5", None),
            ("S", None),
            ("", None),
            ("-1S", None),
            ("5x", None),
        ] {
            assert_eq!(parse_timeout(text), expect, "{text}");
        }
    }

    #[test]
    fn leaves_the_client_time_to_hear_the_answer() {
        let mut metadata = MetadataMap::new();
        assert_eq!(terms(&metadata, proto::Priority::Unspecified).timeout, DEFAULT_TIMEOUT);
        for (given, expect) in [("10S", 9_980), ("40m", 30), ("0m", 0)] {
            metadata.insert("grpc-timeout", given.parse().unwrap());
            let call = terms(&metadata, proto::Priority::Routine);
            assert_eq!(
                (call.timeout, call.priority),
                (Duration::from_millis(expect), Priority::Routine),
                "{given}"
            );
        }
    }
}
