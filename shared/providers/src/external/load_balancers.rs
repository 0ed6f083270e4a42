//! The load balancers capability over the wire.

mod parts;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use async_trait::async_trait;
use ccm_base::message::{LONGEST_LINE, one_line};
use ccm_cloud::{
    AbsenceProof, Answers, Call, CallClass, CloudError, ClusterId, Depth, ErrorKind, LoadBalancer,
    LoadBalancerList, LoadBalancerTraits, LoadBalancers, Member, MemberChange, Members, Owner,
    Progress, Scope, Unwanted, Wanted, repeated,
};
use futures::{StreamExt as _, channel::mpsc::UnboundedSender, stream};
use tonic::{Response, Status, Streaming, transport::Channel};

use self::parts::split;
use super::{
    MAX_BATCH, NAME,
    answers::{flowing, next},
    convert::{
        absence_from_wire,
        front_end::{
            MemberLists, change_to_wire, cluster_to_wire, unwanted_to_wire, wanted_to_wire,
        },
        load_balancers::{
            depth_to_wire, ensured_from_wire, members_set_from_wire, scope_to_wire,
            waiting_from_wire,
        },
        malformed, priority_to_wire,
    },
    pages::{Pages, lines},
    proto::{
        self, delete_load_balancers_item as deleted, ensure_load_balancers_item as ensured,
        load_balancers_client::LoadBalancersClient, preview_load_balancers_item as previewed,
        set_members_item as changed,
    },
    rpc::{Terms, question, read},
    shared::Shared,
};

/// The most lines of a preview.
const MAX_CHANGES: usize = 1_000;

/// [`LoadBalancers`] of a remote provider.
pub(super) struct ExternalLoadBalancers {
    pub(super) shared: Arc<Shared>,
}

/// An idempotent write: what it creates is looked for first.
const fn write(operation: &'static str) -> CallClass {
    CallClass::write(NAME, operation)
}

fn client(channel: Channel) -> LoadBalancersClient<Channel> {
    LoadBalancersClient::new(channel).max_decoding_message_size(super::MAX_ANSWER)
}

/// A message of a stream of answers.
trait Item {
    /// What it says about one load balancer.
    type Answer;

    /// The index of the load balancer in the request, and its owner's UID.
    fn about(&self) -> (Option<u32>, &str);

    /// The answer; `present` are the members that the request has listed.
    fn answer(self, present: &Arc<[Member]>) -> Result<Self::Answer, CloudError>;
}

/// Implements [`Item`] for a message whose answers are `done` (converted by `$read`), what is in
/// progress, what is elsewhere, and errors.
macro_rules! progress {
    ($item:ty, $module:ident, $done:ident as $answer:ty, $read:expr) => {
        impl Item for $item {
            type Answer = Progress<$answer>;

            fn about(&self) -> (Option<u32>, &str) {
                (self.place, self.owner_uid())
            }

            fn answer(self, present: &Arc<[Member]>) -> Result<Self::Answer, CloudError> {
                match self.answer {
                    Some($module::Answer::$done(done)) => $read(done, present).map(Progress::Done),
                    Some($module::Answer::InProgress(wire)) => {
                        Ok(Progress::InProgress(waiting_from_wire(wire)))
                    }
                    Some($module::Answer::Elsewhere(wire)) => Ok(elsewhere(wire)),
                    Some($module::Answer::Error(error)) => Err(error.into()),
                    None => Err(malformed("the provider's answer about a load balancer is empty")),
                }
            }
        }
    };
}

progress!(proto::EnsureLoadBalancersItem, ensured, Done as LoadBalancer, ensured_from_wire);
progress!(proto::SetMembersItem, changed, Done as Option<String>, |done, _| Ok(
    members_set_from_wire(done)
));
progress!(proto::DeleteLoadBalancersItem, deleted, Gone as AbsenceProof, |gone, _| {
    absence_from_wire(gone)
});

impl Item for proto::PreviewLoadBalancersItem {
    type Answer = Vec<String>;

    fn about(&self) -> (Option<u32>, &str) {
        (self.place, self.owner_uid())
    }

    fn answer(self, _: &Arc<[Member]>) -> Result<Vec<String>, CloudError> {
        match self.answer {
            Some(previewed::Answer::Changes(changes)) => Ok(changes_from_wire(&changes)),
            Some(previewed::Answer::Error(error)) => Err(error.into()),
            None => Err(malformed("the provider's preview is empty")),
        }
    }
}

fn elsewhere<T>(wire: proto::Elsewhere) -> Progress<T> {
    Progress::Elsewhere(one_line(&wire.reason.unwrap_or_default(), LONGEST_LINE))
}

fn changes_from_wire(wire: &proto::Changes) -> Vec<String> {
    lines(&wire.lines).take(MAX_CHANGES).collect()
}

/// What is asked about one load balancer.
struct Asked<'a> {
    /// The UID of its owner.
    owner: &'a str,
    /// The members that it is to have.
    present: Option<&'a Arc<[Member]>>,
}

/// The load balancers of a call, and the channel for the answers.
struct Part<'a, T> {
    /// Their indexes in the whole call.
    places: Vec<usize>,
    asked: Vec<Asked<'a>>,
    sender: UnboundedSender<(usize, Result<T, CloudError>)>,
}

impl<T> Part<'_, T> {
    fn send(&self, place: usize, answer: Result<T, CloudError>) {
        if let Some(place) = self.places.get(place) {
            // The receiver is gone and needs no answer.
            self.sender.unbounded_send((*place, answer)).ok();
        }
    }
}

