//! The routes capability over the wire.

use std::{borrow::Cow, sync::Arc};

use async_trait::async_trait;
use ccm_cloud::{
    Answers, AppliedChange, Call, CloudError, ClusterId, ErrorKind, Route, RouteChange, RouteTable,
    RouteTarget, RouteTraits, Routes, TargetState, repeated_destinations,
};
use futures::{StreamExt as _, channel::mpsc::UnboundedSender, stream};
use parking_lot::Mutex;
use prost::Message as _;

use super::{
    MAX_BATCH,
    answers::flowing,
    convert::{
        front_end::cluster_to_wire,
        malformed, priority_to_wire,
        routes::{
            answered_destination, answered_target, applied_from_wire, change_to_wire, fits,
            gone_from_wire, target_key, target_to_wire,
        },
    },
    exchange::{Item, PARTS_AT_ONCE, Part, exchange, split_by_size},
    metered::Channel,
    pages::{Pages, lines},
    proto::{
        self, apply_routes_item as applied, find_route_targets_item as found,
        routes_client::RoutesClient,
    },
    rpc::{question, read, write},
    shared::Shared,
    status::change_error_from_wire,
    weight::Budget,
};

/// The maximum number of entries of a table. The largest clusters have some 10,000 nodes.
const MAX_ENTRIES: usize = 200_000;

fn client(channel: Channel) -> RoutesClient<Channel> {
    RoutesClient::new(channel).max_decoding_message_size(super::MAX_ANSWER)
}

/// The context to read an answer about a change.
pub struct Applying {
    pub change: RouteChange,
    /// The version of the table that the next message is compared with.
    pub base: Arc<Mutex<Option<String>>>,
}

impl Item for proto::ApplyRoutesItem {
    type Answer = AppliedChange;
    type Context = Applying;

    const WHAT: &str = "route";

    fn about(&self) -> (Option<u32>, Cow<'_, str>) {
        (self.place, answered_destination(self.destination()))
    }

    fn answer(self, asked: &Applying) -> Result<AppliedChange, CloudError> {
        match self.answer {
            // A provider may have done the change although its answer makes no sense.
            Some(applied::Answer::Applied(wire)) => {
                let applied = applied_from_wire(wire);
                let applied = applied.and_then(|applied| fits(&asked.change, applied));
                let applied = applied.map_err(CloudError::that_may_be_done)?;
                if let (Some(version), Some(base)) = (&applied.version, &mut *asked.base.lock()) {
                    base.clone_from(version);
                }
                Ok(applied)
            }
            Some(applied::Answer::Error(error)) => Err(change_error_from_wire(error)),
            None => {
                Err(malformed("the provider's answer about a route is empty").that_may_be_done())
            }
        }
    }
}

impl Item for proto::FindRouteTargetsItem {
    /// The proof if it is gone.
    type Answer = Option<proto::Absence>;
    type Context = ();

    const WHAT: &str = "target";

    fn about(&self) -> (Option<u32>, Cow<'_, str>) {
        (self.place, answered_target(self.target.as_ref()))
    }

    fn answer(self, (): &()) -> Result<Self::Answer, CloudError> {
        match self.answer {
            Some(found::Answer::Exists(proto::TargetExists {})) => Ok(None),
            Some(found::Answer::Gone(absence)) => Ok(Some(absence)),
            Some(found::Answer::Error(error)) => Err(error.into()),
            None => Err(malformed("the provider's answer about a target is empty")),
        }
    }
}

/// The channel for answers about changes, and what they take.
type Answering = (UnboundedSender<(usize, Result<AppliedChange, CloudError>)>, Budget);

/// Some changes of a call, with their places in it.
type Changes<'a> = [(usize, &'a RouteChange)];

impl Shared {
    /// Sends changes in one message.
    async fn apply_part(
        &self,
        cluster: &ClusterId,
        changes: &Changes<'_>,
        base: &Arc<Mutex<Option<String>>>,
        call: Call,
        (sender, budget): Answering,
    ) {
        let asked = changes.iter().map(|(_, change)| {
            let context = Applying { change: (*change).clone(), base: Arc::clone(base) };
            (change.destination().to_string(), context)
        });
        let places = changes.iter().map(|(place, _)| *place).collect();
        let part = Part { places, asked: asked.collect(), sender, budget };
        let send = |places: Vec<usize>, channel, terms| {
            let some = places.iter().filter_map(|place| changes.get(*place));
            let message = proto::ApplyRoutesRequest {
                cluster: Some(cluster_to_wire(cluster)),
                changes: some.map(|(_, change)| change_to_wire(change)).collect(),
                base: base.lock().clone(),
                priority: Some(priority_to_wire(call.priority)),
            };
            async move { client(channel).apply_routes(question(message, terms)).await }
        };
        let (wire, class) = (&self.wire, write("apply_routes"));
        exchange::<proto::ApplyRoutesItem, _>(wire, part, class, call, send).await;
    }

