//! SIGTERM and SIGINT: the first shuts the program down, the second exits at once.

use std::io;

use tokio::signal::unix::{Signal as Stream, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// A request to end the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// SIGINT, Ctrl-C.
    Interrupt,
    /// SIGTERM, sent by Kubernetes.
    Terminate,
}

/// The reaction to a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reaction {
    /// Drain, release the Lease, exit.
    Drain,
    /// Exit now with this code.
    EndNow(u8),
}

/// The reaction to this signal after `earlier` signals.
pub(crate) fn reaction(earlier: usize, signal: Signal) -> Reaction {
    match (earlier, signal) {
        (0, _) => Reaction::Drain,
        // 128 plus the signal number, as a shell reports it.
        (_, Signal::Interrupt) => Reaction::EndNow(130),
        (_, Signal::Terminate) => Reaction::EndNow(143),
    }
}

/// The signal handlers of this process.
pub(crate) struct Signals {
    interrupt: Stream,
    terminate: Stream,
}

impl Signals {
    /// Installs handlers for both signals, which then no longer kill the process.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) -> Signal {
        tokio::select! {
            Some(()) = self.interrupt.recv() => Signal::Interrupt,
            Some(()) = self.terminate.recv() => Signal::Terminate,
            else => std::future::pending().await,
        }
    }

    /// Cancels `stop` at the first signal; returns the exit code at the second.
    pub(crate) async fn watch(mut self, stop: CancellationToken) -> u8 {
        let mut earlier = 0;
        loop {
            let signal = self.next().await;
            match reaction(earlier, signal) {
                Reaction::Drain => {
                    tracing::info!(?signal, "ending in order; a second signal ends at once");
                    stop.cancel();
                }
                Reaction::EndNow(code) => {
                    tracing::warn!(?signal, "ending at once");
                    return code;
                }
            }
            earlier += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_drains_and_every_further_one_ends() {
        for signal in [Signal::Interrupt, Signal::Terminate] {
            assert_eq!(reaction(0, signal), Reaction::Drain);
        }
        for earlier in [1, 2, 100] {
            assert_eq!(reaction(earlier, Signal::Interrupt), Reaction::EndNow(130));
            assert_eq!(reaction(earlier, Signal::Terminate), Reaction::EndNow(143));
        }
    }
}