impl ExternalLoadBalancers {
    /// Sends some load balancers and forwards each answer as it arrives. What has no answer at
    /// the end gets the error of the call.
    async fn exchange<I, F>(
        &self,
        part: Part<'_, I::Answer>,
        class: CallClass,
        call: Call,
        send: impl FnOnce(LoadBalancersClient<Channel>, Terms) -> F,
    ) where
        I: Item,
        F: Future<Output = Result<Response<Streaming<I>>, Status>>,
    {
        let mut left: BTreeSet<usize> = (0..part.asked.len()).collect();
        let failed = self.answers(&part, &mut left, class, call, send).await;
        for place in left {
            part.send(place, Err(failed.clone()));
        }
    }

    /// Forwards answers and removes their indexes from `left`. Returns the error for the rest.
    async fn answers<I, F>(
        &self,
        part: &Part<'_, I::Answer>,
        left: &mut BTreeSet<usize>,
        class: CallClass,
        call: Call,
        send: impl FnOnce(LoadBalancersClient<Channel>, Terms) -> F,
    ) -> CloudError
    where
        I: Item,
        F: Future<Output = Result<Response<Streaming<I>>, Status>>,
    {
        let wire = &self.shared.wire;
        let open = match wire.open(class, call).await {
            Ok(open) => open,
            Err(error) => return error,
        };
        let answer = open.hear(send(client(wire.connection.channel()), open.terms)).await;
        let mut items = match answer {
            Ok(items) => items.into_inner(),
            Err(error) => {
                open.close(Some(error.clone()));
                return error;
            }
        };
        let (mut worked, mut throttled, none) = (false, None, Arc::default());
        let end = loop {
            let item = match open.hear(items.message()).await {
                Ok(Some(item)) => item,
                Ok(None) => break unanswered(class),
                Err(error) => break error,
            };
            let (place, owner) = item.about();
            let place = match next(place, part.asked.len(), left) {
                Ok(place) => place,
                Err(error) => break left_open(class, error),
            };
            let Some(asked) = part.asked.get(place) else { continue };
            let answer = match owner {
                _ if owner == asked.owner => item.answer(asked.present.unwrap_or(&none)),
                other => Err(about_another(class, asked.owner, other)),
            };
            match &answer {
                Err(error) if error.kind == ErrorKind::Throttled => throttled = Some(error.clone()),
                _ => worked = true,
            }
            part.send(place, answer);
        };
        // One answer shows that the provider works; throttling counts nevertheless.
        let failed = throttled.or_else(|| (!worked && !part.asked.is_empty()).then(|| end.clone()));
        open.close(failed);
        end
    }

    fn max_batch(&self) -> usize {
        self.traits().max_batch
    }
}

/// The provider ended the stream without an answer for some load balancer.
fn unanswered(class: CallClass) -> CloudError {
    let what = "the provider gave no answer about this load balancer";
    left_open(class, CloudError::new(ErrorKind::Malformed, what))
}

/// What it asked for may have been done if it was a write.
fn left_open(class: CallClass, error: CloudError) -> CloudError {
    if class.write { error.that_may_be_done() } else { error }
}

fn about_another(class: CallClass, asked: &str, answered: &str) -> CloudError {
    let what = format!("asked about the owner {asked:?}, the provider answered about {answered:?}");
    left_open(class, malformed(what))
}

/// Implements a batched method: refuses all items of an owner but the first, because the parts of a
/// call are sent at the same time; splits the others, sends each part with `$method`, and forwards the answers.
macro_rules! batched {
    ($self:ident, $items:ident, $call:ident, $class:expr, $owner:expr, $members:expr, $request:expr, $method:ident, $item:ty) => {{
        let most = $self.max_batch();
        let all = flowing(move |sender| async move {
            let repeated =
                if $class.write { repeated($items.iter().map($owner)) } else { BTreeMap::new() };
            let items =
                $items.iter().enumerate().filter(|(place, _)| !repeated.contains_key(place));
            let items: Vec<_> = items.collect();
            for (place, error) in repeated {
                // The receiver is gone and needs no answer.
                sender.unbounded_send((place, Err(error))).ok();
            }
            let parts = split(&items, most, $members).into_iter().map(|items| {
                let (places, items): (Vec<_>, Vec<_>) = items.iter().copied().unzip();
                let asked = items.iter().copied().map(|item| Asked {
                    owner: $owner(item).uid.as_str(),
                    present: $members(item).map(|members| &members.present),
                });
                let part = Part { places, asked: asked.collect(), sender: sender.clone() };
                // A message may be large: it is made when its turn has come.
                $self.exchange::<$item, _>(
                    part,
                    $class,
                    $call,
                    move |mut client, terms| async move {
                        let message = $request(&items, Some(priority_to_wire($call.priority)));
                        client.$method(question(message, terms)).await
                    },
                )
            });
            let parts: Vec<_> = parts.collect();
            stream::iter(parts).buffer_unordered(PARTS_AT_ONCE).collect::<()>().await;
        });
        all.boxed()
    }};
}

/// The number of concurrent parts of a large call.
const PARTS_AT_ONCE: usize = 4;
#[async_trait]
impl LoadBalancers for ExternalLoadBalancers {
    fn traits(&self) -> LoadBalancerTraits {
        let description = self.shared.description();
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
            let page = self.shared.wire.call(class, call, |channel, terms| async move {
                client(channel).list_load_balancers(question(message, terms)).await
            });
            let page = page.await?;
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
            ensure_request,
            preview_load_balancers,
            proto::PreviewLoadBalancersItem
        )
    }

    fn set_members<'a>(
        &'a self,
        changes: &'a [MemberChange],
        call: Call,
    ) -> Answers<'a, Progress<Option<String>>> {
        batched!(
            self,
            changes,
            call,
            write("set_members"),
            owner_of_change,
            members_of_change,
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

fn members_of_wanted(wanted: &Wanted) -> Option<&Members> {
    Some(&wanted.members)
}

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
