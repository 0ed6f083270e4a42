//! The gRPC service of load balancers, implemented with a [`Cloud`].

use std::sync::Arc;

use ccm_base::message::{LONGEST_LINE, one_line};
use ccm_cloud::{
    AbsenceProof, Capability, Cloud, CloudError, ErrorKind, LoadBalancer, LoadBalancerList,
    LoadBalancers, Loss, MemberChange, MembersSet, Progress, Unwanted, Wanted,
};
use ccm_external::{
    answers::flowing,
    convert::front_end::cluster_from_wire,
    proto::{
        self, delete_load_balancers_item::Answer as Deleted,
        ensure_load_balancers_item::Answer as Ensured, load_balancers_server,
        preview_load_balancers_item::Answer as Previewed, set_members_item::Answer as Changed,
    },
};
use futures::StreamExt as _;
use tonic::{Request, Response, Status, async_trait};

use super::{
    convert::{
        absence_to_wire, error_to_wire,
        front_end::{
            MemberList, change_from_wire, lists_from_wire, unwanted_from_wire, wanted_from_wire,
        },
        load_balancers::{
            balancer_to_wire, depth_from_wire, ensured_to_wire, members_set_to_wire,
            scope_from_wire, waiting_to_wire,
        },
        to_status,
    },
    items::{Items, invalid, pass_on, place, read},
    service::{offered, terms, within},
    snapshots::Snapshots,
};

/// The name of the items, for messages.
const BALANCERS: &str = "load balancers";

pub struct LoadBalancersService {
    cloud: Arc<dyn Cloud>,
    snapshots: Snapshots<LoadBalancerList>,
}

impl LoadBalancersService {
    pub fn new(cloud: Arc<dyn Cloud>) -> Self {
        Self { cloud, snapshots: Snapshots::default() }
    }

    fn offered(&self) -> Result<Arc<dyn LoadBalancers>, Status> {
        let offered = offered(&*self.cloud, Capability::LoadBalancers, self.cloud.load_balancers());
        offered.map_err(|error| to_status(&error))
    }
}

fn member_lists(wire: Vec<proto::MemberList>) -> Result<Vec<MemberList>, Status> {
    lists_from_wire(wire).map_err(invalid)
}

fn elsewhere(reason: String) -> proto::Elsewhere {
    proto::Elsewhere { reason: Some(reason) }
}

/// Makes an error of an answer that the protocol does not allow for this call.
fn not_an_answer(reason: &str) -> proto::Error {
    let what = format!("the provider gave an answer that belongs to another call: {reason}");
    error_to_wire(&CloudError::new(ErrorKind::Malformed, what))
}

fn ensured(
    asked: &Wanted,
    at: usize,
    answer: Result<Progress<LoadBalancer>, CloudError>,
) -> proto::EnsureLoadBalancersItem {
    let answer = match answer {
        Ok(Progress::Done(balancer)) => {
            Ensured::Done(ensured_to_wire(balancer, &asked.members.present))
        }
        Ok(Progress::InProgress(waiting)) => Ensured::InProgress(waiting_to_wire(&waiting)),
        Ok(Progress::Elsewhere(reason)) => Ensured::Elsewhere(elsewhere(reason)),
        Ok(Progress::NotSeen(reason)) => Ensured::Error(not_an_answer(&reason)),
        Ok(Progress::Lost(Loss { why, is_gone })) => Ensured::Lost(proto::Lost {
            reason: Some(one_line(&why, LONGEST_LINE)),
            gone: Some(is_gone),
        }),
        Err(error) => Ensured::Error(error_to_wire(&error)),
    };
    proto::EnsureLoadBalancersItem {
        place: place(at),
        owner_uid: Some(asked.front_end.owner.uid.clone()),
        answer: Some(answer),
    }
}

fn previewed(
    asked: &Wanted,
    at: usize,
    answer: Result<Vec<String>, CloudError>,
) -> proto::PreviewLoadBalancersItem {
    let answer = match answer {
        Ok(lines) => Previewed::Changes(proto::Changes { lines }),
        Err(error) => Previewed::Error(error_to_wire(&error)),
    };
    proto::PreviewLoadBalancersItem {
        place: place(at),
        owner_uid: Some(asked.front_end.owner.uid.clone()),
        answer: Some(answer),
    }
}

fn changed(
    asked: &MemberChange,
    at: usize,
    answer: Result<Progress<MembersSet>, CloudError>,
) -> proto::SetMembersItem {
    let answer = match answer {
        Ok(Progress::Done(set)) => Changed::Done(members_set_to_wire(set)),
        Ok(Progress::InProgress(waiting)) => Changed::InProgress(waiting_to_wire(&waiting)),
        Ok(Progress::Elsewhere(reason)) => Changed::Elsewhere(elsewhere(reason)),
        Ok(Progress::NotSeen(reason)) => {
            Changed::NotSeen(proto::NotSeen { reason: Some(one_line(&reason, LONGEST_LINE)) })
        }
        Ok(Progress::Lost(Loss { why, .. })) => Changed::Error(not_an_answer(&why)),
        Err(error) => Changed::Error(error_to_wire(&error)),
    };
    proto::SetMembersItem {
        place: place(at),
        owner_uid: Some(asked.owner.uid.clone()),
        answer: Some(answer),
    }
}

