//! A candidate: the product's elector, and a task that writes while it leads.
//!
//! Each candidate has its own thread and its own runtime, so that it can be frozen: while the
//! thread is blocked, neither tasks nor timers run, as in a stopped process.

use std::{
    sync::{Arc, mpsc::channel},
    thread::{Builder, JoinHandle},
    time::Duration,
};

use anyhow::{Context as _, Result};
use ccm_kube::{
    client::Clients,
    events::{EventMetrics, EventRecorder},
};
use ccm_runtime::{
    leadership::{Elector, Leadership, LeadershipMetrics},
    settings::ElectionSettings,
};
use tokio::{
    runtime,
    sync::{mpsc, oneshot},
    task::JoinSet,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use super::{line::Line, referee::Referee};

/// The pause between two writes.
const PAUSE: Duration = Duration::from_millis(10);
/// How long a candidate that overstays continues to lead after its term.
const OVERSTAY: Duration = Duration::from_millis(1500);

/// The rules that a candidate follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manners {
    /// The whole product.
    Good,
    /// Broken: it continues to lead for a while when its term is over.
    Overstays,
    /// Broken: the guard between the library and the API server is missing.
    Unguarded,
}

/// The parts of a candidate.
#[derive(Clone)]
pub struct Recipe {
    /// Its name for the referee.
    pub name: String,
    /// The terms of the election.
    pub terms: ElectionSettings,
    /// The rules that it follows.
    pub manners: Manners,
    /// Its clients.
    pub clients: Clients,
    /// Its line for lease requests.
    pub line: Line,
    /// The referee of its writes.
    pub referee: Arc<Referee>,
}

/// The orders to a candidate. Dropping it kills it.
enum Order {
    Freeze(Duration),
    Release,
}

/// A running candidate. Dropping it kills it.
pub struct Candidate {
    orders: mpsc::UnboundedSender<Order>,
    leadership: Leadership,
    thread: JoinHandle<()>,
}

impl Candidate {
    /// Starts one.
    pub async fn start(recipe: Recipe) -> Result<Self> {
        let (orders, inbox) = mpsc::unbounded_channel();
        let (tell, told) = oneshot::channel();
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let life = move || match runtime {
            Ok(runtime) => runtime.block_on(live(&recipe, inbox, tell)),
            Err(error) => drop(tell.send(Err(error))),
        };
        let thread = Builder::new().spawn(life).context("starting a candidate's thread")?;
        let leadership = told.await?.context("starting a candidate's runtime")?;
        Ok(Self { orders, leadership, thread })
    }

    /// Returns true if it leads.
    pub fn leads(&self) -> bool {
        self.leadership.is_leader()
    }

    /// Returns true if it has ended on its own.
    pub fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Freezes it for this time.
    pub fn freeze(&self, time: Duration) {
        self.orders.send(Order::Freeze(time)).ok(); // It may have ended.
    }

    /// Asks it to give the Lease back and end.
    pub fn release(&self) {
        self.orders.send(Order::Release).ok(); // It may have ended.
    }
}

/// Runs the whole life of a candidate. Everything that it still does ends with its runtime.
async fn live(
    recipe: &Recipe,
    mut orders: mpsc::UnboundedReceiver<Order>,
    tell: oneshot::Sender<std::io::Result<Leadership>>,
) {
    let elector = candidacy(recipe);
    let leadership = elector.leadership().clone();
    if tell.send(Ok(leadership.clone())).is_err() {
        return;
    }
    let mut tasks = JoinSet::new();
    let leave = CancellationToken::new();
    let release = CancellationToken::new();
    let writing = write_and_leave(recipe.clone(), leadership, leave.clone(), release.clone());
    tasks.spawn(writing);
    tasks.spawn(async move {
        elector.run(release).await;
    });
    loop {
        tokio::select! {
            order = orders.recv() => match order {
                Some(Order::Freeze(time)) => freeze(time),
                Some(Order::Release) => leave.cancel(),
                None => return,
            },
            // The election has ended, and the process would.
            _ = tasks.join_next() => break,
        }
    }
    if recipe.manners == Manners::Overstays {
        sleep(OVERSTAY).await;
    }
}

fn candidacy(recipe: &Recipe) -> Elector {
    let Recipe { terms, clients, line, .. } = recipe;
    // The events of a race are not read: they are dropped.
    let (events, _) = EventRecorder::new(clients.events.clone(), "race", EventMetrics::default());
    let guarded =
        |guard| line.client(clients, (recipe.manners != Manners::Unguarded).then_some(guard));
    let metrics = LeadershipMetrics::new(&terms.lease);
    Elector::new("race", terms.clone(), guarded, clients.watch.clone(), metrics, events)
}

/// Writes until the candidate must leave. The Lease is given back only after the last write has
/// ended, as in the product.
async fn write_and_leave(
    recipe: Recipe,
    leadership: Leadership,
    leave: CancellationToken,
    release: CancellationToken,
) {
    let need = leadership.write_timeout();
    leave.run_until_cancelled(write(recipe, leadership)).await;
    sleep(need).await;
    release.cancel();
    std::future::pending::<()>().await;
}

/// Writes for as long as it may, or as long as a broken candidate believes it may. A write never
/// takes longer than the requested time.
async fn write(recipe: Recipe, leadership: Leadership) {
    let need = leadership.write_timeout();
    let overstays = recipe.manners == Manners::Overstays;
    let mut term_until: Option<Instant> = None;
    loop {
        let term = leadership.check(need).ok();
        let now = Instant::now();
        if let Some(term) = term {
            term_until = Some(now + term.remaining);
        }
        let believes = overstays && term_until.is_some_and(|end| now < end + OVERSTAY);
        if term.is_some() || believes {
            recipe.referee.write(&recipe.name, now, now + need);
        }
        sleep(PAUSE).await;
    }
}

/// Blocks the thread.
fn freeze(time: Duration) {
    let (_held, never) = channel::<()>();
    never.recv_timeout(time).ok(); // This always times out, because the channel has no sender.
}
