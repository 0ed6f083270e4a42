//! A controller program and its life.

mod identity;
#[cfg(test)]
pub(crate) mod sample;

pub use identity::{Failure, Identity, VERSION};

use std::{fmt::Debug, sync::Arc};

use serde::Serialize;

use crate::settings::{Problems, RawSettings, SettingDoc};

/// A controller. The runtime owns the life of the process; a program says what it
/// is, which settings it has and what it does once it leads.
pub trait Program: Send + Sync + Sized + 'static {
    /// Who it is.
    const IDENTITY: Identity;

    /// Its own settings, typed and validated.
    type Settings: Clone + Send + Sync + PartialEq + Debug + Serialize + 'static;

    /// Its own settings as data: flags, environment variables, keys and documentation
    /// all come from this table.
    fn documentation() -> &'static [SettingDoc];

    /// Converts the merged layers into its settings. Records every problem at once and
    /// returns `None` if there is one.
    fn settings(layers: &RawSettings, problems: &mut Problems) -> Option<Self::Settings>;

    /// Called on every replica: start informers and whatever keeps warm. Returns the
    /// thing that leads. Waiting for the API server here is fine: the replica is then
    /// live, but not ready.
    fn prepare(context: Context<Self>) -> impl Future<Output = Result<Self, Failure>> + Send;

    /// Called once this replica leads. Starts its workers on `context.supervisor`; they
    /// check `context.leadership` at each write.
    fn lead(self: Arc<Self>, context: Context<Self>);

    /// Called at shutdown while still leading: stop taking work, and return when what
    /// was begun has ended. The runtime bounds it with `--drain-timeout`.
    fn drain(&self) -> impl Future<Output = ()> + Send;
}

/// What a program is given.
pub struct Context<P: Program> {
    /// The program's own settings; a new value appears when the file changes.
    pub settings: tokio::sync::watch::Receiver<Arc<P::Settings>>,
    /// Owns the program's tasks.
    pub supervisor: crate::supervisor::Supervisor,
    /// The checks behind `/healthz`, `/livez` and `/readyz`.
    pub health: crate::health::Health,
}

impl<P: Program> Clone for Context<P> {
    fn clone(&self) -> Self {
        Self { settings: self.settings.clone(), supervisor: self.supervisor.clone(), health: self.health.clone() }
    }
}
