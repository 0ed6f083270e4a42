//! The instances capability over the wire.

use std::{collections::BTreeSet, sync::Arc};

use async_trait::async_trait;
use ccm_base::message::{LONGEST_LINE, one_line};
use ccm_cloud::{
    Call, CloudError, ErrorKind, Fleet, Instance, Instances, LookupResult, NodeIdentity,
};
use futures::{StreamExt, stream};

use super::{
    MAX_BATCH,
    client::Shared,
    convert::{answer_from_wire, detail_to_wire, priority_to_wire},
    proto::{self, lookup_answer::Answer},
    rpc::{Deadline, instances_client, question},
};

/// How many parts of a large lookup are under way at once.
const PARTS_AT_ONCE: usize = 4;
/// More pages than this are a server that does not come to an end.
const MAX_PAGES: usize = 10_000;
/// No more lines about malformed entries are kept than this; the rest is counted.
const MAX_MALFORMED: usize = 1_000;

/// [`Instances`] on the other side of the wire.
pub(super) struct ExternalInstances {
    pub(super) shared: Arc<Shared>,
}

#[async_trait]
impl Instances for ExternalInstances {
    async fn lookup(&self, nodes: &[NodeIdentity], call: Call) -> Vec<LookupResult> {
        let deadline = Deadline::start(call);
        let parts: Vec<_> = nodes
            .chunks(self.shared.max_batch())
            .map(|part| self.lookup_part(part, deadline))
            .collect();
        let answers: Vec<Vec<LookupResult>> =
            stream::iter(parts).buffered(PARTS_AT_ONCE).collect().await;
        answers.into_iter().flatten().collect()
    }

    async fn list(&self, call: Call) -> Result<Fleet, CloudError> {
        let deadline = Deadline::start(call);
        let mut reading = Reading::default();
        for _ in 0..MAX_PAGES {
            let page = self.page(reading.next.clone(), deadline).await?;
            if reading.take(page)? {
                return Ok(reading.fleet);
            }
        }
        Err(CloudError::new(
            ErrorKind::Malformed,
            format!("the list of instances has more than {MAX_PAGES} pages"),
        ))
    }
}

impl ExternalInstances {
    /// One call, one answer per node: what goes wrong with the call goes wrong for each.
    async fn lookup_part(&self, nodes: &[NodeIdentity], deadline: Deadline) -> Vec<LookupResult> {
        let message = proto::LookupInstancesRequest {
            nodes: nodes.iter().map(Into::into).collect(),
            priority: priority_to_wire(&deadline.rest()),
            detail: detail_to_wire(&deadline.rest()),
        };
        let send = |channel, terms| async move {
            instances_client(channel).lookup_instances(question(message, terms)).await
        };
        let answer = self.shared.wire.call_within("lookup_instances", deadline, send, error_of_all);
        let failed = match answer.await {
            Ok(response) if response.answers.len() == nodes.len() => {
                return nodes
                    .iter()
                    .zip(response.answers)
                    .map(|(node, answer)| answer_from_wire(node, answer))
                    .collect();
            }
            // Which answer is missing cannot be known, so none can be trusted.
            Ok(response) => CloudError::new(
                ErrorKind::Malformed,
                format!(
                    "asked about {} nodes, the provider gave {} answers",
                    nodes.len(),
                    response.answers.len()
                ),
            ),
            Err(error) => error,
        };
        vec![Err(failed); nodes.len()]
    }

    async fn page(
        &self,
        page_token: String,
        deadline: Deadline,
    ) -> Result<proto::ListInstancesResponse, CloudError> {
        let page_size = u32::try_from(MAX_BATCH).unwrap_or(u32::MAX);
        let message = proto::ListInstancesRequest {
            page_token,
            page_size,
            priority: priority_to_wire(&deadline.rest()),
            detail: detail_to_wire(&deadline.rest()),
        };
        let answer =
            self.shared.wire.call("list_instances", deadline, |channel, terms| async move {
                instances_client(channel).list_instances(question(message, terms)).await
            });
        answer.await
    }
}

/// What the cloud said to the provider while it looked nodes up: that it is asked too much,
/// be it for one node; anything else only if no node was spared, because an error of one
/// node is that node's.
fn error_of_all(response: &proto::LookupInstancesResponse) -> Option<CloudError> {
    let errors = response.answers.iter().map(|answer| match &answer.answer {
        Some(Answer::Error(error)) => Some(CloudError::from(error.clone())),
        _ => None,
    });
    let errors: Vec<Option<CloudError>> = errors.collect();
    let throttled = errors.iter().flatten().filter(|error| error.kind == ErrorKind::Throttled);
    throttled.max_by_key(|error| error.retry_after).cloned().or_else(|| {
        let all: Option<Vec<CloudError>> = errors.iter().cloned().collect();
        all?.into_iter().next()
    })
}

/// A list while its pages come in.
#[derive(Default)]
struct Reading {
    fleet: Fleet,
    next: String,
    seen: BTreeSet<String>,
    left_out: usize,
}

impl Reading {
    /// Adds a page; `true` if it was the last one.
    fn take(&mut self, page: proto::ListInstancesResponse) -> Result<bool, CloudError> {
        for instance in page.instances {
            match Instance::try_from(instance) {
                Ok(instance) => self.fleet.instances.push(instance),
                Err(error) => self.malformed(error.message),
            }
        }
        for line in page.malformed {
            self.malformed(one_line(&line, LONGEST_LINE));
        }
        if page.next_page_token.is_empty() {
            if self.left_out > 0 {
                self.fleet.malformed.push(format!("and {} more", self.left_out));
            }
            return Ok(true);
        }
        if !self.seen.insert(page.next_page_token.clone()) {
            let what = "the list of instances names the same next page twice".to_owned();
            return Err(CloudError::new(ErrorKind::Malformed, what));
        }
        self.next = page.next_page_token;
        Ok(false)
    }

    fn malformed(&mut self, line: String) {
        if self.fleet.malformed.len() < MAX_MALFORMED {
            self.fleet.malformed.push(line);
        } else {
            self.left_out += 1;
        }
    }
}
