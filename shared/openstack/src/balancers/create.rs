//! Creates a load balancer: the whole tree by one request, then its floating IP.

use std::time::Duration;

use ccm_cloud::{
    Call, CloudError, ErrorKind, FrontEnd, IpFamily, LoadBalancer, Note, Owner, Progress,
};
use ccm_openstack_client::{lbaas::BalancerRow, network::FloatingIp};
use serde_json::{Value, json};

use super::{
    annotations::{Given, remark},
    apply,
    current::PartCounts,
    error_source::{About, add_source},
    floating::{self, Elsewhere, Wish},
    job::{Job, SINGLE_STACK, invalid},
    local,
    memory::Verified,
    merge::{Shape, first},
    names,
    place::{self, Place},
    pools::{self, PortPool, why_none},
    read,
    spec::{Listener, Tree, Unasked},
    steps::{Act, Step},
    view,
};

/// The time until the first look at a creation: amphorae are never ready earlier.
const CREATION: Duration = Duration::from_secs(2);

/// Returns the remark about an address that the cloud does not give again. It is not a warning,
/// because the event is over and the warning would stay in the condition.
fn address_changed(what: String) -> Note {
    Note { warning: false, ..remark("LoadBalancerAddressChanged", what) }
}

/// Refuses a creation that Octavia may still hold in its queue when the call ends: it would be made
/// in addition to the one the next call creates, because that call cannot see it yet.
fn check_time(call: Call) -> Result<(), CloudError> {
    if call.left() >= call.timeout / 2 {
        return Ok(());
    }
    let limit = call.timeout.as_secs_f64();
    let what = format!("not sent: less than half of the {limit} s of the call is left");
    Err(CloudError::new(ErrorKind::Timeout, what).that_was_not_sent())
}

/// Refuses a load balancer without a family that the Service requires. The error is not final: the
/// network may get a subnet of that family later.
fn check_families(job: &Job<'_>, place: &Place) -> Result<(), CloudError> {
    const FIELD: &str = "spec.ipFamilyPolicy";
    let front_end = &job.wanted.front_end;
    let mut wanted = front_end.families.iter();
    let lacking = wanted.find(|one| !place.families.contains(one));
    let Some(family) = lacking.filter(|_| front_end.requires_families) else { return Ok(()) };
    let why = place.notes.iter().find(|note| note.reason == SINGLE_STACK);
    let why = why.map_or_else(
        || format!("a load balancer at its own port has no {family} address"),
        |note| note.message.clone(),
    );
    let what = format!(
        "{FIELD} is RequireDualStack: {why}: add a subnet of {family}, or set PreferDualStack or \
         SingleStack"
    );
    Err(CloudError::new(ErrorKind::Conflict, what).about(FIELD))
}

/// A new load balancer as it should be.
pub struct Design {
    place: Place,
    tree: Tree,
    wish: Wish,
    elsewhere: Elsewhere,
    /// The changes of the floating IP.
    floating: Vec<Step>,
    notes: Vec<Note>,
}

impl Design {
    /// Returns the changes, one line each.
    pub fn steps(self, owner: &Owner) -> Vec<Step> {
        let listeners = self.tree.listeners.iter();
        let listeners: Vec<String> =
            listeners.map(|one| format!("{}/{}", one.port, one.protocol)).collect();
        let (name, listeners) = (names::balancer(owner), listeners.join(", "));
        let line = format!("create load balancer {name} with listeners {listeners}");
        std::iter::once(Step::new(line, Act::Later)).chain(self.floating).collect()
    }
}

/// Designs a new load balancer. Fails if it cannot be had, before anything is made. `attached` are
/// the floating IPs of the load balancer that it replaces. `may_be_left` says that the owner had one
/// before.
pub async fn design(
    job: &Job<'_>,
    attached: &[FloatingIp],
    may_be_left: bool,
) -> Result<Design, CloudError> {
    check(job, !may_be_left)?;
    let place = place::find_place(job).await?;
    if !may_be_left {
        check_families(job, &place)?;
    }
    let (front_end, settings, unasked) = (&job.wanted.front_end, &job.settings, unasked(job));
    let tree = tree_of(job, &place, unasked)?;
    let notes = place.notes.iter().chain(&tree.notes).chain(&settings.notes).cloned();
    let mut notes: Vec<_> = notes.collect();
    notes.extend(local::remarks(None, front_end, settings, job.features, unasked));
    let wish = place::wish(job, place.family(), attached, &mut notes).await?;
    let search = floating::search(&wish, attached, may_be_left);
    let elsewhere = read::elsewhere(job, search).await?;
    let floating = floating::plan(&wish, &front_end.owner, attached, &elsewhere)?;
    if let Some(misspelt) = &settings.misspelt_internal
        && floating.iter().any(Step::makes_public)
        && !was_public(job, &elsewhere)
    {
        return Err(refusal(std::slice::from_ref(misspelt)));
    }
    Ok(Design { place, tree, wish, elsewhere, floating, notes })
}

