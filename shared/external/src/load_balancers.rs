//! The load balancers capability over the wire.

mod parts;

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use ccm_base::message::{LONGEST_LINE, one_line};
use ccm_cloud::{
    AbsenceProof, Answers, Call, CloudError, ClusterId, Depth, LoadBalancer, LoadBalancerList,
    LoadBalancerTraits, LoadBalancers, Loss, Member, MemberChange, Members, MembersSet, Owner,
    Progress, Scope, Unwanted, Wanted, repeated,
};
use futures::{StreamExt as _, stream};

use self::parts::{size_of_change, size_of_unwanted, size_of_wanted, split};
use super::{
    MAX_BATCH,
    answers::flowing,
    convert::{
        absence_from_wire,
        front_end::{
            MemberLists, change_to_wire, cluster_to_wire, unwanted_to_wire, wanted_to_wire,
        },
        load_balancers::{
            depth_to_wire, ensured_from_wire, line, members_set_from_wire, scope_to_wire,
            waiting_from_wire,
        },
        malformed, priority_to_wire,
    },
    exchange::{Item, PARTS_AT_ONCE, Part, exchange},
    metered::Channel,
    pages::{Pages, lines},
    proto::{
        self, delete_load_balancers_item as deleted, ensure_load_balancers_item as ensured,
        load_balancers_client::LoadBalancersClient, preview_load_balancers_item as previewed,
        set_members_item as changed,
    },
    rpc::{question, read, write},
    shared::Shared,
    weight::Budget,
};

/// The subject of the answers, for messages.
const BALANCER: &str = "load balancer";
/// The most lines of a preview.
const MAX_CHANGES: usize = 1_000;
/// The size of a member in an answer, in bytes. Load balancers share the list of the request.
const MEMBER: usize = 1 << 10;

fn client(channel: Channel) -> LoadBalancersClient<Channel> {
    LoadBalancersClient::new(channel).max_decoding_message_size(super::MAX_ANSWER)
}

/// Implements [`Item`] for a message whose answers are `done` (converted by `$read`), states in
/// progress, load balancers elsewhere, errors, and all other kinds of this message.
macro_rules! progress {
    ($item:ty, $module:ident, $done:ident as $answer:ty, $read:expr $(, $more:ident => $as:expr)?) => {
        impl Item for $item {
            type Answer = Progress<$answer>;
            type Context = Arc<[Member]>;

            const WHAT: &str = BALANCER;

            fn about(&self) -> (Option<u32>, Cow<'_, str>) {
                (self.place, self.owner_uid().into())
            }

            fn shared(present: &Arc<[Member]>) -> usize {
                present.len() * MEMBER
            }

            fn answer(self, present: &Arc<[Member]>) -> Result<Self::Answer, CloudError> {
                match self.answer {
                    Some($module::Answer::$done(done)) => $read(done, present).map(Progress::Done),
                    Some($module::Answer::InProgress(wire)) => {
                        Ok(Progress::InProgress(waiting_from_wire(wire)))
                    }
                    Some($module::Answer::Elsewhere(wire)) => Ok(elsewhere(wire)),
                    Some($module::Answer::Error(error)) => Err(error.into()),
                    $(Some($module::Answer::$more(wire)) => Ok($as(wire)),)?
                    None => Err(malformed("the provider's answer about a load balancer is empty")),
                }
            }
        }
    };
}

progress!(
    proto::EnsureLoadBalancersItem,
    ensured,
    Done as LoadBalancer,
    ensured_from_wire,
    Lost => lost
);
progress!(proto::DeleteLoadBalancersItem, deleted, Gone as AbsenceProof, |gone, _| {
    absence_from_wire(gone)
});

fn lost<T>(wire: proto::Lost) -> Progress<T> {
    let proto::Lost { reason, gone } = wire;
    let why = line(reason).unwrap_or_else(|| "the provider does not say why".to_owned());
    Progress::Lost(Loss { why, is_gone: gone.unwrap_or(false) })
}

impl Item for proto::SetMembersItem {
    type Answer = Progress<MembersSet>;
    type Context = Arc<[Member]>;

    const WHAT: &str = BALANCER;

    fn about(&self) -> (Option<u32>, Cow<'_, str>) {
        (self.place, self.owner_uid().into())
    }

