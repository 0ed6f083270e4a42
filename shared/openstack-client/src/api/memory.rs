//! Counts the memory of the kept parts of a list.

use std::sync::atomic::{AtomicUsize, Ordering};

use ccm_cloud::{CloudError, ErrorKind};

/// The approximate memory that an element of a list or map takes beside itself, in bytes: its part
/// of a half-filled node, and small allocations that are rounded up.
pub const OVERHEAD: usize = 96;
/// The maximum size of the kept part of one list, in bytes: 20,000 servers with little metadata.
const MOST_KEPT: usize = 32 << 20;

/// Counts the memory that a list takes. A short text may need ten times its length once it is
/// parsed, so the length of the pages says little about the memory.
#[derive(Debug, Default)]
pub struct Memory {
    used: AtomicUsize,
}

impl Memory {
    /// Takes this number of bytes. `None` if there are no more: then the entry must not be kept or
    /// serve as marker, which ends the list.
    pub fn take(&self, bytes: usize) -> Option<()> {
        let used = self.used.fetch_add(bytes, Ordering::Relaxed);
        (used.saturating_add(bytes) <= MOST_KEPT).then_some(())
    }

    /// Takes what an entry may take, as a text and once it is parsed.
    pub fn take_entry(&self, entry: &str) -> Option<()> {
        let parts = entry.bytes().filter(|byte| *byte == b',').count() + 1;
        self.take(entry.len() + parts * OVERHEAD)
    }

    /// Returns the outcome of a list, or the error that it takes too much memory.
    pub fn enough<T>(
        &self,
        operation: &str,
        outcome: Result<T, CloudError>,
    ) -> Result<T, CloudError> {
        if self.used.load(Ordering::Relaxed) <= MOST_KEPT {
            return outcome;
        }
        let what =
            format!("{operation}: the list takes more than {} MiB of memory", MOST_KEPT >> 20);
        Err(CloudError::new(ErrorKind::Malformed, what))
    }
}