/// Returns true if clients know a floating IP of the load balancer that was lost.
fn was_public(job: &Job<'_>, elsewhere: &Elsewhere) -> bool {
    let mut all = elsewhere.tagged.iter().chain(&elsewhere.wished);
    all.any(|ip| job.wanted.shown.contains(&ip.address))
}

/// Creates what an owner does not have. `may_be_left` says that it had one before.
pub async fn create(
    job: &Job<'_>,
    may_be_left: bool,
) -> Result<Progress<LoadBalancer>, CloudError> {
    let cx = job.cx;
    let (owner, settings, members) =
        (&job.wanted.front_end.owner, &job.settings, &job.wanted.members);
    let mut design = design(job, &[], may_be_left).await?;
    let row = send(job, &mut design).await?;
    let Design { place, tree, wish, floating, notes, .. } = design;
    cx.memory.forget_before(&owner.uid);
    if let Some(id) = &job.wanted.known {
        cx.failures.forget(id);
    }
    let mut attached: Vec<FloatingIp> = Vec::new();
    let port = row.vip_port_id.as_deref();
    for step in floating {
        if let (Act::Floating(act), Some(_)) = (step.act, port) {
            let ip = apply::make_floating(cx, act, owner, port).await;
            attached.extend(ip.map_err(|error| add_source(error, About::FloatingIp, settings))?);
        }
    }
    let is_whole = !matches!(wish, Wish::External { .. }) || !attached.is_empty();
    if is_whole && row.vip_address.is_some() {
        let (selector, family) = (&settings.selector, place.family());
        let ports = pools::of_creation(&tree);
        let why_empty = why_none(members, selector, family);
        let count = |port: &PortPool| pools::created(port, members, selector, family);
        let created = pools::shown(&ports, count, why_empty.as_deref());
        let verified = Verified {
            notes,
            parts: parts(&tree),
            ports,
            why_empty,
            created,
            ..Verified::default()
        };
        let verified = view::with_addresses(job, &row, &attached, verified);
        cx.memory.change(&row.id, |known| known.verify(verified));
    }
    let mut waiting = view::waiting(&row, None, ccm_base::clock::wall());
    waiting.changed = true;
    if !job.features.ovn {
        waiting.check_after = CREATION;
    }
    Ok(Progress::InProgress(waiting))
}

/// Sends a creation. If the cloud refuses it because of the previous addresses, or maybe because of
/// monitors that the Service has not requested, sends it again without them: Octavia has created
/// nothing.
async fn send(job: &Job<'_>, design: &mut Design) -> Result<BalancerRow, CloudError> {
    let (memory, FrontEnd { owner, digest, .. }) = (&job.cx.memory, &*job.wanted.front_end);
    let why_not = memory.before(&owner.uid).and_then(|before| before.refused);
    let reused = if why_not.is_none() { reused(job, design) } else { None };
    design.notes.extend(why_not.map(address_changed));
    let mut place = reused.as_ref().unwrap_or(&design.place);
    let mut made = request(job, place, &design.tree).await;
    if let (Err(error), Some(addresses)) = (&made, reused.as_ref().map(Place::addresses))
        && is_refused(&addresses, error)
    {
        let what = format!("address {} could not be kept: {error}", addresses.join(" and "));
        memory.change_before(&owner.uid, |before| {
            (before.vip, before.refused) = (None, Some(what.clone()));
        });
        design.notes.push(address_changed(what));
        place = &design.place;
        made = request(job, place, &design.tree).await;
    }
    let has_unasked = job.settings.checks.is_none()
        && design.tree.listeners.iter().any(|listener| listener.pool.monitor.is_some());
    if let Err(error) = &made
        && has_unasked
        && local::may_be_refusal(error)
    {
        let why = error.to_string();
        design.tree = tree_of(job, &design.place, Unasked::Kept)?;
        made = request(job, place, &design.tree).await;
        if let Ok(row) = &made {
            design.notes.push(local::refused(&why));
            memory.change(&row.id, |known| known.unmonitored = Some((*digest, why)));
        }
    }
    made.map_err(|error| add_source(error, About::LoadBalancer, &job.settings))
}

