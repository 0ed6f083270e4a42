//! Polls the load balancers on which the cloud works: all of them by one list.

use std::{collections::HashMap, time::Duration};

use ccm_base::At;
use ccm_cloud::{Depth, LoadBalancer, LoadBalancerList, LoadBalancers, Scope};
use ccm_controller::queue::Priority;
use ccm_objects::Shared as Name;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{Handles, audit::at_once};
use crate::{
    machine::{Entry, LONGEST_POLL},
    plan::eligible::NodeSet,
};

/// The shortest time between two polls of up to 250 load balancers.
const PAUSE: Duration = Duration::from_secs(1);
/// Load balancers that are due within this time are polled together.
const TOGETHER: Duration = Duration::from_secs(1);
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
        if let Some(check_at) = entry.check_at() {
            next = Some(next.map_or(check_at, |next: At| next.min(check_at)));
        }
    });
    next
}

/// The pause after a poll: a longer list costs the cloud more.
fn pause(listed: usize) -> Duration {
    let parts = u32::try_from(listed / 250).unwrap_or(u32::MAX);
    PAUSE.saturating_mul(parts.saturating_add(1)).min(LONGEST_POLL)
}

/// Looks at all that are due. Returns how many were listed; None if the cloud has not answered.
async fn poll(handles: &Handles) -> Option<usize> {
    let now = handles.timeline.now();
    let balancers = handles.load_balancers().ok()?;
    let lists = balancers.traits().lists;
    let (mut listed, mut called): (HashMap<String, Name>, Vec<Name>) = Default::default();
    handles.balancers.each(|name, entry| {
        if entry.check_at().is_none_or(|due| due > now + TOGETHER) {
            return;
        }
        match entry.state().id().filter(|_| lists) {
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
        if handles.balancers.with_name(&name, |entry| entry.has_ended(&balancer)) == Some(true) {
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
    let confirmed = |entry: &mut Entry| entry.confirmed(balancer, nodes, started, now);
    let is_confirmed = handles.balancers.with_name(name, confirmed);
    if let Some(service) = service.filter(|_| is_confirmed == Some(true)) {
        handles.completed(&service);
    }
    hand_over(handles, name, now);
}

/// Applies what a poll has shown of a load balancer.
fn seen(handles: &Handles, name: &Name, balancer: LoadBalancer) {
    let now = handles.timeline.now();
    let Some(service) = handles.services.get(name) else { return };
    let is_pending =
        handles.balancers.with_name(name, |entry| entry.polled(&service, balancer, now));
    if is_pending == Some(false) {
        hand_over(handles, name, now);
    }
}

/// Queues a load balancer for its next call.
fn hand_over(handles: &Handles, name: &Name, now: At) {
    handles.balancers.with_name(name, |entry| entry.hand_over(now));
    handles.queue.add(Name::clone(name), Priority::Urgent);
}
