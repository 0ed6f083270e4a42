//! Reads the messages of a provider from the bytes of a fuzzer. It panics if the code that it runs
//! panics, or if a message has line breaks or is too long. It exists only with the feature `fuzz`.
//! `tests/fuzz` has the inputs.

use std::{path::Path, sync::Arc};

use ccm_cloud::{
    CloudError, ClusterId, Fleet, LoadBalancer, Member, NodeIdentity, Owner, Progress, Route,
    RouteChange, RouteTarget, WantedRoute,
};
use ccm_testing::{check_line, checked};
use parking_lot::Mutex;
use prost::Message;
use tonic::Status;

use super::{
    config::ExternalConfig,
    convert::{absence_from_wire, answer_from_wire},
    description::Description,
    exchange::Item,
    instances::add,
    pages::{Pages, lines},
    proto,
    routes::Applying,
    status,
    weight::weigh_parts,
};

/// The methods that answer with messages of these names.
const METHODS: &[(&[u8], &str)] = &[
    (b"describe", "Provider/Describe"),
    (b"instances", "Instances/ListInstances"),
    (b"balancers", "LoadBalancers/ListLoadBalancers"),
    (b"ensured", "LoadBalancers/EnsureLoadBalancers"),
    (b"deleted", "LoadBalancers/DeleteLoadBalancers"),
    (b"members", "LoadBalancers/SetMembers"),
    (b"previewed", "LoadBalancers/PreviewLoadBalancers"),
    (b"routes", "Routes/ListRoutes"),
    (b"applied", "Routes/ApplyRoutes"),
    (b"found", "Routes/FindRouteTargets"),
];

/// Reads one message of a provider, after a line with its name; or, after `config`, the file that
/// `--cloud-config` names.
pub fn external(data: &[u8]) {
    let end = data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len());
    let (kind, message) = data.split_at(end);
    let message = message.get(1..).unwrap_or_default();
    for (known, path) in METHODS {
        if *known == kind {
            let weigh = |size| weigh_parts(&format!("/quartet.cloud.v1.{path}"), message, size);
            assert_eq!(
                weigh(message.len()).ok(),
                weigh(7).ok(),
                "the weight does not depend on the cuts"
            );
        }
    }
    match kind {
        b"config" => {
            let text = String::from_utf8_lossy(message);
            checked(ExternalConfig::parse(Path::new("/nowhere/cloud.yaml"), &text));
        }
        b"status" => failure(message),
        b"describe" => description(message),
        b"lookup" => lookup(message),
        b"instances" => instances(message),
        b"balancers" => balancers(message),
        b"ensured" => progress::<proto::EnsureLoadBalancersItem>(message),
        b"deleted" => progress::<proto::DeleteLoadBalancersItem>(message),
        b"members" => progress::<proto::SetMembersItem>(message),
        b"previewed" => {
            let changes = item::<proto::PreviewLoadBalancersItem>(message, &[].into());
            changes.unwrap_or_default().iter().for_each(|line| check_line(line));
        }
        b"routes" => routes(message),
        b"applied" => applied(message),
        b"found" => {
            let gone = item::<proto::FindRouteTargetsItem>(message, &()).flatten();
            gone.and_then(|gone| checked(absence_from_wire(gone)));
        }
        _ => {}
    }
}

/// Returns the answer of this item, if it is one.
fn item<I: Item + Message + Default>(message: &[u8], context: &I::Context) -> Option<I::Answer> {
    let item = I::decode(message).ok()?;
    drop(item.about());
    checked(item.answer(context))
}

/// Reads an item about a load balancer.
fn progress<I>(message: &[u8])
where
    I: Item<Context = Arc<[Member]>> + Message + Default,
    I::Answer: Spoken,
{
    item::<I>(message, &[].into()).iter().for_each(Spoken::check);
}

/// An answer with texts for users.
trait Spoken {
    fn check(&self);
}

impl<T> Spoken for Progress<T> {
    fn check(&self) {
        match self {
            Self::Done(_) => {}
            Self::InProgress(waiting) => check_line(&waiting.what),
            Self::Elsewhere(why) | Self::NotSeen(why) => check_line(why),
            Self::Lost(loss) => check_line(&loss.why),
        }
    }
}

fn failure(message: &[u8]) {
    let Ok(error) = proto::Error::decode(message) else { return };
    checked::<(), CloudError>(Err(error.into()));
    let details = message.to_vec().into();
    let text = String::from_utf8_lossy(message);
    for code in 0..17 {
        let status = Status::with_details(code.into(), &*text, bytes::Bytes::clone(&details));
        checked::<(), CloudError>(Err(status::from_status(&status)));
    }
}

fn description(message: &[u8]) {
    let Ok(wire) = proto::DescribeResponse::decode(message) else { return };
    if let Some(description) = checked(Description::try_from(wire)) {
        check_line(&description.provider);
        check_line(&description.to_string());
    }
}

fn lookup(message: &[u8]) {
    let Ok(wire) = proto::LookupAnswer::decode(message) else { return };
    let node =
        NodeIdentity { provider_id: Some("rogue://1".to_owned()), ..NodeIdentity::named("node-1") };
    checked(answer_from_wire(&node, wire));
}

fn instances(message: &[u8]) {
    let Ok(page) = proto::ListInstancesResponse::decode(message) else { return };
    if let Ok(weight) = weigh_parts("/quartet.cloud.v1.Instances/ListInstances", message, 100) {
        let lists = page.instances.capacity() * size_of::<proto::Instance>()
            + page.malformed.capacity() * size_of::<String>();
        assert!(weight >= lists, "{weight} are counted, and lists alone take {lists}");
    }
    let (mut fleet, mut pages) = (Fleet::default(), Pages::new("instances"));
    let next = page.next_page_token.clone();
    checked(add(&mut fleet, page));
    checked(pages.follow(next));
    fleet.malformed.iter().for_each(|line| check_line(line));
}

fn balancers(message: &[u8]) {
    let Ok(page) = proto::ListLoadBalancersResponse::decode(message) else { return };
    for balancer in page.load_balancers {
        if let Some(balancer) = checked(LoadBalancer::try_from(balancer)) {
            balancer.notes.iter().for_each(|note| check_line(&note.message));
        }
    }
    lines(&page.malformed).for_each(|line| check_line(&line));
}

fn routes(message: &[u8]) {
    let Ok(page) = proto::ListRoutesResponse::decode(message) else { return };
    for route in page.routes {
        checked(Route::try_from(route));
    }
    lines(&page.malformed).for_each(|line| check_line(&line));
}

fn applied(message: &[u8]) {
    let cluster = ClusterId { name: "prod".to_owned(), uid: "c-1".to_owned() };
    let (name, destination) = ("node-1".to_owned(), ipnet::IpNet::default());
    let new = Arc::new(WantedRoute {
        owner: Owner { cluster, uid: name.clone(), namespace: String::new(), name: name.clone() },
        destination,
        node: NodeIdentity::named(name),
        addresses: Vec::new(),
    });
    let old = || Box::new(Route::new(destination, RouteTarget::Node("node-1".to_owned())));
    for change in [
        RouteChange::Create(Arc::clone(&new)),
        RouteChange::Replace { old: old(), new },
        RouteChange::Delete(old()),
    ] {
        let context = Applying { change, base: Arc::new(Mutex::new(Some("1".to_owned()))) };
        item::<proto::ApplyRoutesItem>(message, &context);
    }
}
