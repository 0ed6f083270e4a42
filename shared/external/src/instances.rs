//! The instances capability over the wire.

use std::{collections::BTreeSet, ops::Range, sync::Arc};

use async_trait::async_trait;
use ccm_base::message::LONGEST_LINE;
use ccm_cloud::{
    Answers, Call, CloudError, Detail, ErrorKind, Fleet, Instance, InstanceTraits, Instances,
    Lookup, LookupResult, NodeIdentity,
};
use futures::{StreamExt, channel::mpsc::UnboundedSender, stream};
use prost::Message as _;
use tonic::{Code, Response, Status};

use super::{
    MAX_BATCH,
    answers::{flowing, next},
    convert::{answer_from_wire, detail_to_wire, priority_to_wire},
    exchange::{PARTS_AT_ONCE, split_by_size},
    halves::Halves,
    pages::{Pages, lines},
    proto::{self, lookup_answer::Answer},
    rpc::{instances_client, question, read},
    shared::Shared,
    weight::{self, Budget, MOST_OF_NODE},
};

/// The maximum number of lines about malformed entries. They are searched for the names of
/// nodes, so a list with more proves nothing.
const MAX_MALFORMED: usize = 1_000;

/// [`Instances`] of a remote provider.
pub struct ExternalInstances {
    pub shared: Arc<Shared>,
}

#[async_trait]
impl Instances for ExternalInstances {
    fn traits(&self) -> InstanceTraits {
        self.shared.description().map(|description| description.traits).unwrap_or_default()
    }

    async fn lookup(
        &self,
        nodes: &[NodeIdentity],
        detail: Detail,
        call: Call,
    ) -> Vec<LookupResult> {
        let mut answers = vec![Err(unanswered()); nodes.len()];
        let mut each = self.lookup_each(nodes, detail, call);
        while let Some((place, answer)) = each.next().await {
            if let Some(slot) = answers.get_mut(place) {
                *slot = answer;
            }
        }
        answers
    }

    fn lookup_each<'a>(
        &'a self,
        nodes: &'a [NodeIdentity],
        detail: Detail,
        call: Call,
    ) -> Answers<'a, Lookup> {
        let size = self.shared.max_batch();
        let all = flowing(move |sender| async move {
            let budget = Budget::default();
            let parts = parts(nodes, size).into_iter().filter_map(|range| {
                let first = range.start;
                let nodes = nodes.get(range)?;
                let answering = (sender.clone(), budget.clone());
                Some(self.lookup_all(nodes, first, detail, answering, call))
            });
            let parts: Vec<_> = parts.collect();
            stream::iter(parts).buffer_unordered(PARTS_AT_ONCE).collect::<()>().await;
        });
        all.boxed()
    }

    async fn list(&self, call: Call) -> Result<Fleet, CloudError> {
        let (mut pages, mut fleet) = (Pages::new("instances"), Fleet::default());
        while let Some(token) = pages.next() {
            let (_, page, _memory) = self.page(token, call, &pages.budget).await?.into_parts();
            let next = page.next_page_token.clone();
            add(&mut fleet, page)?;
            pages.follow(next)?;
        }
        Ok(fleet)
    }
}

/// Splits nodes into parts of at most `most` nodes, so that no part is too large.
fn parts(nodes: &[NodeIdentity], most: usize) -> Vec<Range<usize>> {
    split_by_size(nodes.iter().map(|node| proto::NodeIdentity::from(node).encoded_len()), most)
}

/// The channel for answers.
type Sender = UnboundedSender<(usize, LookupResult)>;

/// Some of the nodes of a lookup, and the channel for their answers.
struct Part<'a> {
    /// The nodes, with their indexes in the whole lookup.
    nodes: Vec<(usize, &'a NodeIdentity)>,
    detail: Detail,
    sender: &'a Sender,
    /// Counts the memory of all answers of the lookup.
    budget: &'a Budget,
}

impl Part<'_> {
    fn request(&self, call: Call) -> proto::LookupInstancesRequest {
        proto::LookupInstancesRequest {
            nodes: self.nodes.iter().map(|(_, node)| (*node).into()).collect(),
            priority: Some(priority_to_wire(call.priority)),
            detail: Some(detail_to_wire(self.detail)),
        }
    }

    /// Forwards the answer about a node. Returns the error in it, or why it is unusable.
    fn answer(&self, place: usize, wire: proto::LookupAnswer) -> Option<CloudError> {
        let (_, node) = self.nodes.get(place)?;
        let weight = weight::of_node(&wire);
        if weight > MOST_OF_NODE {
            let error = CloudError::new(ErrorKind::Malformed, too_heavy());
            self.send(place, Err(error.clone()));
            return Some(error);
        }
        let said = error_in(&wire);
        let answer = answer_from_wire(node, wire);
        let error = said.or_else(|| answer.as_ref().err().cloned());
        self.send(place, answer);
        error
    }

    fn send(&self, place: usize, answer: LookupResult) {
        if let Some((place, _)) = self.nodes.get(place) {
            // The receiver is gone and needs no answer.
            self.sender.unbounded_send((*place, answer)).ok();
        }
    }
}