fn deleted(
    asked: &Unwanted,
    at: usize,
    answer: Result<Progress<AbsenceProof>, CloudError>,
) -> proto::DeleteLoadBalancersItem {
    let answer = match answer {
        Ok(Progress::Done(proof)) => Deleted::Gone(absence_to_wire(&proof)),
        Ok(Progress::InProgress(waiting)) => Deleted::InProgress(waiting_to_wire(&waiting)),
        Ok(Progress::Elsewhere(reason)) => Deleted::Elsewhere(elsewhere(reason)),
        Ok(Progress::NotSeen(why) | Progress::Lost(Loss { why, .. })) => {
            Deleted::Error(not_an_answer(&why))
        }
        Err(error) => Deleted::Error(error_to_wire(&error)),
    };
    proto::DeleteLoadBalancersItem {
        place: place(at),
        owner_uid: Some(asked.owner.uid.clone()),
        answer: Some(answer),
    }
}

/// The stream of the answers to these items. A macro, because the answers borrow the items.
macro_rules! answers {
    ($self:ident, $items:ident, $call:ident, $writes:literal, $method:ident, $item:ident) => {{
        let offered = $self.offered()?;
        let stream = flowing(move |sender| async move {
            let send = |at: usize, answer| {
                let Some(asked) = $items.get(at) else { return };
                // The client has disconnected and needs no answer.
                sender.unbounded_send(Ok($item(asked, at, answer))).ok();
            };
            pass_on(
                "load balancer",
                $items.len(),
                offered.$method(&$items, $call),
                $call,
                $writes,
                send,
            )
            .await;
        });
        Ok(Response::new(stream.boxed()))
    }};
}

#[async_trait]
impl load_balancers_server::LoadBalancers for LoadBalancersService {
    type EnsureLoadBalancersStream = Items<proto::EnsureLoadBalancersItem>;
    type PreviewLoadBalancersStream = Items<proto::PreviewLoadBalancersItem>;
    type SetMembersStream = Items<proto::SetMembersItem>;
    type DeleteLoadBalancersStream = Items<proto::DeleteLoadBalancersItem>;

    async fn list_load_balancers(
        &self,
        request: Request<proto::ListLoadBalancersRequest>,
    ) -> Result<Response<proto::ListLoadBalancersResponse>, Status> {
        let call = terms(request.metadata(), request.get_ref().priority());
        let question = request.into_inner();
        let offered = self.offered()?;
        let (depth, scope) = (depth_from_wire(question.depth()), question.scope());
        let (token, size) = (question.page_token().to_owned(), question.page_size());
        let cluster = cluster_from_wire(question.cluster);
        let scope = scope_from_wire(scope, question.ids);
        let read = async {
            let list = within(call, offered.list(&cluster, scope, depth, call)).await?;
            list.map_err(|error| to_status(&error))
        };
        let page = self.snapshots.open(&token, read).await?;
        let all = &page.list.load_balancers;
        let (range, next_page_token) = self.snapshots.cut(&page, all.len(), size);
        let malformed = if range.start == 0 { page.list.malformed.clone() } else { Vec::new() };
        let shown = all.get(range).unwrap_or_default();
        Ok(Response::new(proto::ListLoadBalancersResponse {
            load_balancers: shown.iter().map(balancer_to_wire).collect(),
            malformed,
            next_page_token,
        }))
    }

    async fn ensure_load_balancers(
        &self,
        request: Request<proto::EnsureLoadBalancersRequest>,
    ) -> Result<Response<Self::EnsureLoadBalancersStream>, Status> {
        let call = terms(request.metadata(), request.get_ref().priority());
        let request = request.into_inner();
        let lists = member_lists(request.member_lists)?;
        let wanted = read(BALANCERS, request.wanted, |wanted| wanted_from_wire(wanted, &lists))?;
        answers!(self, wanted, call, true, ensure, ensured)
    }

    async fn preview_load_balancers(
        &self,
        request: Request<proto::EnsureLoadBalancersRequest>,
    ) -> Result<Response<Self::PreviewLoadBalancersStream>, Status> {
        let call = terms(request.metadata(), request.get_ref().priority());
        let request = request.into_inner();
        let lists = member_lists(request.member_lists)?;
        let wanted = read(BALANCERS, request.wanted, |wanted| wanted_from_wire(wanted, &lists))?;
        answers!(self, wanted, call, false, preview, previewed)
    }

    async fn set_members(
        &self,
        request: Request<proto::SetMembersRequest>,
    ) -> Result<Response<Self::SetMembersStream>, Status> {
        let call = terms(request.metadata(), request.get_ref().priority());
        let request = request.into_inner();
        let lists = member_lists(request.member_lists)?;
        let changes = read(BALANCERS, request.changes, |change| change_from_wire(change, &lists))?;
        answers!(self, changes, call, true, set_members, changed)
    }

    async fn delete_load_balancers(
        &self,
        request: Request<proto::DeleteLoadBalancersRequest>,
    ) -> Result<Response<Self::DeleteLoadBalancersStream>, Status> {
        let call = terms(request.metadata(), request.get_ref().priority());
        let unwanted = read(BALANCERS, request.into_inner().unwanted, unwanted_from_wire)?;
        answers!(self, unwanted, call, true, delete, deleted)
    }
}
