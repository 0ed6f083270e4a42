//! Polls the load balancers on which the cloud works: all of them by one list.

use std::{sync::Arc, time::Duration};

use ccm_cloud::{CloudError, Depth, LoadBalancerList, LoadBalancers, Scope};
use ccm_objects::Shared as Name;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::{
    machine::{
        LONGEST_POLL,
        effect::Effect,
        event::{Event, Polled},
    },
    translate::Translator,
};

/// The shortest time between two polls of up to 250 load balancers.
const PAUSE: Duration = Duration::from_secs(1);
/// The wait after a list that failed.
const RETRY: Duration = Duration::from_secs(5);

/// Polls until the token is cancelled.
pub(crate) async fn run(translator: Arc<Translator>, token: CancellationToken) {
    let performer = &translator.performer;
    let work = async {
        loop {
            let next = performer.door.read(|machine, _| machine.next_poll());
            let timer = async {
                match next {
                    Some(due) => sleep_until(performer.door.timeline().instant(due)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // More of them may be due sooner.
                () = performer.wakes.poll.notified() => continue,
                () = timer => {}
            }
            let started = Instant::now();
            let wait = match poll(&translator).await {
                Some(listed) => pause(listed),
                None => RETRY,
            };
            sleep_until(started + wait).await;
        }
    };
    token.run_until_cancelled(work).await;
}

/// The pause after a poll: a longer list costs the cloud more.
fn pause(listed: usize) -> Duration {
    let parts = u32::try_from(listed / 250).unwrap_or(u32::MAX);
    PAUSE.saturating_mul(parts.saturating_add(1)).min(LONGEST_POLL)
}

/// Looks at all that are due. Returns how many were listed; None if the cloud has not answered.
async fn poll(translator: &Translator) -> Option<usize> {
    let (balancers, performer) = (translator.load_balancers().ok()?, &translator.performer);
    let asked = performer.apply(Event::PollDue).into_iter().find_map(|request| match request {
        Effect::Poll(asked) => Some(asked),
        _ => None,
    });
    let Some(asked) = asked else { return Some(0) };
    let (count, started) = (asked.len(), performer.door.now());
    let list = match list(translator, &*balancers, &asked, Depth::Summary).await {
        Ok(list) => list,
        Err(error) => {
            tracing::warn!(%error, "cannot poll {count} load balancers that the cloud works on");
            sleep(error.retry_after.unwrap_or_default().min(RETRY)).await;
            return None;
        }
    };
    let services = translator.named(asked.iter().map(|(_, name)| name));
    let polled = Polled { started, asked, list, services };
    for request in performer.apply(Event::Polled(polled)) {
        if let Effect::Confirm(ended) = request {
            confirm(translator, &*balancers, ended).await;
        }
    }
    Some(count)
}

async fn list(
    translator: &Translator,
    balancers: &dyn LoadBalancers,
    asked: &[(String, Name)],
    depth: Depth,
) -> Result<LoadBalancerList, CloudError> {
    let scope = Scope::Ids(asked.iter().map(|(id, _)| id.clone()).collect());
    balancers.list(&translator.performer.cluster, scope, depth, translator.call(true)).await
}

/// Reads the load balancers in full whose creation or change has ended.
async fn confirm(
    translator: &Translator,
    balancers: &dyn LoadBalancers,
    ended: Vec<(String, Name)>,
) {
    let (performer, door) = (&translator.performer, &translator.performer.door);
    for asked in ended.chunks(door.read(|machine, _| machine.at_once())) {
        let started = door.now();
        let list = list(translator, balancers, asked, Depth::Members).await;
        let list = list.unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot read {} load balancers in full", asked.len());
            LoadBalancerList::default()
        });
        let services = translator.named(asked.iter().map(|(_, name)| name));
        let asked = asked.to_vec();
        performer.apply(Event::Confirmed(Polled { started, asked, list, services }));
    }
}
