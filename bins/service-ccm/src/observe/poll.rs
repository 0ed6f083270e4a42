//! Polls the load balancers on which the cloud works: all of them by one list.

use std::{collections::HashMap, time::Duration};

use ccm_base::At;
use ccm_cloud::{Depth, LoadBalancer, LoadBalancerList, LoadBalancers, Phase, Scope};
use ccm_controller::queue::Priority;
use ccm_objects::Shared as Name;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{Handles, audit::at_once, balancers::Entry};
use crate::plan::{CallKind, Known, Pending, eligible::NodeSet};

/// The shortest time between two polls of up to 250 load balancers.
const PAUSE: Duration = Duration::from_secs(1);
/// Load balancers that are due within this time are polled together.
const TOGETHER: Duration = Duration::from_secs(1);
/// The bounds of the wait before the next look at one load balancer.
const SHORTEST: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(30);
/// The wait after a list that failed.
const RETRY: Duration = Duration::from_secs(5);

/// Polls until the token is cancelled.
pub(crate) async fn run(handles: Handles, token: CancellationToken) {
    let work = async {
        loop {
            let next = next_due(&handles);
            let timer = async {
                match next {
                    Some(due) => sleep_until(handles.timeline.instant(due)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // More of them may be due sooner.
                () = handles.poll.notified() => continue,
                () = timer => {}
            }
            let started = Instant::now();
            let wait = match poll(&handles).await {
                Some(listed) => pause(listed),
                None => RETRY,
            };
            sleep_until(started + wait).await;
        }
    };
    token.run_until_cancelled(work).await;
}

/// When the first load balancer is worth to look at.
fn next_due(handles: &Handles) -> Option<At> {
    let mut next = None;
    handles.balancers.each(|_, entry| {
        if let Some(check_at) = check_at(entry) {
            next = Some(next.map_or(check_at, |next: At| next.min(check_at)));
        }
    });
    next
}

fn check_at(entry: &Entry) -> Option<At> {
    // One that was handed to the queue has nothing to poll any more.
    entry.state.pending.as_ref().filter(|_| !entry.is_queued).map(|pending| pending.check_at)
}

/// The pause after a poll: a longer list costs the cloud more.
fn pause(listed: usize) -> Duration {
    let parts = u32::try_from(listed / 250).unwrap_or(u32::MAX);
    PAUSE.saturating_mul(parts.saturating_add(1)).min(LONGEST)
}

/// Looks at all that are due. Returns how many were listed; None if the cloud has not answered.
async fn poll(handles: &Handles) -> Option<usize> {
    let now = handles.timeline.now();
    let balancers = handles.load_balancers().ok()?;
    let lists = balancers.traits().lists;
    let (mut listed, mut called): (HashMap<String, Name>, Vec<Name>) = Default::default();
    handles.balancers.each(|name, entry| {
        if check_at(entry).is_none_or(|due| due > now + TOGETHER) {
            return;
        }
        match entry.state.id().filter(|_| lists) {
            Some(id) => {
                listed.insert(id.to_owned(), Name::clone(name));
            }
            None => called.push(Name::clone(name)),
        }
    });
    for name in called {
        hand_over(handles, &name, now);
    }
    let count = listed.len();
    if count == 0 {
        return Some(0);
    }
    let scope = Scope::Ids(listed.keys().cloned().collect());
    let list = balancers.list(&handles.cluster, scope, Depth::Summary, handles.call(true)).await;
    let list = match list {
        Ok(list) => list,
        Err(error) => {
            tracing::warn!(%error, "cannot poll {} load balancers that the cloud works on", listed.len());
            sleep(error.retry_after.unwrap_or_default().min(RETRY)).await;
            return None;
        }
    };
    let is_complete = list.malformed.is_empty();
    let mut ended = HashMap::new();
    let nodes = handles.node_set.borrow().clone();
    for balancer in list.load_balancers {
        let Some(name) = listed.remove(&balancer.id) else { continue };
        if handles.balancers.with_name(&name, |entry| has_ended(entry, &balancer)) == Some(true) {
            // The provider has just created it, and knows its members.
            if balancer.pools.is_some() {
                confirmed(handles, &name, balancer, &nodes, now);
            } else {
                ended.insert(balancer.id, name);
            }
        } else {
            seen(handles, &name, balancer);
        }
    }
    // What is missing does not exist any more, or is not visible: the next call finds out.
    for name in listed.values().filter(|_| is_complete) {
        hand_over(handles, name, now);
    }
    confirm(handles, &*balancers, ended).await;
    Some(count)
}

/// Returns true if a list shows that a call to create or update has ended. If the list does not
/// show the address, only the next call finds that out.
fn has_ended(entry: &Entry, balancer: &LoadBalancer) -> bool {
    entry.state.pending.as_ref().is_some_and(|last| {
        last.call == Some(CallKind::Ensure)
            && last.digest.is_some()
            && balancer.digest == last.digest
            && balancer.phase == Phase::Ready
            && !balancer.ingress.is_empty()
    })
}

/// Returns true if a pool is empty for no known reason, although the call named members.
fn lacks_members(entry: &Entry, balancer: &LoadBalancer) -> bool {
    let asked = entry.state.pending.as_ref().and_then(|last| last.members.as_ref());
    let mut pools = balancer.pools.iter().flatten();
    asked.is_some_and(|asked| !asked.present.is_empty())
        && pools.any(|pool| pool.members == 0 && pool.why_empty.is_none())
}

/// Reads the load balancers in full whose creation or change has ended, so that Services show what
/// the cloud has. A load balancer that cannot be read gets another call.
async fn confirm(
    handles: &Handles,
    balancers: &dyn LoadBalancers,
    mut ended: HashMap<String, Name>,
) {
    let nodes = handles.node_set.borrow().clone();
    let ids: Vec<String> = ended.keys().cloned().collect();
    for ids in ids.chunks(at_once(&nodes)) {
        let scope = Scope::Ids(ids.to_vec());
        let started = handles.timeline.now();
        let list = balancers.list(&handles.cluster, scope, Depth::Members, handles.call(true));
        let list = list.await.unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot read {} load balancers in full", ids.len());
            LoadBalancerList::default()
        });
        for balancer in list.load_balancers {
            if let Some(name) = ended.remove(&balancer.id) {
                confirmed(handles, &name, balancer, &nodes, started);
            }
        }
    }
    for name in ended.values() {
        hand_over(handles, name, handles.timeline.now());
    }
}