async fn request(job: &Job<'_>, place: &Place, tree: &Tree) -> Result<BalancerRow, CloudError> {
    check_time(job.cx.call)?;
    job.cx.octavia.create(body(job, place, tree), job.cx.call).await
}

/// Returns true if the cloud refuses a creation because of one of these addresses.
fn is_refused(addresses: &[String], error: &CloudError) -> bool {
    let is_refusal = matches!(error.kind, ErrorKind::Conflict | ErrorKind::Invalid);
    let is_named = addresses.iter().any(|one| error.message.contains(one));
    // Octavia does not name the address if another network than before is configured.
    let is_outside = error.message.contains("does not contain a subnet for VIP address");
    is_refusal && !error.maybe_done && (is_named || is_outside)
}

/// Refuses a load balancer with settings that are not managed yet, or open to all clients although it
/// must not be; and the first one of a Service if it would be public by a misspelling.
fn check(job: &Job<'_>, is_first: bool) -> Result<(), CloudError> {
    let (front_end, settings) = (&job.wanted.front_end, &job.settings);
    let misspelt = settings.misspelt_internal.as_slice();
    let refused = if is_first && !misspelt.is_empty() { misspelt } else { &settings.unmanaged };
    if !refused.is_empty() {
        return Err(refusal(refused));
    }
    let is_open = !front_end.source_ranges.is_empty() && !job.features.allowed_cidrs();
    if is_open && job.cx.config.load_balancer.require_source_ranges {
        let what = "spec.loadBalancerSourceRanges: this Octavia or its driver restricts no clients, \
                    and [LoadBalancer] require-source-ranges is true: remove the ranges and \
                    restrict clients otherwise, or set it to false";
        return Err(invalid("spec.loadBalancerSourceRanges", what));
    }
    Ok(())
}

/// Returns the error about these settings, one line each.
fn refusal(refused: &[Given]) -> CloudError {
    let lines = refused.iter().map(|given| format!("{}: {}", given.source, given.value));
    let first = refused.first().map(|given| given.source.to_string());
    invalid(first.unwrap_or_default(), lines.collect::<Vec<_>>().join("; "))
}

/// Returns `TakenBack` if the load balancer that it replaces lost its monitors, otherwise `Added`.
fn unasked(job: &Job<'_>) -> Unasked {
    let FrontEnd { owner, digest, .. } = &*job.wanted.front_end;
    let taken_back = job.cx.memory.before(&owner.uid).and_then(|before| before.taken_back);
    if taken_back == Some(*digest) { Unasked::TakenBack } else { Unasked::Added }
}

/// Returns the place with the addresses of an earlier load balancer of this owner: what this process
/// remembers, what the floating IP says, else what clients were shown. `None` if nothing is known.
fn reused(job: &Job<'_>, design: &Design) -> Option<Place> {
    let Design { place, wish, elsewhere, .. } = design;
    let owner = &job.wanted.front_end.owner;
    if place.port.is_some() || place.address.is_some() {
        return None;
    }
    let shown = |family: IpFamily| {
        let mut shown = job.wanted.shown.iter().copied();
        shown.find(|address| IpFamily::from_address(*address) == family)
    };
    let remembered = job.cx.memory.before(&owner.uid).and_then(|before| before.vip);
    let vip = remembered.or_else(|| match wish {
        // Clients were given the floating IP instead.
        Wish::External { .. } => {
            let all = elsewhere.tagged.iter().chain(&elsewhere.wished);
            all.filter(|ip| floating::is_ours(ip, owner))
                .find_map(|ip| names::value(&ip.tags, names::VIP))
        }
        _ => shown(place.family()),
    });
    let mut reused = place.clone();
    reused.address = vip.filter(|vip| IpFamily::from_address(*vip) == place.family());
    for (vip, family) in reused.additional.iter_mut().zip(place.families.iter().skip(1)) {
        vip.ip_address = shown(*family);
    }
    (!reused.addresses().is_empty()).then_some(reused)
}