    fn answer(self, _: &Arc<[Member]>) -> Result<Self::Answer, CloudError> {
        match self.answer {
            Some(changed::Answer::Done(done)) => members_set_from_wire(done).map(Progress::Done),
            Some(changed::Answer::InProgress(wire)) => {
                Ok(Progress::InProgress(waiting_from_wire(wire)))
            }
            Some(changed::Answer::Elsewhere(wire)) => Ok(elsewhere(wire)),
            Some(changed::Answer::NotSeen(wire)) => {
                let why = line(wire.reason);
                let why = why.unwrap_or_else(|| "the provider does not say what".to_owned());
                Ok(Progress::NotSeen(why))
            }
            Some(changed::Answer::Error(error)) => Err(error.into()),
            None => Err(malformed("the provider's answer about a load balancer is empty")),
        }
    }
}

impl Item for proto::PreviewLoadBalancersItem {
    type Answer = Vec<String>;
    type Context = Arc<[Member]>;

    const WHAT: &str = BALANCER;

    fn about(&self) -> (Option<u32>, Cow<'_, str>) {
        (self.place, self.owner_uid().into())
    }

    fn answer(self, _: &Arc<[Member]>) -> Result<Vec<String>, CloudError> {
        match self.answer {
            Some(previewed::Answer::Changes(changes)) => {
                Ok(lines(&changes.lines).take(MAX_CHANGES).collect())
            }
            Some(previewed::Answer::Error(error)) => Err(error.into()),
            None => Err(malformed("the provider's preview is empty")),
        }
    }
}

fn elsewhere<T>(wire: proto::Elsewhere) -> Progress<T> {
    Progress::Elsewhere(one_line(&wire.reason.unwrap_or_default(), LONGEST_LINE))
}

/// Implements a batched method: refuses all items of an owner but the first, because the parts of a
/// call are sent at the same time; splits the others, sends each part with `$method`, and forwards the answers.
macro_rules! batched {
    ($self:ident, $items:ident, $call:ident, $class:expr, $owner:expr, $members:expr, $size:expr, $request:expr, $method:ident, $item:ty) => {{
        let most = $self.traits().max_batch;
        let all = flowing(move |sender| async move {
            let budget = Budget::default();
            let repeated =
                if $class.write { repeated($items.iter().map($owner)) } else { BTreeMap::new() };
            let items =
                $items.iter().enumerate().filter(|(place, _)| !repeated.contains_key(place));
            let items: Vec<_> = items.collect();
            for (place, error) in repeated {
                // The receiver is gone and needs no answer.
                sender.unbounded_send((place, Err(error))).ok();
            }
            let parts = split(&items, most, $members, $size).into_iter().map(|items| {
                let (places, items): (Vec<_>, Vec<_>) = items.iter().copied().unzip();
                let asked = items.iter().copied().map(|item| {
                    let present = $members(item).map(|members| Arc::clone(&members.present));
                    ($owner(item).uid.clone(), present.unwrap_or_default())
                });
                let (sender, budget) = (sender.clone(), budget.clone());
                let part = Part { places, asked: asked.collect(), sender, budget };
                let wire = &$self.wire;
                // A message may be large, so it is made only when its turn comes.
                let send = move |places: Vec<usize>, channel, terms| {
                    let some = places.iter().filter_map(|place| items.get(*place).copied());
                    let some: Vec<_> = some.collect();
                    async move {
                        let message = $request(&some, Some(priority_to_wire($call.priority)));
                        client(channel).$method(question(message, terms)).await
                    }
                };
                exchange::<$item, _>(wire, part, $class, $call, send)
            });
            let parts: Vec<_> = parts.collect();
            stream::iter(parts).buffer_unordered(PARTS_AT_ONCE).collect::<()>().await;
        });
        all.boxed()
    }};
}

#[async_trait]
impl LoadBalancers for Shared {
    fn traits(&self) -> LoadBalancerTraits {
        let description = self.description();
        description.map(|description| description.load_balancers.clone()).unwrap_or_default()
    }