/// Applies a full read that began at `started`. A call that has not ended stays pending: the next
/// call finds out what follows.
fn confirmed(handles: &Handles, name: &Name, balancer: LoadBalancer, nodes: &NodeSet, started: At) {
    let (now, service) = (handles.timeline.now(), handles.services.get(name));
    let is_confirmed = handles.balancers.with_name(name, |entry| {
        // A list may show the new digest before the creation is complete.
        let has_ended = entry.answered <= started && has_ended(entry, &balancer);
        let lacks_members = has_ended && lacks_members(entry, &balancer);
        if lacks_members && entry.state.gap.is_none() {
            entry.state.saw_pools(balancer.pools.clone(), true, false, now);
            return false;
        }
        if has_ended && let Some(Pending { digest, members, .. }) = entry.state.pending.take() {
            entry.complete(balancer, digest, members.as_ref(), nodes, now);
        }
        has_ended
    });
    if let Some(service) = service.filter(|_| is_confirmed == Some(true)) {
        handles.completed(&service);
    }
    hand_over(handles, name, now);
}

/// Applies what a poll has shown of a load balancer.
fn seen(handles: &Handles, name: &Name, mut balancer: LoadBalancer) {
    let now = handles.timeline.now();
    balancer.pools = None;
    let Some(service) = handles.services.get(name) else { return };
    let is_pending = handles.balancers.with_name(name, |entry| {
        let state = &mut entry.state;
        let Some(last) = state.pending.as_mut() else { return false };
        if let Phase::Pending(waiting) = &balancer.phase {
            last.what.clone_from(&waiting.what);
            last.check_at = now + wait(waiting.check_after, now.since(last.since));
            return true;
        }
        let has_ended = match last.call {
            // If it is ready, more changes may follow, or the list does not show the end.
            Some(CallKind::Ensure) => balancer.phase != Phase::Ready,
            // The next call finds out whether more changes are to follow.
            Some(CallKind::Members) => true,
            Some(CallKind::Delete | CallKind::DeleteDuplicate) => false,
            None => {
                if state.was_complete(&service, &balancer.id) {
                    state.configured = state.configured.or(balancer.digest);
                }
                true
            }
        };
        if has_ended {
            state.pending = None;
        }
        state.known = Known::There(Box::new(balancer));
        false
    });
    if is_pending == Some(false) {
        hand_over(handles, name, now);
    }
}

/// The wait before the next look at a load balancer on which the cloud has worked for this long:
/// what takes long is looked at less often.
fn wait(asked: Duration, age: Duration) -> Duration {
    asked.max(age / 8).clamp(SHORTEST, LONGEST)
}

/// Queues a load balancer for its next call.
fn hand_over(handles: &Handles, name: &Name, now: At) {
    handles.balancers.with_name(name, |entry| {
        entry.is_queued = true;
        if let Some(pending) = &mut entry.state.pending {
            pending.check_at = pending.check_at.min(now);
        }
    });
    handles.queue.add(Name::clone(name), Priority::Urgent);
}

#[cfg(test)]
mod tests {
    use ccm_cloud::{Digest, Ingress, IngressAddress, IpMode};

    use super::*;

    #[test]
    fn a_creation_has_ended_when_its_digest_and_its_address_are_there() {
        let digest = |hash| Some(Digest { version: 1, hash });
        let ingress = Ingress {
            address: IngressAddress::Hostname("a".to_owned()),
            ip_mode: IpMode::Vip,
            failed_ports: Vec::new(),
        };
        let mut entry = Entry::default();
        entry.state.pending = Some(Pending {
            call: Some(CallKind::Ensure),
            digest: digest(1),
            members: None,
            what: String::new(),
            check_at: At::default(),
            since: At::default(),
        });
        let whole = LoadBalancer {
            digest: digest(1),
            ingress: vec![ingress],
            ..LoadBalancer::new("lb-1", "", None)
        };
        assert!(has_ended(&entry, &whole));
        assert!(!has_ended(&entry, &LoadBalancer { digest: digest(2), ..whole.clone() }));
        assert!(!has_ended(&entry, &LoadBalancer { ingress: Vec::new(), ..whole.clone() }));
        let (why, cure) = ("no capacity".to_owned(), ccm_cloud::Cure::Ensure);
        assert!(!has_ended(&entry, &LoadBalancer { phase: Phase::Failed { why, cure }, ..whole }));
    }

    #[test]
    fn what_takes_long_is_polled_less_often() {
        let seconds = Duration::from_secs;
        for (asked, age, expect) in [
            (seconds(1), seconds(0), seconds(1)),
            (seconds(1), seconds(80), seconds(10)),
            (seconds(20), seconds(80), seconds(20)),
            (seconds(1), seconds(3600), LONGEST),
            (Duration::ZERO, seconds(0), SHORTEST),
        ] {
            assert_eq!(wait(asked, age), expect, "{asked:?} {age:?}");
        }
    }
}
