//! A controller program and its life.
//!
//! In this order: command line and settings ([`main()`]), log, clients of the API server,
//! pages, provider, [`Program::prepare`], election, [`Program::lead`], and at a signal
//! [`Program::drain`], the end of the work, the Lease given back, events written.

mod check;
mod election;
mod exit;
mod life;
mod provider;
mod reload;
mod setup;
mod shell;
mod signals;
mod specimens;
mod start;
#[cfg(test)]
mod tests;

use std::{fmt::Debug, sync::Arc};

use ccm_cloud::Cloud;
use ccm_kube::{client::Clients, events::EventRecorder};
use ccm_settings::{Invocation, LoadError, Schema};
use serde::Serialize;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use crate::identity::{Identity, Need, VERSION};
pub use life::run;
pub(crate) use reload::ConfigMetrics;
pub use specimens::specimens;
pub use start::main;

use crate::{
    health::Health,
    leadership::Leadership,
    metrics::Metrics,
    plans::Plans,
    rights::Right,
    settings::{self, CommonSettings},
    supervisor::Supervisor,
};

/// A controller. The runtime owns the life of the process; a program says what it
/// is, which settings it has and what it does once it leads.
pub trait Program: Send + Sync + Sized + 'static {
    /// Who it is.
    const IDENTITY: Identity;

    /// Its own settings.
    type Settings: Schema + Clone + Send + Sync + PartialEq + Debug + Serialize + 'static;

    /// What it needs of the cloud with these settings, which may be nothing. Asked once, at
    /// the start.
    fn needs(settings: &Self::Settings) -> Vec<Need>;

    /// Registers all that it measures beyond what every program does, and makes one series
    /// of everything, with every value that a label can take. Called for the reference of
    /// the metrics only, never in a running process.
    fn specimens(metrics: &Metrics);

    /// What it needs of the API server besides what every program needs
    /// ([`needed`](crate::rights::needed)): exactly what its manifests grant.
    fn rights() -> Vec<Right>;

    /// Called on every replica: start informers and whatever keeps warm. Returns the
    /// thing that leads. Waiting for the API server here is fine: the replica is then
    /// live, but not ready.
    fn prepare(context: Context<Self>) -> impl Future<Output = Result<Self, Failure>> + Send;

    /// Called once this replica leads, or when it observes. Starts its workers on `context.supervisor`; they
    /// check `context.leadership` at each write.
    fn lead(self: Arc<Self>, context: Context<Self>);

    /// Called at shutdown while still leading: stop taking work, and return when what
    /// was begun has ended. The runtime bounds it with `--drain-timeout`.
    fn drain(&self) -> impl Future<Output = ()> + Send;
}

/// The settings of a program, read once: what every program has, and its own.
pub type Loaded<P> = settings::Loaded<<P as Program>::Settings>;

/// Reads the settings of a program from all layers. Any name of a cloud provider will do.
pub fn load<P: Program>(invocation: &Invocation) -> Result<Loaded<P>, LoadError> {
    settings::load(P::IDENTITY, Vec::new(), invocation)
}

/// The reference page of a program's settings.
pub fn options_markdown<P: Program>() -> String {
    ccm_settings::markdown(&settings::catalogue::<P::Settings>(&P::IDENTITY))
}

/// Why a program cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The settings or the command line are wrong: exit code 2.
    #[error("{0}")]
    Usage(String),
    /// Anything else: exit code 1.
    #[error("{0}")]
    Broken(String),
}

/// What a program is given.
pub struct Context<P: Program> {
    /// Clients of the API server.
    pub clients: Clients,
    /// The cloud. It offers what the program needs.
    pub cloud: Arc<dyn Cloud>,
    /// Whether this replica leads: asked before each write.
    pub leadership: Leadership,
    /// Records events.
    pub events: EventRecorder,
    /// Takes what was decided and is not done yet. An observer stops there.
    pub plans: Plans,
    /// The program's own settings; a new value appears when the file changes.
    pub settings: watch::Receiver<Arc<P::Settings>>,
    /// The settings that every program has; likewise.
    pub common: watch::Receiver<Arc<CommonSettings>>,
    /// Where metrics are registered.
    pub metrics: Metrics,
    /// Owns the program's tasks.
    pub supervisor: Supervisor,
    /// The checks behind `/healthz`, `/livez` and `/readyz`.
    pub health: Health,
    /// Cancelled when the program's tasks are to end; the supervisor's own token.
    pub token: CancellationToken,
}

impl<P: Program> Clone for Context<P> {
    fn clone(&self) -> Self {
        Self {
            clients: self.clients.clone(),
            cloud: Arc::clone(&self.cloud),
            leadership: self.leadership.clone(),
            events: self.events.clone(),
            plans: self.plans.clone(),
            settings: self.settings.clone(),
            common: self.common.clone(),
            metrics: self.metrics.clone(),
            supervisor: self.supervisor.clone(),
            health: self.health.clone(),
            token: self.token.clone(),
        }
    }
}
