//! Polls the load balancers on which the cloud works: all of them by one list.

use std::sync::Arc;

use ccm_cloud::{CloudError, Depth, LoadBalancers};
use ccm_controller::machine::log_unexpected;
use ccm_objects::Shared as Name;
use tokio_util::sync::CancellationToken;

use super::read;
use crate::{
    machine::{
        effect::Effect,
        event::{Event, Polled},
    },
    translate::Translator,
};

/// Polls until the token is cancelled.
pub(crate) async fn run(translator: Arc<Translator>, token: CancellationToken) {
    let performer = &translator.performer;
    let work = async {
        loop {
            let next = performer.door.read(|machine, _| machine.next_poll());
            tokio::select! {
                // Others may be due sooner.
                () = performer.wakes.poll.notified() => continue,
                () = performer.until(next) => {}
            }
            if let Err(error) = poll(&translator).await {
                performer.apply(Event::NotPolled(error));
            }
        }
    };
    token.run_until_cancelled(work).await;
}

/// Looks at all that are due.
async fn poll(translator: &Translator) -> Result<(), CloudError> {
    let (balancers, performer) = (translator.load_balancers()?, &translator.performer);
    for request in performer.apply(Event::PollDue) {
        let Effect::Poll(asked) = request else {
            log_unexpected(&request);
            continue;
        };
        let polled = read(translator, &*balancers, &asked, Depth::Summary, true).await?;
        for request in performer.apply(Event::Polled(polled)) {
            match request {
                Effect::Confirm(ended) => confirm(translator, &*balancers, ended).await,
                other => log_unexpected(&other),
            }
        }
    }
    Ok(())
}

/// Reads the load balancers in full whose creation or change has ended.
async fn confirm(
    translator: &Translator,
    balancers: &dyn LoadBalancers,
    ended: Vec<(String, Name)>,
) {
    let (performer, door) = (&translator.performer, &translator.performer.door);
    for asked in ended.chunks(door.read(|machine, _| machine.at_once())) {
        let polled = read(translator, balancers, asked, Depth::Members, true).await;
        let polled = polled.unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot read {} load balancers in full", asked.len());
            Polled { asked: asked.to_vec(), ..Polled::default() }
        });
        performer.apply(Event::Confirmed(polled));
    }
}
