//! Setup shared by a start and `--check-config`: settings, TLS, threads.

use std::thread::available_parallelism;

use ccm_cloud::ProviderRegistry;
use ccm_settings::{Invocation, LoadError};
use tokio::runtime::{Builder, Runtime};

use super::{Loaded, Program};
use crate::settings;

/// Upper limit for worker threads: a controller runs few tasks at a time, also on a machine
/// with many processors.
const THREADS: usize = 4;

/// Reads the settings of a program from all layers, for a process with these providers.
pub(super) fn load_for<P: Program>(
    invocation: &Invocation,
    providers: &ProviderRegistry,
) -> Result<Loaded<P>, LoadError> {
    settings::load(P::IDENTITY, providers.names(), invocation)
}

/// The async runtime of a process of this program.
pub(super) fn runtime<P: Program>() -> std::io::Result<Runtime> {
    let threads = available_parallelism().map_or(1, usize::from).min(THREADS);
    Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name(P::IDENTITY.binary)
        .enable_all()
        .build()
}

/// Installs one TLS library for the whole process. Fails only if one is already installed.
pub(super) fn install_tls() {
    rustls::crypto::ring::default_provider().install_default().ok();
}
