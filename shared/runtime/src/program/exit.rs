//! Exit codes, and messages before the logger exists.

use std::io::Write as _;

use super::{Failure, Program};

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Successful shutdown.
    Done,
    /// Leadership lost, a task ended unexpectedly, or another error.
    Broken,
    /// The command line or the settings are invalid.
    Usage,
    /// A second signal.
    Signal(u8),
}

impl Exit {
    /// The exit code.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Broken => 1,
            Self::Usage => 2,
            Self::Signal(code) => code,
        }
    }
}

impl From<&Failure> for Exit {
    fn from(failure: &Failure) -> Self {
        match failure {
            Failure::Usage(_) => Self::Usage,
            Failure::Broken(_) => Self::Broken,
        }
    }
}

/// Prints errors of the command line or the settings; the logger does not exist yet.
pub(super) fn refuse<P: Program>(lines: &str) -> Exit {
    for line in lines.lines() {
        eprintln!("{}: {line}", P::IDENTITY.binary);
    }
    Exit::Usage
}

/// Prints a text on stdout. A closed pipe, as with `head`, is no error.
pub(super) fn print(text: &str) -> Exit {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Exit::Broken,
        _ => Exit::Done,
    }
}
