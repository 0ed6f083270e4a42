//! Creates a load balancer: the whole tree by one request, then its floating IP.

use std::time::Duration;

use ccm_cloud::{Call, CloudError, ErrorKind, FrontEnd, IpFamily, LoadBalancer, Note, Progress};
use ccm_openstack_client::{lbaas::BalancerRow, network::FloatingIp};
use serde_json::{Value, json};

use super::{
    OctaviaBalancers,
    annotations::{Given, remark},
    blame::{About, blamed},
    current::Parts,
    floating::{self, Elsewhere},
    job::{Job, SINGLE_STACK},
    local,
    memory::{Verified, Vip},
    merge::{Shape, first},
    names,
    place::Place,
    pools::{self, why_none},
    reused::Kept,
    spec::{Listener, Tree, Unasked},
    steps::{Act, Step},
    view,
};

/// When it is worth to look at a creation first: amphorae are never ready before.
const CREATION: Duration = Duration::from_secs(2);

/// The remark about an address that the cloud does not give again: no warning, because it is over and
/// would stay in the condition.
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
    let Some(family) = wanted.find(|one| !place.families.contains(one)) else { return Ok(()) };
    if !front_end.requires_families {
        return Ok(());
    }
    let why = place.notes.iter().find(|note| note.reason == SINGLE_STACK);
    let why = why.map_or_else(
        || format!("a load balancer at a port of its own has no {family} address"),
        |note| note.message.clone(),
    );
    let what = format!(
        "{FIELD} is RequireDualStack: {why}: add a subnet of {family}, or set PreferDualStack or \
         SingleStack"
    );
    Err(CloudError::new(ErrorKind::Conflict, what).about(FIELD))
}

impl OctaviaBalancers {
    /// Creates what an owner does not have. `may_be_left` says that it had one before.
    pub async fn create(
        &self,
        job: Job<'_>,
        may_be_left: bool,
        call: Call,
    ) -> Result<Progress<LoadBalancer>, CloudError> {
        let (owner, settings) = (&job.wanted.front_end.owner, &job.settings);
        let (place, mut tree) = self.designed(&job, !may_be_left, call).await?;
        let notes = place.notes.iter().chain(&tree.notes).chain(&settings.notes).cloned();
        let mut notes: Vec<_> = notes.collect();
        let front_end = &job.wanted.front_end;
        notes.extend(local::remarks(None, front_end, settings, job.features, self.unasked(&job)));
        let family = place.families.first().copied().unwrap_or(IpFamily::V4);
        // What cannot be had is found out before anything is made.
        let wish = self.wish(&job, family, &[], &mut notes, call).await?;
        let look = floating::look(&wish, &[], may_be_left);
        let elsewhere = self.elsewhere(look, &job, call).await?;
        floating::plan(&wish, owner, None, &[], &elsewhere)?;
        let refused = self.memory.refusal(&owner.uid);
        let kept = match &refused {
            Some(_) => Kept::default(),
            None => self.kept(&job, &place, &wish, &elsewhere),
        };
        notes.extend(refused.map(address_changed));
        let row = self.send(&job, &place, &mut tree, kept, &mut notes, call).await?;
        self.memory.forget_before(&owner.uid);
        if let Some(id) = &job.wanted.known {
            self.failures.forget(id);
        }
        let mut attached: Vec<FloatingIp> = Vec::new();
        let port = row.vip_port_id.as_deref();
        for step in floating::plan(&wish, owner, port, &[], &elsewhere)? {
            if let (Act::Floating(act), Some(_)) = (step.act, port) {
                let ip = self.make_floating(act, owner, port, call).await;
                attached.extend(ip.map_err(|error| blamed(error, About::FloatingIp, settings))?);
            }
        }
        let is_whole = !matches!(wish, floating::Wish::External { .. }) || !attached.is_empty();
        if is_whole && row.vip_address.is_some() {
            let verified = self.verified(&row, &attached, &job, parts(&tree), notes);
            let why_empty = why_none(&job.wanted.members, &settings.selector, family);
            let ports = pools::of_creation(&tree);
            let members = &job.wanted.members;
            let created = Some(pools::created(&tree, members, &settings.selector, family));
            self.memory.verify(&row.id, Verified { ports, why_empty, created, ..verified });
        }
        let mut waiting = view::waiting(&row, None, ccm_base::clock::wall());
        waiting.changed = true;
        if !job.features.ovn {
            waiting.check_after = CREATION;
        }
        Ok(Progress::InProgress(waiting))
    }

