//! The protocol's services, answered by a [`Cloud`].

use std::{sync::Arc, time::Duration};

use ccm_cloud::{Call, Capability, Cloud, CloudError, ErrorKind, Fleet, Instances, NodeIdentity};
use tokio::time::timeout;
use tonic::{Request, Response, Status, async_trait, metadata::MetadataMap};

use super::snapshots::{self, Snapshots};
use crate::external::{
    MAX_BATCH, PROTOCOL_REVISION,
    convert::{answer_to_wire, detail_from_wire, priority_from_wire},
    proto::{self, instances_server, provider_server},
    status::to_status,
};

/// The time of a call whose client gave none.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
/// The client's deadline less this is ours, so that it hears of a timeout from us.
const HEAD_START: Duration = Duration::from_millis(20);

pub(super) struct ProviderService {
    cloud: Arc<dyn Cloud>,
}

impl ProviderService {
    pub(super) fn new(cloud: Arc<dyn Cloud>) -> Self {
        Self { cloud }
    }
}

#[async_trait]
impl provider_server::Provider for ProviderService {
    async fn describe(
        &self,
        _: Request<proto::DescribeRequest>,
    ) -> Result<Response<proto::DescribeResponse>, Status> {
        let instances = self.cloud.instances().map_err(|error| to_status(&error))?;
        let capabilities = instances.map(|_| Capability::Instances.as_str().to_owned());
        Ok(Response::new(proto::DescribeResponse {
            provider: self.cloud.name().to_owned(),
            schemes: self.cloud.schemes(),
            capabilities: capabilities.into_iter().collect(),
            protocol_revision: PROTOCOL_REVISION,
            max_batch: u32::try_from(MAX_BATCH).unwrap_or_default(),
        }))
    }

    async fn health(
        &self,
        request: Request<proto::HealthRequest>,
    ) -> Result<Response<proto::HealthResponse>, Status> {
        let call =
            terms(request.metadata(), request.get_ref().priority(), proto::Detail::Unspecified);
        within(call, self.cloud.health(call)).await?.map_err(|error| to_status(&error))?;
        Ok(Response::new(proto::HealthResponse {}))
    }
}

pub(super) struct InstancesService {
    cloud: Arc<dyn Cloud>,
    snapshots: Snapshots,
}

impl InstancesService {
    pub(super) fn new(cloud: Arc<dyn Cloud>) -> Self {
        Self { cloud, snapshots: Snapshots::default() }
    }

    fn instances(&self) -> Result<Arc<dyn Instances>, CloudError> {
        let none = || {
            CloudError::new(
                ErrorKind::Unsupported,
                format!("the provider {:?} does not offer instances", self.cloud.name()),
            )
        };
        self.cloud.instances()?.ok_or_else(none)
    }

    /// The list that a page belongs to, with its number and the page's beginning.
    async fn list(
        &self,
        page_token: &str,
        call: Call,
    ) -> Result<(Option<u64>, usize, Arc<Fleet>), Status> {
        if page_token.is_empty() {
            let instances = self.instances().map_err(|error| to_status(&error))?;
            let fleet =
                within(call, instances.list(call)).await?.map_err(|error| to_status(&error))?;
            return Ok((None, 0, Arc::new(fleet)));
        }
        let kept = snapshots::parse(page_token)
            .and_then(|(id, offset)| Some((id, offset, self.snapshots.get(id)?)));
        let (id, offset, fleet) = kept.ok_or_else(|| {
            let what = "the page token is not known (any more); list again from the first page";
            to_status(&CloudError::new(ErrorKind::Conflict, what))
        })?;
        Ok((Some(id), offset, fleet))
    }
}

