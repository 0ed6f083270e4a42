//! Captures log output.

use std::{io, mem, sync::Arc};

use parking_lot::Mutex;
use tracing::{Level, level_filters::LevelFilter, subscriber::DefaultGuard};
use tracing_subscriber::fmt::MakeWriter;

/// Captures log lines as UTF-8. Clones share the lines.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Creates an empty log. Also sets a global subscriber: without one, a call site that another
    /// test reaches first would be disabled for the whole process.
    pub fn new() -> Self {
        let global =
            tracing_subscriber::fmt().with_max_level(Level::TRACE).with_writer(io::sink).finish();
        // This fails for every test of a process except the first, which has set it.
        drop(tracing::subscriber::set_global_default(global));
        Self::default()
    }

    /// Captures this thread's logs at this level and above until the guard is dropped.
    #[must_use]
    pub fn listen(&self, level: Level) -> DefaultGuard {
        let lines = tracing_subscriber::fmt()
            .with_max_level(LevelFilter::from_level(level))
            .with_writer(self.clone())
            .with_ansi(false)
            .finish();
        tracing::subscriber::set_default(lines)
    }

    /// Returns everything that was logged.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock()).into_owned()
    }

    /// Returns and clears everything that was logged.
    pub fn take(&self) -> String {
        String::from_utf8_lossy(&mem::take(&mut *self.0.lock())).into_owned()
    }

    /// Returns the number of lines that contain this text.
    pub fn lines_with(&self, text: &str) -> usize {
        self.text().lines().filter(|line| line.contains(text)).count()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}