impl ExternalInstances {
    /// Looks up some nodes by one call. If the provider refuses it as a whole, they are looked up in
    /// halves.
    async fn lookup_all(
        &self,
        nodes: &[NodeIdentity],
        first: usize,
        detail: Detail,
        (sender, budget): (Sender, Budget),
        call: Call,
    ) {
        let mut halves = Halves::of(nodes.len());
        while let Some(places) = halves.next() {
            let some = places.iter().filter_map(|at| Some((first + at, nodes.get(*at)?)));
            let part = Part { nodes: some.collect(), detail, sender: &sender, budget: &budget };
            let (left, failed) = self.lookup_part(&part, call).await;
            let left = left.into_iter().filter_map(|at| places.get(at).copied()).collect();
            for (place, error) in halves.failed(left, failed) {
                sender.unbounded_send((first + place, Err(error))).ok();
            }
        }
    }

    /// Looks up some nodes and forwards each answer as it arrives. Returns the nodes that have no
    /// answer, and why.
    async fn lookup_part(&self, part: &Part<'_>, call: Call) -> (BTreeSet<usize>, CloudError) {
        let mut left: BTreeSet<usize> = (0..part.nodes.len()).collect();
        let failed = self.hear_answers(part, &mut left, call).await;
        (left, failed)
    }

    /// Forwards each answer as it arrives and removes its index from `left`. Returns the
    /// answer for the remaining nodes.
    async fn hear_answers(
        &self,
        part: &Part<'_>,
        left: &mut BTreeSet<usize>,
        call: Call,
    ) -> CloudError {
        let wire = &self.shared.wire;
        let open = match wire.open(read("lookup_instances"), call, part.budget).await {
            Ok(open) => open,
            Err(error) => return error,
        };
        let mut client = instances_client(wire.connection.channel());
        let message = question(part.request(call), open.terms.clone());
        let mut answers = match open.hear(client.lookup_instances(message)).await {
            Ok(answers) => answers.into_inner(),
            Err(error) => {
                open.close(Some(error.clone()));
                return error;
            }
        };
        let mut errors = Vec::new();
        let end = loop {
            match open.hear(answers.message()).await {
                Ok(Some(item)) => match next(item.place, part.nodes.len(), left) {
                    Ok(place) => {
                        errors.push(part.answer(place, item.answer.unwrap_or_default()));
                    }
                    Err(error) => break error,
                },
                Ok(None) => break unanswered(),
                Err(error) => break error,
            }
        };
        open.close_batch(&errors, left.len(), &end);
        end
    }

    async fn page(
        &self,
        page_token: String,
        call: Call,
        budget: &Budget,
    ) -> Result<Response<proto::ListInstancesResponse>, CloudError> {
        let page_size = u32::try_from(MAX_BATCH).unwrap_or(u32::MAX);
        let message = proto::ListInstancesRequest {
            page_token: Some(page_token),
            page_size: Some(page_size),
            priority: Some(priority_to_wire(call.priority)),
            detail: Some(proto::Detail::Presence.into()),
        };
        let send = |channel, terms| async move {
            let mut client = instances_client(channel);
            client.list_instances(question(message, terms)).await.map_err(undeclared)
        };
        self.shared.wire.call(read("list_instances"), call, budget, send).await
    }
}

/// Adds to a bare UNIMPLEMENTED what to do. The status alone does not describe the provider: a
/// wrong path and a proxy answer it, too, and without lists nodes are deleted by other rules.
fn undeclared(status: Status) -> Status {
    if status.code() != Code::Unimplemented || !status.details().is_empty() {
        return status;
    }
    let hint = "a provider without a list has to say so in DescribeResponse: lists = false";
    Status::unimplemented(format!("{}; {hint}", status.message()))
}

/// Returns the error in an answer about one node: limits and metrics count it.
fn error_in(answer: &proto::LookupAnswer) -> Option<CloudError> {
    match &answer.answer {
        Some(Answer::Error(error)) => Some(error.clone().into()),
        _ => None,
    }
}

/// Returns the error for a node without an answer at the end of the provider's stream.
fn unanswered() -> CloudError {
    CloudError::new(ErrorKind::Malformed, "the provider gave no answer about this node")
}

fn too_heavy() -> String {
    let most = MOST_OF_NODE >> 10;
    format!("the provider's answer about this node takes more than {most} KiB of memory")
}

/// Adds a page of the list.
pub fn add(fleet: &mut Fleet, page: proto::ListInstancesResponse) -> Result<(), CloudError> {
    for instance in page.instances {
        match Instance::try_from(instance) {
            Ok(instance) => fleet.instances.push(instance),
            Err(error) => fleet.malformed.push(error.message),
        }
    }
    fleet.malformed.extend(lines(&page.malformed));
    complete(&fleet.malformed)
}

/// Rejects a list whose lines about malformed entries are too many, or were cut: the missing
/// part may name a node, which would be deleted.
fn complete(malformed: &[String]) -> Result<(), CloudError> {
    // A cut after a space is one character shorter.
    let is_cut = |line: &String| line.ends_with('…') && line.chars().count() + 1 >= LONGEST_LINE;
    let what = if malformed.len() > MAX_MALFORMED {
        format!("more than {MAX_MALFORMED} entries that could not be parsed")
    } else if malformed.iter().any(is_cut) {
        format!("a line of more than {LONGEST_LINE} characters about a malformed entry")
    } else {
        return Ok(());
    };
    Err(CloudError::new(ErrorKind::Malformed, format!("the list of instances has {what}")))
}

#[cfg(test)]
mod tests;