    async fn list(
        &self,
        cluster: &ClusterId,
        scope: Scope,
        depth: Depth,
        call: Call,
    ) -> Result<LoadBalancerList, CloudError> {
        let (scope, ids) = scope_to_wire(scope);
        let request = proto::ListLoadBalancersRequest {
            cluster: Some(cluster_to_wire(cluster)),
            scope: Some(scope),
            ids,
            depth: Some(depth_to_wire(depth)),
            page_token: None,
            page_size: u32::try_from(MAX_BATCH).ok(),
            priority: Some(priority_to_wire(call.priority)),
        };
        let mut pages = Pages::new("load balancers");
        let mut list = LoadBalancerList::default();
        while let Some(page_token) = pages.next() {
            let message =
                proto::ListLoadBalancersRequest { page_token: Some(page_token), ..request.clone() };
            let class = read("list_load_balancers");
            let send = |channel, terms| async move {
                client(channel).list_load_balancers(question(message, terms)).await
            };
            let page = self.wire.call(class, call, &pages.budget, send).await?;
            let (_, page, _memory) = page.into_parts();
            for wire in page.load_balancers {
                match LoadBalancer::try_from(wire) {
                    Ok(balancer) => list.load_balancers.push(balancer),
                    Err(error) => list.malformed.push(error.message),
                }
            }
            list.malformed.extend(lines(&page.malformed));
            pages.follow(page.next_page_token)?;
        }
        Ok(list)
    }

    fn ensure<'a>(
        &'a self,
        wanted: &'a [Wanted],
        call: Call,
    ) -> Answers<'a, Progress<LoadBalancer>> {
        batched!(
            self,
            wanted,
            call,
            write("ensure_load_balancers"),
            owner_of_wanted,
            members_of_wanted,
            size_of_wanted,
            ensure_request,
            ensure_load_balancers,
            proto::EnsureLoadBalancersItem
        )
    }

    fn preview<'a>(&'a self, wanted: &'a [Wanted], call: Call) -> Answers<'a, Vec<String>> {
        batched!(
            self,
            wanted,
            call,
            read("preview_load_balancers"),
            owner_of_wanted,
            members_of_wanted,
            size_of_wanted,
            ensure_request,
            preview_load_balancers,
            proto::PreviewLoadBalancersItem
        )
    }

    fn set_members<'a>(
        &'a self,
        changes: &'a [MemberChange],
        call: Call,
    ) -> Answers<'a, Progress<MembersSet>> {
        batched!(
            self,
            changes,
            call,
            write("set_members"),
            owner_of_change,
            members_of_change,
            size_of_change,
            members_request,
            set_members,
            proto::SetMembersItem
        )
    }

    fn delete<'a>(
        &'a self,
        unwanted: &'a [Unwanted],
        call: Call,
    ) -> Answers<'a, Progress<AbsenceProof>> {
        batched!(
            self,
            unwanted,
            call,
            write("delete_load_balancers"),
            owner_of_unwanted,
            no_members,
            size_of_unwanted,
            |unwanted: &[&Unwanted], priority| proto::DeleteLoadBalancersRequest {
                unwanted: unwanted.iter().copied().map(unwanted_to_wire).collect(),
                priority,
            },
            delete_load_balancers,
            proto::DeleteLoadBalancersItem
        )
    }
}

fn owner_of_wanted(wanted: &Wanted) -> &Owner {
    &wanted.front_end.owner
}

#[expect(clippy::unnecessary_wraps, reason = "a deletion has no members")]
fn members_of_wanted(wanted: &Wanted) -> Option<&Members> {
    Some(&wanted.members)
}

#[expect(clippy::unnecessary_wraps, reason = "a deletion has no members")]
fn members_of_change(change: &MemberChange) -> Option<&Members> {
    Some(&change.members)
}

fn no_members(_: &Unwanted) -> Option<&Members> {
    None
}

fn owner_of_change(change: &MemberChange) -> &Owner {
    &change.owner
}

fn owner_of_unwanted(unwanted: &Unwanted) -> &Owner {
    &unwanted.owner
}

fn ensure_request(wanted: &[&Wanted], priority: Option<i32>) -> proto::EnsureLoadBalancersRequest {
    let mut lists = MemberLists::default();
    let wanted = wanted.iter().map(|wanted| wanted_to_wire(wanted, &mut lists)).collect();
    proto::EnsureLoadBalancersRequest { wanted, priority, member_lists: lists.to_wire() }
}

fn members_request(changes: &[&MemberChange], priority: Option<i32>) -> proto::SetMembersRequest {
    let mut lists = MemberLists::default();
    let changes = changes.iter().map(|change| change_to_wire(change, &mut lists)).collect();
    proto::SetMembersRequest { changes, priority, member_lists: lists.to_wire() }
}
