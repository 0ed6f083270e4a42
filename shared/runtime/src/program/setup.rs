//! The parts that a start and `--check-config` share: messages before the logger exists, exit
//! codes, TLS, threads.

use std::{io::Write as _, thread::available_parallelism};

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use tokio::runtime::{Builder, Runtime};

use super::{Failure, Program};

/// Exit code of an orderly end.
pub(super) const DONE: u8 = 0;
/// Exit code of a lost leadership, a task that ended unexpectedly, or another error.
pub(super) const BROKEN: u8 = 1;
/// Exit code of an invalid command line or invalid settings.
pub(super) const USAGE: u8 = 2;

/// Upper limit for worker threads: a controller runs few tasks at a time, also on a machine
/// with many processors.
const THREADS: usize = 4;

impl Failure {
    pub(super) const fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => USAGE,
            Self::Broken(_) => BROKEN,
        }
    }
}

/// Prints errors of the command line or the settings; the logger does not exist yet.
pub(super) fn refuse<P: Program>(lines: &str) -> u8 {
    for line in lines.lines() {
        eprintln!("{}: {line}", P::IDENTITY.binary);
    }
    USAGE
}

/// Prints a text on stdout. A closed pipe, as with `head`, is not an error.
pub(super) fn print(text: &str) -> u8 {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => BROKEN,
        _ => DONE,
    }
}

/// Returns the async runtime of a process of this program.
pub(super) fn runtime<P: Program>() -> std::io::Result<Runtime> {
    let threads = available_parallelism().map_or(1, usize::from).min(THREADS);
    Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name(P::IDENTITY.binary)
        .enable_all()
        .build()
}

/// Forbids core dumps, and forbids other processes of the same user to read the memory, because it
/// holds secrets. The limit works where the kernel writes a file. The flag also works where the
/// kernel hands the memory to a program.
pub(super) fn forbid_dumps() -> std::io::Result<()> {
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Installs one TLS library for the whole process. Fails only if one is already installed.
pub(super) fn install_tls() {
    rustls::crypto::ring::default_provider().install_default().ok();
}

#[cfg(test)]
mod tests {
    use rustix::process::{dumpable_behavior, getrlimit};

    use super::*;

    #[test]
    fn a_crash_writes_no_secret_to_the_disk() {
        forbid_dumps().unwrap();
        assert_eq!(dumpable_behavior().unwrap(), DumpableBehavior::NotDumpable);
        let limit = getrlimit(Resource::Core);
        assert_eq!((limit.current, limit.maximum), (Some(0), Some(0)));
        // The metrics of the process are registered.
        std::fs::read_dir("/proc/self/fd").unwrap();
    }
}
