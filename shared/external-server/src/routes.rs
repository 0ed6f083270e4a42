//! The gRPC service of routes, implemented with a [`Cloud`].

use std::sync::Arc;

use ccm_cloud::{
    AppliedChange, Capability, Cloud, CloudError, RouteTable, RouteTarget, Routes, TargetState,
};
use ccm_external::{
    answers::flowing,
    convert::{
        front_end::cluster_from_wire,
        routes::{target_from_wire, target_to_wire},
    },
    proto::{
        self, apply_routes_item::Answer as Applied, find_route_targets_item::Answer as Found,
        routes_server,
    },
};
use futures::StreamExt as _;
use tonic::{Request, Response, Status, async_trait};

use super::{
    convert::{
        absence_to_wire, error_to_wire,
        routes::{applied_to_wire, change_from_wire},
        to_status,
    },
    items::{Items, pass_on, place, read},
    service::{offered, terms, within},
    snapshots::Snapshots,
};

pub struct RoutesService {
    cloud: Arc<dyn Cloud>,
    snapshots: Snapshots<RouteTable>,
}

impl RoutesService {
    pub fn new(cloud: Arc<dyn Cloud>) -> Self {
        Self { cloud, snapshots: Snapshots::default() }
    }

    fn offered(&self) -> Result<Arc<dyn Routes>, Status> {
        let offered = offered(&*self.cloud, Capability::Routes, self.cloud.routes());
        offered.map_err(|error| to_status(&error))
    }
}

fn applied(
    destination: &str,
    at: usize,
    answer: Result<AppliedChange, CloudError>,
) -> proto::ApplyRoutesItem {
    let answer = match answer {
        Ok(applied) => Applied::Applied(applied_to_wire(&applied)),
        Err(error) => Applied::Error(error_to_wire(&error)),
    };
    proto::ApplyRoutesItem {
        place: place(at),
        destination: Some(destination.to_owned()),
        answer: Some(answer),
    }
}

fn found(
    target: Option<&RouteTarget>,
    at: usize,
    answer: Result<TargetState, CloudError>,
) -> proto::FindRouteTargetsItem {
    let answer = match answer {
        Ok(TargetState::Exists) => Found::Exists(proto::TargetExists {}),
        Ok(TargetState::Gone(proof)) => Found::Gone(absence_to_wire(&proof)),
        Err(error) => Found::Error(error_to_wire(&error)),
    };
    let target = target.map(target_to_wire);
    proto::FindRouteTargetsItem { place: place(at), target, answer: Some(answer) }
}

#[async_trait]
impl routes_server::Routes for RoutesService {
    type ApplyRoutesStream = Items<proto::ApplyRoutesItem>;
    type FindRouteTargetsStream = Items<proto::FindRouteTargetsItem>;

    async fn list_routes(
        &self,
        request: Request<proto::ListRoutesRequest>,
    ) -> Result<Response<proto::ListRoutesResponse>, Status> {
        let call = terms(request.metadata(), request.get_ref().priority());
        let question = request.into_inner();
        let offered = self.offered()?;
        let (token, size) = (question.page_token().to_owned(), question.page_size());
        let cluster = cluster_from_wire(question.cluster);
        let read = async {
            let list = within(call, offered.list(&cluster, call)).await?;
            list.map_err(|error| to_status(&error))
        };
        let page = self.snapshots.open(&token, read).await?;
        let all = &page.list.routes;
        let (range, next_page_token) = self.snapshots.cut(&page, all.len(), size);
        let malformed = if range.start == 0 { page.list.malformed.clone() } else { Vec::new() };
        let shown = all.get(range).unwrap_or_default();
        Ok(Response::new(proto::ListRoutesResponse {
            routes: shown.iter().map(Into::into).collect(),
            malformed,
            next_page_token,
            version: page.list.version.clone(),
            room: page.list.room,
        }))
    }

    async fn apply_routes(
        &self,
        request: Request<proto::ApplyRoutesRequest>,
    ) -> Result<Response<Self::ApplyRoutesStream>, Status> {
        let call = terms(request.metadata(), request.get_ref().priority());
        let request = request.into_inner();
        let cluster = cluster_from_wire(request.cluster);
        let changes = read("changes of routes", request.changes, change_from_wire)?;
        let (base, offered) = (request.base, self.offered()?);
        let stream = flowing(move |sender| async move {
            let destinations = changes.iter().map(|change| change.destination().to_string());
            let destinations: Vec<_> = destinations.collect();
            let send = |at: usize, answer| {
                let destination = destinations.get(at).map(String::as_str).unwrap_or_default();
                // The client has disconnected and needs no answer.
                sender.unbounded_send(Ok(applied(destination, at, answer))).ok();
            };
            let answers = offered.apply(&cluster, &changes, base.as_deref(), call);
            pass_on("route", changes.len(), answers, call, true, send).await;
        });
        Ok(Response::new(stream.boxed()))
    }

    async fn find_route_targets(
        &self,
        request: Request<proto::FindRouteTargetsRequest>,
    ) -> Result<Response<Self::FindRouteTargetsStream>, Status> {
        let call = terms(request.metadata(), request.get_ref().priority());
        let targets = read("targets of routes", request.into_inner().targets, target_from_wire)?;
        let offered = self.offered()?;
        let stream = flowing(move |sender| async move {
            let send = |at: usize, answer| {
                // The client has disconnected and needs no answer.
                sender.unbounded_send(Ok(found(targets.get(at), at, answer))).ok();
            };
            let answers = offered.find_targets(&targets, call);
            pass_on("target", targets.len(), answers, call, false, send).await;
        });
        Ok(Response::new(stream.boxed()))
    }
}