    /// Sends a creation. If the cloud refuses it, maybe because of monitors that the Service has not
    /// requested, sends it again without them.
    async fn send(
        &self,
        job: &Job<'_>,
        place: &Place,
        tree: &mut Tree,
        mut kept: Kept,
        notes: &mut Vec<Note>,
        call: Call,
    ) -> Result<BalancerRow, CloudError> {
        let blame = |error| blamed(error, About::LoadBalancer, &job.settings);
        let has_unasked = job.settings.checks.is_none()
            && tree.listeners.iter().any(|listener| listener.pool.monitor.is_some());
        let body = self.body(job, place, tree);
        let error = match self.send_kept(job, body, &mut kept, notes, call).await {
            Err(error) if has_unasked && local::may_be_refusal(&error) => error,
            made => return made.map_err(blame),
        };
        // Octavia has created nothing.
        *tree = tree_of(job, place, Unasked::Kept)?;
        check_time(call)?;
        let made = self.octavia.create(kept.added_to(self.body(job, place, tree)), call).await;
        let row = made.map_err(blame)?;
        let why = error.to_string();
        notes.push(local::refused(&why));
        self.memory.keep_unmonitored(&row.id, job.wanted.front_end.digest, why);
        Ok(row)
    }

    /// Sends a creation. If the cloud refuses the previous addresses, sends it again without them.
    async fn send_kept(
        &self,
        job: &Job<'_>,
        body: Value,
        kept: &mut Kept,
        notes: &mut Vec<Note>,
        call: Call,
    ) -> Result<BalancerRow, CloudError> {
        check_time(call)?;
        match self.octavia.create(kept.added_to(body.clone()), call).await {
            Err(error) if kept.is_refused_by(&error) => {
                // Octavia has created nothing.
                let what = format!("{kept} could not be kept: {error}");
                self.memory.keep_refusal(&job.wanted.front_end.owner.uid, what.clone());
                notes.push(address_changed(what));
                *kept = Kept::default();
                check_time(call)?;
                self.octavia.create(body, call).await
            }
            made => made,
        }
    }

    /// The changes of a creation, one line each. `attached` are the floating IPs of the load balancer
    /// that it replaces.
    pub async fn preview_creation(
        &self,
        job: &Job<'_>,
        attached: &[FloatingIp],
        may_be_left: bool,
        call: Call,
    ) -> Result<Vec<String>, CloudError> {
        let steps = self.creation(job, attached, may_be_left, call).await?;
        Ok(steps.into_iter().map(|step| step.line).collect())
    }

    /// The changes of a creation.
    pub async fn creation(
        &self,
        job: &Job<'_>,
        attached: &[FloatingIp],
        may_be_left: bool,
        call: Call,
    ) -> Result<Vec<Step>, CloudError> {
        let (place, tree) = self.designed(job, !may_be_left, call).await?;
        let family = place.families.first().copied().unwrap_or(IpFamily::V4);
        let wish = self.wish(job, family, attached, &mut Vec::new(), call).await?;
        let look = floating::look(&wish, attached, may_be_left);
        let elsewhere = self.elsewhere(look, job, call).await?;
        let steps = floating::plan(&wish, &job.wanted.front_end.owner, None, attached, &elsewhere)?;
        let name = names::balancer(&job.wanted.front_end.owner);
        let listeners: Vec<String> =
            tree.listeners.iter().map(|one| format!("{}/{}", one.port, one.protocol)).collect();
        let line = format!("create load balancer {name} with listeners {}", listeners.join(", "));
        Ok(std::iter::once(Step::new(line, Act::Later)).chain(steps).collect())
    }

    /// Returns the place of a new load balancer, and its listeners and pools. Refuses the first one of
    /// a Service if it would be public by a misspelling, or lack a required family.
    async fn designed(
        &self,
        job: &Job<'_>,
        is_first: bool,
        call: Call,
    ) -> Result<(Place, Tree), CloudError> {
        if let Some(Given { value, source }) =
            job.settings.misspelt_internal.as_ref().filter(|_| is_first)
        {
            let error = CloudError::new(ErrorKind::Invalid, format!("{source}: {value}"));
            return Err(error.about(source));
        }
        if let Some(first) = job.settings.unmanaged.first() {
            let all = job.settings.unmanaged.iter();
            let lines: Vec<String> =
                all.map(|given| format!("{}: {}", given.source, given.value)).collect();
            let error = CloudError::new(ErrorKind::Invalid, lines.join("; "));
            return Err(error.about(&first.source));
        }
        let front_end = &job.wanted.front_end;
        let is_open = !front_end.source_ranges.is_empty() && !job.features.allowed_cidrs();
        if is_open && self.options.balancer.require_source_ranges {
            let what = "spec.loadBalancerSourceRanges: this Octavia or its driver restricts no clients, \
                        and [LoadBalancer] require-source-ranges is true: remove the ranges and \
                        restrict clients otherwise, or set it to false";
            let error = CloudError::new(ErrorKind::Invalid, what);
            return Err(error.about("spec.loadBalancerSourceRanges"));
        }
        let place = self.place(job, call).await?;
        if is_first {
            check_families(job, &place)?;
        }
        let tree = tree_of(job, &place, self.unasked(job))?;
        Ok((place, tree))
    }

