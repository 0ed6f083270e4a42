//! What was logged.

use std::{io, mem, sync::Arc};

use parking_lot::Mutex;
use tracing::{Level, level_filters::LevelFilter, subscriber::DefaultGuard};
use tracing_subscriber::fmt::MakeWriter;

/// Keeps what is written to it, as lines of UTF-8. Its copies share their lines.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// An empty one. From now on every call site of this process has a listener: one that
    /// another test passes first, with nobody listening, would stay silent for good.
    pub fn new() -> Self {
        let everybody =
            tracing_subscriber::fmt().with_max_level(Level::TRACE).with_writer(io::sink).finish();
        // The second test of a process finds that the first one has done it.
        drop(tracing::subscriber::set_global_default(everybody));
        Self::default()
    }

    /// Takes what this thread logs at this level and above, until the guard is dropped.
    #[must_use]
    pub fn listen(&self, level: Level) -> DefaultGuard {
        let lines = tracing_subscriber::fmt()
            .with_max_level(LevelFilter::from_level(level))
            .with_writer(self.clone())
            .with_ansi(false)
            .finish();
        tracing::subscriber::set_default(lines)
    }

    /// Everything that was logged.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock()).into_owned()
    }

    /// The same, which is then forgotten.
    pub fn take(&self) -> String {
        String::from_utf8_lossy(&mem::take(&mut *self.0.lock())).into_owned()
    }

    /// How many lines hold this text.
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
