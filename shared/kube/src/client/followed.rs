//! Notices changes of the files that the clients were made from.
//!
//! A kubeconfig and most files that it names are read once, so after a rotation of credentials only
//! a new process can work. A leader would lose its Lease and end anyway. A standby would stay,
//! without ever being able to lead.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use ccm_base::Files;
use tokio::sync::Mutex;

use super::{ClientConfig, Clients, source::Surroundings};

/// The files that were read once. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Followed(Option<Arc<Shared>>);

struct Shared {
    config: ClientConfig,
    surroundings: Surroundings,
    files: Mutex<Files>,
    has_changed: AtomicBool,
}

impl Followed {
    /// Follows the files of a kubeconfig. In a pod kube reads token and CA again.
    pub(super) fn new(config: &ClientConfig, surroundings: &Surroundings, files: Files) -> Self {
        Self(config.kubeconfig.is_some().then(|| {
            Arc::new(Shared {
                config: config.clone(),
                surroundings: surroundings.clone(),
                files: Mutex::new(files),
                has_changed: AtomicBool::new(false),
            })
        }))
    }

    /// Returns once a file has new content, with which clients can be made.
    pub(super) async fn changed(&self) {
        let Some(shared) = &self.0 else { return std::future::pending().await };
        while !shared.has_changed.load(Ordering::Relaxed) {
            shared.next_change().await;
        }
    }
}

impl Shared {
    async fn next_change(&self) {
        let mut files = self.files.lock().await;
        files.changed().await;
        let made = Clients::connect_in(self.config.clone(), &self.surroundings, &mut files).await;
        let is_usable = made
            .inspect_err(|error| {
                tracing::warn!("the changed kubeconfig is not used, the last one stays: {error}");
            })
            .is_ok();
        self.has_changed.store(is_usable, Ordering::Relaxed);
    }
}
