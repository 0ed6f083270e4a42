//! A controller program and its lifecycle.
//!
//! The order: command line and settings ([`main()`]), log, API server clients, admin pages,
//! provider, [`Program::prepare`], election, [`Program::lead`]. At a signal:
//! [`Program::drain`], stop the tasks, release the Lease, flush the events.

mod check;
mod in_clear;
mod life;
mod outdated;
mod own_thread;
mod parts;
mod provider;
mod reload;
mod setup;
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

pub use crate::identity::{COMMIT, Controller, Identity, Need, VERSION};
pub use life::run;
pub(crate) use reload::ConfigMetrics;
pub use specimens::specimens;
pub use start::main;

use crate::{
    explain::Explanations,
    health::Health,
    leadership::{Eligibility, Leadership},
    metrics::Metrics,
    plans::Plans,
    records::Records,
    rights::Right,
    same_cloud::SameCloud,
    settings::{self, CommonSettings},
    supervisor::Supervisor,
};

/// A controller. The runtime owns the process lifecycle; a program defines its identity, its
/// settings and its work as the leader.
pub trait Program: Send + Sync + Sized + 'static {
    /// The program's identity.
    const IDENTITY: Identity;

    /// The program's own settings.
    type Settings: Schema + Clone + Send + Sync + PartialEq + Debug + Serialize + 'static;

    /// Returns the cloud capabilities that the program needs with these settings. If the list is
    /// empty, the program does not call the cloud, not even to learn what it offers. Called once,
    /// at startup.
    fn needs(settings: &Self::Settings) -> Vec<Need>;

    /// Returns the reason if the program has nothing to do with these settings. It is then healthy
    /// and idle, without watches, Lease and calls to the cloud.
    fn idle(_settings: &Self::Settings) -> Option<String> {
        None
    }

    /// Registers the program's own metrics and creates one series per metric and label value.
    /// Called only for the metrics reference, never in a running process.
    fn specimens(metrics: &Metrics);

    /// Returns the API server permissions that the program needs besides the common ones
    /// ([`needed`](crate::rights::needed)): exactly those that its manifests grant.
    fn rights() -> Vec<Right>;

    /// Prepares every replica: starts informers and fills caches. Returns the program that will
    /// lead. It may wait for the API server: the replica is then live, but not ready.
    fn prepare(context: &Context<Self>) -> impl Future<Output = Result<Self, Failure>> + Send;

    /// Starts the work once this replica leads, or when it observes. Starts the workers on
    /// `context.supervisor`; they check `context.leadership` at each write.
    fn lead(self: Arc<Self>, context: &Context<Self>);

    /// Ends the work at shutdown while still leading: stops accepting work and returns when work in
    /// progress has finished. The runtime limits it to `--drain-timeout`.
    fn drain(&self) -> impl Future<Output = ()> + Send;
}

/// The settings of a program, read once: the common ones and its own.
pub type Loaded<P> = settings::Loaded<<P as Program>::Settings>;

/// Reads the settings of a program from all layers. Accepts any cloud provider name.
pub fn load<P: Program>(invocation: &Invocation) -> Result<Loaded<P>, LoadError> {
    settings::load(P::IDENTITY, Vec::new(), invocation)
}

/// The error that stops a program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The settings or the command line are invalid: exit code 2.
    #[error("{0}")]
    Usage(String),
    /// Any other error: exit code 1.
    #[error("{0}")]
    Broken(String),
}

/// The runtime objects passed to a program.
pub struct Context<P: Program> {
    /// API server clients.
    pub clients: Clients,
    /// The cloud, which has the capabilities that the program needs.
    pub cloud: Arc<dyn Cloud>,
    /// Checks that the cloud is the one that this program has worked with. While it is another one,
    /// calls of `cloud` fail.
    pub same_cloud: SameCloud,
    /// The term of leadership: checked before each write.
    pub leadership: Leadership,
    /// The watches without which this replica must not lead.
    pub eligibility: Eligibility,
    /// Records events.
    pub events: EventRecorder,
    /// The published plans: decided steps that are not done yet. An observer only publishes.
    pub plans: Plans,
    /// The explanations of single objects by the controllers, for the page `/explain`.
    pub explanations: Explanations,
    /// The records of the machines, for the page `/record`.
    pub records: Records,
    /// The program's own settings; a new value appears when the file changes.
    pub settings: watch::Receiver<Arc<P::Settings>>,
    /// The common settings, also live.
    pub common: watch::Receiver<Arc<CommonSettings>>,
    /// The metrics registry.
    pub metrics: Metrics,
    /// Owns the program's tasks.
    pub supervisor: Supervisor,
    /// The checks behind `/healthz`, `/livez` and `/readyz`.
    pub health: Health,
    /// Is cancelled when the program's tasks must stop. It is the supervisor's own token.
    pub token: CancellationToken,
}