/// Returns the load balancer with all that is below it.
fn body(job: &Job<'_>, place: &Place, tree: &Tree) -> Value {
    let (front_end, settings) = (&job.wanted.front_end, &job.settings);
    let owner = &front_end.owner;
    let name = names::balancer(owner);
    let mut tags = names::tags(name.clone(), owner).to_vec();
    tags.extend(settings.tags.balancer.iter().cloned());
    tags.push(names::tag(names::DIGEST, front_end.digest));
    if unasked(job) == Unasked::TakenBack {
        tags.push(names::tag(names::TAKEN_BACK, front_end.digest));
    }
    let value = |given: &Option<Given>, is_offered: bool| {
        given.as_ref().filter(|_| is_offered).map(|given| given.value.clone())
    };
    let mut body = json!({
        "name": name,
        "description": names::description(owner),
        "provider": job.cx.config.load_balancer.provider,
        "tags": tags,
        "vip_port_id": place.port,
        "vip_subnet_id": place.subnet,
        "vip_network_id": place.network,
        "vip_address": place.address,
        "additional_vips": place.additional,
        "flavor_id": value(&settings.flavor, job.features.flavors()),
        "availability_zone": value(&settings.zone, job.features.zones()),
        "listeners": listeners(job, place, tree),
    });
    if let Some(fields) = body.as_object_mut() {
        fields.retain(|_, value| !value.is_null() && *value != json!([]));
    }
    body
}

/// Returns the listeners, pools and monitors of a new load balancer.
fn tree_of(job: &Job<'_>, place: &Place, unasked: Unasked) -> Result<Tree, CloudError> {
    let front_end = &job.wanted.front_end;
    let name = names::balancer(&front_end.owner);
    Tree::new(name, front_end, &job.settings, job.features, &place.families, unasked)
}

fn listeners(job: &Job<'_>, place: &Place, tree: &Tree) -> Value {
    let (family, selector) = (place.family(), &job.settings.selector);
    let subnet = place.member_subnet.as_deref();
    let whole = tree.listeners.iter().map(|listener| {
        let mut pool = listener.pool.body();
        if let Some(port) = listener.pool.member_port {
            let monitor_port = listener.pool.monitor_port;
            let shape = Shape { port, family, selector, subnet, monitor_port };
            pool["members"] = first(&job.wanted.members, shape).into();
        }
        if let Some(monitor) = &listener.pool.monitor {
            pool["healthmonitor"] = monitor.body();
        }
        let mut body = listener.body();
        body["default_pool"] = pool;
        body
    });
    whole.collect()
}

/// Returns the numbers of parts that are created.
fn parts(tree: &Tree) -> PartCounts {
    let with_members = |listener: &&Listener| listener.pool.member_port.is_some();
    PartCounts {
        listeners: tree.listeners.len(),
        bare: 0,
        filled: tree.listeners.iter().filter(with_members).count(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The last of a hundred creations of one call are sent by the next call, although nothing has
    /// hung.
    #[tokio::test(start_paused = true)]
    async fn a_creation_for_which_no_time_is_left_is_no_time_out() {
        let call = Call::routine(Duration::from_secs(30));
        tokio::time::advance(Duration::from_secs(15)).await;
        assert_eq!(check_time(call), Ok(()));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(check_time(call).is_err_and(|error| error.unsent && !error.maybe_done));
    }

    #[test]
    fn an_address_of_another_network_is_refused_without_its_name() {
        let addresses = ["10.0.0.7".to_owned()];
        let error = |kind, text: &str| CloudError::new(kind, text);
        for (text, expect) in [
            ("Supplied network does not contain a subnet for VIP address specified.", true),
            ("IP address 10.0.0.7 is in use", true),
            ("the listener is not valid", false),
        ] {
            assert_eq!(is_refused(&addresses, &error(ErrorKind::Invalid, text)), expect, "{text}");
        }
        let unclear = error(ErrorKind::Invalid, "10.0.0.7").that_may_be_done();
        assert!(!is_refused(&addresses, &unclear));
    }
}