    /// Asks about targets in one message. Their places begin with `first`.
    fn find_part<'a>(
        &'a self,
        first: usize,
        targets: &'a [RouteTarget],
        call: Call,
        budget: &Budget,
    ) -> Answers<'a, Option<proto::Absence>> {
        let budget = budget.clone();
        let all = flowing(move |sender| {
            let part = Part {
                places: (first..first + targets.len()).collect(),
                asked: targets.iter().map(|target| (target_key(target), ())).collect(),
                sender,
                budget,
            };
            let wire = &self.wire;
            let class = read("find_route_targets");
            exchange::<proto::FindRouteTargetsItem, _>(
                wire,
                part,
                class,
                call,
                move |places: Vec<usize>, channel, terms| {
                    let some = places.iter().filter_map(|place| targets.get(*place));
                    let message = proto::FindRouteTargetsRequest {
                        targets: some.map(target_to_wire).collect(),
                        priority: Some(priority_to_wire(call.priority)),
                    };
                    async move { client(channel).find_route_targets(question(message, terms)).await }
                },
            )
        });
        all.boxed()
    }
}

#[async_trait]
impl Routes for Shared {
    fn traits(&self) -> RouteTraits {
        let description = self.description();
        description.map(|description| description.routes.clone()).unwrap_or_default()
    }

    async fn list(&self, cluster: &ClusterId, call: Call) -> Result<RouteTable, CloudError> {
        let (mut pages, mut table) = (Pages::new("routes"), RouteTable::default());
        let mut is_first = true;
        while let Some(page_token) = pages.next() {
            let message = proto::ListRoutesRequest {
                cluster: Some(cluster_to_wire(cluster)),
                page_token: Some(page_token),
                page_size: u32::try_from(MAX_BATCH).ok(),
                priority: Some(priority_to_wire(call.priority)),
            };
            let (wire, class) = (&self.wire, read("list_routes"));
            let send = |channel, terms| async move {
                client(channel).list_routes(question(message, terms)).await
            };
            let (_, page, _memory) =
                wire.call(class, call, &pages.budget, send).await?.into_parts();
            if std::mem::take(&mut is_first) {
                table.version = page.version.filter(|version| !version.is_empty());
                table.room = page.room;
            }
            for wire in page.routes {
                match Route::try_from(wire) {
                    Ok(route) => table.routes.push(route),
                    Err(error) => table.malformed.push(error.message),
                }
            }
            table.malformed.extend(lines(&page.malformed));
            if table.routes.len() + table.malformed.len() > MAX_ENTRIES {
                let what = format!("the list of routes has more than {MAX_ENTRIES} entries");
                return Err(CloudError::new(ErrorKind::Malformed, what));
            }
            pages.follow(page.next_page_token)?;
        }
        Ok(table)
    }

    /// Sends one message after another, because each message changes the version that the next one
    /// is compared with. A call of at most [`RouteTraits::max_batch`] changes has one message,
    /// unless its nodes are very large.
    fn apply<'a>(
        &'a self,
        cluster: &'a ClusterId,
        changes: &'a [RouteChange],
        base: Option<&'a str>,
        call: Call,
    ) -> Answers<'a, AppliedChange> {
        let most = self.traits().max_batch;
        let all = flowing(move |sender| async move {
            // The receiver is gone and needs no answer.
            let send = |place, answer| drop(sender.unbounded_send((place, answer)));
            let mut refused = repeated_destinations(changes);
            let taken =
                changes.iter().enumerate().filter(|(place, _)| !refused.contains_key(place));
            let taken: Vec<_> = taken.collect();
            while let Some((place, error)) = refused.pop_first() {
                send(place, Err(error));
            }
            let sizes = taken.iter().map(|(_, change)| change_to_wire(change).encoded_len());
            let base = Arc::new(Mutex::new(base.map(str::to_owned)));
            let answering = (sender.clone(), Budget::default());
            for range in split_by_size(sizes, most) {
                let part = taken.get(range).unwrap_or_default();
                self.apply_part(cluster, part, &base, call, answering.clone()).await;
            }
        });
        all.boxed()
    }

    fn find_targets<'a>(
        &'a self,
        targets: &'a [RouteTarget],
        call: Call,
    ) -> Answers<'a, TargetState> {
        let (parts, budget) = (targets.chunks(MAX_BATCH).enumerate(), Budget::default());
        let parts =
            parts.map(move |(part, some)| self.find_part(part * MAX_BATCH, some, call, &budget));
        let answers = stream::iter(parts).flatten_unordered(PARTS_AT_ONCE);
        let answers = answers.map(move |(place, answer)| {
            let state = answer.and_then(|absence| match (absence, targets.get(place)) {
                (Some(absence), Some(target)) => {
                    gone_from_wire(target, absence).map(TargetState::Gone)
                }
                _ => Ok(TargetState::Exists),
            });
            (place, state)
        });
        answers.boxed()
    }
}