#[async_trait]
impl instances_server::Instances for InstancesService {
    async fn lookup_instances(
        &self,
        request: Request<proto::LookupInstancesRequest>,
    ) -> Result<Response<proto::LookupInstancesResponse>, Status> {
        let question = request.get_ref();
        let call = terms(request.metadata(), question.priority(), question.detail());
        let nodes: Vec<NodeIdentity> =
            request.into_inner().nodes.into_iter().map(Into::into).collect();
        if nodes.len() > MAX_BATCH {
            let what =
                format!("{} nodes in one lookup; at most {MAX_BATCH} are taken", nodes.len());
            return Err(to_status(&CloudError::new(ErrorKind::Invalid, what)));
        }
        let instances = self.instances().map_err(|error| to_status(&error))?;
        let mut answers = within(call, instances.lookup(&nodes, call)).await?;
        if answers.len() != nodes.len() {
            // Which answer is missing cannot be known, so none is passed on.
            let what =
                format!("the cloud gave {} answers about {} nodes", answers.len(), nodes.len());
            answers = vec![Err(CloudError::new(ErrorKind::Malformed, what)); nodes.len()];
        }
        let answers = nodes
            .iter()
            .zip(&answers)
            .map(|(node, answer)| answer_to_wire(&node.name, answer))
            .collect();
        Ok(Response::new(proto::LookupInstancesResponse { answers }))
    }

    async fn list_instances(
        &self,
        request: Request<proto::ListInstancesRequest>,
    ) -> Result<Response<proto::ListInstancesResponse>, Status> {
        let question = request.get_ref();
        let call = terms(request.metadata(), question.priority(), question.detail());
        let question = request.into_inner();
        let (id, offset, fleet) = self.list(&question.page_token, call).await?;
        let wanted = usize::try_from(question.page_size).unwrap_or(MAX_BATCH);
        let size = if wanted == 0 { MAX_BATCH } else { wanted.min(MAX_BATCH) };
        let end = offset.saturating_add(size).min(fleet.instances.len());
        let page = fleet.instances.get(offset..end).unwrap_or_default();
        let mut answer = proto::ListInstancesResponse {
            instances: page.iter().map(Into::into).collect(),
            ..Default::default()
        };
        if offset == 0 {
            answer.malformed.clone_from(&fleet.malformed);
        }
        if end < fleet.instances.len() {
            let id = id.unwrap_or_else(|| self.snapshots.keep(Arc::clone(&fleet)));
            answer.next_page_token = snapshots::token(id, end);
        } else if let Some(id) = id {
            self.snapshots.drop(id);
        }
        Ok(Response::new(answer))
    }
}

/// How the client wants the call made.
fn terms(metadata: &MetadataMap, priority: proto::Priority, detail: proto::Detail) -> Call {
    let given =
        metadata.get("grpc-timeout").and_then(|value| value.to_str().ok()).and_then(parse_timeout);
    let timeout =
        given.map_or(DEFAULT_TIMEOUT, |given| given.saturating_sub(HEAD_START.min(given / 4)));
    Call { timeout, priority: priority_from_wire(priority), detail: detail_from_wire(detail) }
}

/// Reads `grpc-timeout`: at most eight digits and a unit.
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

/// Holds the cloud to the deadline, whether it keeps it by itself or not.
async fn within<T>(call: Call, work: impl Future<Output = T>) -> Result<T, Status> {
    timeout(call.timeout, work).await.map_err(|_| {
        let what = format!("the cloud did not answer within {:.1} s", call.timeout.as_secs_f64());
        to_status(&CloudError::new(ErrorKind::Timeout, what))
    })
}

#[cfg(test)]
mod tests {
    use ccm_cloud::{Detail, Priority};

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
        assert_eq!(
            terms(&metadata, proto::Priority::Unspecified, proto::Detail::Unspecified).timeout,
            DEFAULT_TIMEOUT
        );
        for (given, expect) in [("10S", 9_980), ("40m", 30), ("0m", 0)] {
            metadata.insert("grpc-timeout", given.parse().unwrap());
            let call = terms(&metadata, proto::Priority::Routine, proto::Detail::Presence);
            assert_eq!(
                (call.timeout, call.priority, call.detail),
                (Duration::from_millis(expect), Priority::Routine, Detail::Presence),
                "{given}"
            );
        }
    }
}