    /// Returns `TakenBack` if the load balancer that it replaces lost its monitors, otherwise `Added`.
    fn unasked(&self, job: &Job<'_>) -> Unasked {
        let FrontEnd { owner, digest, .. } = &*job.wanted.front_end;
        match self.memory.taken_back(&owner.uid) == Some(*digest) {
            true => Unasked::TakenBack,
            false => Unasked::Added,
        }
    }

    /// The addresses of an earlier load balancer of this owner: what this process remembers, what
    /// the floating IP says, else what clients were shown.
    fn kept(
        &self,
        job: &Job<'_>,
        place: &Place,
        wish: &floating::Wish,
        elsewhere: &Elsewhere,
    ) -> Kept {
        let Job { wanted, .. } = job;
        let first = place.families.first().copied().unwrap_or(IpFamily::V4);
        if place.port.is_some() || job.own_address(first).is_some() {
            return Kept::default();
        }
        let own = |ip: &&FloatingIp| floating::is_ours(ip, &wanted.front_end.owner);
        let by_tag = || {
            let all = elsewhere.tagged.iter().chain(&elsewhere.wished);
            all.filter(own).find_map(|ip| names::vip(&ip.tags))
        };
        let unplaced = |address| Vip { address, subnet: None };
        let is_external = matches!(wish, floating::Wish::External { .. });
        let of = |family: IpFamily| {
            wanted.shown.iter().copied().find(|address| IpFamily::of(*address) == family)
        };
        let vip = self.memory.vip(&wanted.front_end.owner.uid).or_else(|| {
            // Clients were shown the floating IP instead.
            let shown = of(first).filter(|_| !is_external);
            by_tag().filter(|_| is_external).or(shown).map(unplaced)
        });
        let fits = |vip: &Vip| {
            let is_there =
                place.subnet.is_none() || vip.subnet.is_none() || place.subnet == vip.subnet;
            is_there && IpFamily::of(vip.address) == first
        };
        let others = place.families.iter().skip(1).map(|family| of(*family)).collect();
        Kept { vip: vip.filter(fits), others }
    }

    /// The load balancer with all that is below it.
    fn body(&self, job: &Job<'_>, place: &Place, tree: &Tree) -> Value {
        let (front_end, settings) = (&job.wanted.front_end, &job.settings);
        let owner = &front_end.owner;
        let name = names::balancer(owner);
        let mut tags = names::tags(name.clone(), owner).to_vec();
        tags.extend(settings.tags.balancer.iter().cloned());
        tags.push(names::digest_tag(front_end.digest));
        if self.unasked(job) == Unasked::TakenBack {
            tags.push(names::taken_back_tag(front_end.digest));
        }
        let mut body = json!({
            "name": name,
            "description": names::description(owner),
            "provider": self.options.balancer.provider,
            "tags": tags,
        });
        let family = place.families.first().copied().unwrap_or(IpFamily::V4);
        for (key, value) in [
            ("vip_port_id", place.port.clone()),
            ("vip_subnet_id", place.subnet.clone()),
            ("vip_network_id", place.network.clone()),
            ("vip_address", job.own_address(family).map(|address| address.to_string())),
        ] {
            if let Some(value) = value {
                body[key] = value.into();
            }
        }
        if !place.additional.is_empty() {
            body["additional_vips"] = json!(place.additional);
        }
        for (key, given, offered) in [
            ("flavor_id", &settings.flavor, job.features.flavors()),
            ("availability_zone", &settings.zone, job.features.zones()),
        ] {
            if let Some(given) = given.as_ref().filter(|_| offered) {
                body[key] = given.value.clone().into();
            }
        }
        body["listeners"] = listeners(job, place, tree);
        body
    }
}

/// Returns the listeners, pools and monitors of a new load balancer.
fn tree_of(job: &Job<'_>, place: &Place, unasked: Unasked) -> Result<Tree, CloudError> {
    let front_end = &job.wanted.front_end;
    let name = names::balancer(&front_end.owner);
    Tree::of(name, front_end, &job.settings, job.features, &place.families, unasked)
}

fn listeners(job: &Job<'_>, place: &Place, tree: &Tree) -> Value {
    let family = place.families.first().copied().unwrap_or(IpFamily::V4);
    let (selector, subnet) = (&job.settings.selector, place.member_subnet.as_deref());
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

/// The numbers of parts that are created.
fn parts(tree: &Tree) -> Parts {
    let with_members = |listener: &&Listener| listener.pool.member_port.is_some();
    Parts {
        listeners: tree.listeners.len(),
        bare: 0,
        filled: tree.listeners.iter().filter(with_members).count(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a hundred creations of one call the last ones go with the next call: nothing has hung.
    #[tokio::test(start_paused = true)]
    async fn a_creation_for_which_no_time_is_left_is_no_time_out() {
        let call = Call::routine(Duration::from_secs(30));
        tokio::time::advance(Duration::from_secs(15)).await;
        assert_eq!(check_time(call), Ok(()));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(check_time(call).is_err_and(|error| error.unsent && !error.maybe_done));
    }
}
