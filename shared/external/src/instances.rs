//! The instances capability over the wire.

use std::{borrow::Cow, ops::Range};

use async_trait::async_trait;
use ccm_base::message::LONGEST_LINE;
use ccm_cloud::{
    Answers, Call, CloudError, Detail, ErrorKind, Fleet, Instance, InstanceTraits, Instances,
    Lookup, LookupResult, NodeIdentity,
};
use futures::{StreamExt, stream};
use prost::Message as _;
use tonic::{Code, Response, Status};

use super::{
    MAX_BATCH,
    answers::flowing,
    convert::{answer_from_wire, detail_to_wire, malformed, priority_to_wire},
    exchange::{Item, PARTS_AT_ONCE, Part, exchange, split_by_size},
    pages::{Pages, lines},
    proto,
    rpc::{instances_client, question, read},
    shared::Shared,
    weight::{self, Budget, MOST_OF_NODE},
};

/// The maximum number of lines about malformed entries. They are searched for the names of
/// nodes, so a list with more proves nothing.
const MAX_MALFORMED: usize = 1_000;

impl Item for proto::LookupInstancesItem {
    type Answer = Lookup;
    type Context = NodeIdentity;
    const WHAT: &str = "node";

    fn about(&self) -> (Option<u32>, Cow<'_, str>) {
        (self.place, self.answer.as_ref().map_or("", |answer| answer.node()).into())
    }

    fn answer(self, node: &NodeIdentity) -> LookupResult {
        let wire = self.answer.unwrap_or_default();
        if weight::of_node(&wire) > MOST_OF_NODE {
            let most = MOST_OF_NODE >> 10;
            return Err(malformed(format!(
                "the provider's answer about this node takes more than {most} KiB of memory"
            )));
        }
        answer_from_wire(node, wire)
    }
}

#[async_trait]
impl Instances for Shared {
    fn traits(&self) -> InstanceTraits {
        self.description().map(|description| description.traits).unwrap_or_default()
    }

    async fn lookup(
        &self,
        nodes: &[NodeIdentity],
        detail: Detail,
        call: Call,
    ) -> Vec<LookupResult> {
        let mut answers =
            vec![Err(malformed("the provider gave no answer about this node")); nodes.len()];
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
        let size = self.max_batch();
        let all = flowing(move |sender| async move {
            let budget = Budget::default();
            let parts = parts(nodes, size).into_iter().filter_map(|range| {
                let (places, nodes) = (range.clone().collect(), nodes.get(range)?);
                let asked = nodes.iter().map(|node| (node.name.clone(), node.clone())).collect();
                let (sender, budget) = (sender.clone(), budget.clone());
                let part = Part { places, asked, sender, budget };
                Some(self.lookup_part(nodes, part, detail, call))
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

impl Shared {
    /// Looks up some nodes by one call. If the provider refuses it as a whole, they are looked up in
    /// halves.
    async fn lookup_part(
        &self,
        nodes: &[NodeIdentity],
        part: Part<proto::LookupInstancesItem>,
        detail: Detail,
        call: Call,
    ) {
        let send = |places: Vec<usize>, channel, terms| {
            let some = places.iter().filter_map(|place| nodes.get(*place));
            let message = proto::LookupInstancesRequest {
                nodes: some.map(Into::into).collect(),
                priority: Some(priority_to_wire(call.priority)),
                detail: Some(detail_to_wire(detail)),
            };
            async move { instances_client(channel).lookup_instances(question(message, terms)).await }
        };
        exchange(&self.wire, part, read("lookup_instances"), call, send).await;
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
        self.wire.call(read("list_instances"), call, budget, send).await
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
