//! The records of the program's machines, for the page `/record` and its metrics.

use std::{
    convert::Infallible,
    io::{self, Write},
    sync::Arc,
};

use bytes::Bytes;
use ccm_base::{At, clock};
use ccm_metrics::computed;
use futures::{StreamExt as _, stream};
use http_body_util::StreamBody;
use hyper::body::{Body, Frame};
use parking_lot::Mutex;
use tokio::{
    sync::{Semaphore, mpsc},
    task::spawn_blocking,
};

use crate::metrics::Metrics;

/// Records are written for at most this many clients at the same time: each may take a processor
/// and the memory of a machine.
const AT_ONCE: usize = 2;
/// The bytes that are sent at once.
const PIECE: usize = 32 * 1024;
/// How many pieces may wait for a client, because either the client or the record may be slow.
const WAITING: usize = 2;

/// The request of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordQuery {
    /// The object that the record should be about. `None` asks for all objects.
    pub name: Option<String>,
    /// True if names and addresses should be replaced.
    pub anonymous: bool,
}

/// The size of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordSize {
    /// Its memory.
    pub bytes: usize,
    /// The number of events.
    pub events: u64,
    /// The time since which no record is missing.
    pub since: Option<At>,
}

/// The last events of a machine.
pub trait Record: Send + Sync {
    /// Writes the record, as lines of JSON. May take seconds.
    fn write(&self, asked: &RecordQuery, to: &mut dyn Write) -> io::Result<()>;

    /// Returns the size of the record.
    fn kept(&self) -> RecordSize;
}

computed! {
    static RECORDS: RecordSize = {
        /// Memory of the records of the last events, in bytes; at most --record-bytes
        [ALPHA] Gauge ccm_record_bytes = |kept| kept.bytes as f64;
        /// Events in the records
        [ALPHA] Gauge ccm_record_events = |kept| kept.events as f64;
        /// How far back the shortest record goes, in seconds; 0 if a machine does not have one
        [ALPHA] Gauge ccm_record_reach_seconds = |kept| {
            kept.since.map_or(0.0, |since| At::from(clock::wall()).since(since).as_secs_f64())
        };
    }
}

/// The records of a process. Clones share them.
#[derive(Clone)]
pub struct Records {
    all: Arc<Mutex<Vec<Arc<dyn Record>>>>,
    at_once: Arc<Semaphore>,
}

/// The reason why a client does not get a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    /// No record is kept.
    None,
    /// Too many clients read it.
    Busy,
}

impl Records {
    /// Starts without records, with their metrics.
    pub fn new(metrics: &Metrics) -> Self {
        let records = Self { all: Arc::default(), at_once: Arc::new(Semaphore::new(AT_ONCE)) };
        let shown = Arc::clone(&records.all);
        metrics.collect(RECORDS.collector(move || {
            let all: Vec<RecordSize> = shown.lock().iter().map(|record| record.kept()).collect();
            let together = RecordSize {
                bytes: all.iter().map(|kept| kept.bytes).sum(),
                events: all.iter().map(|kept| kept.events).sum(),
                // The shortest record counts, because a machine without a record is a gap.
                since: all
                    .iter()
                    .map(|kept| kept.since)
                    .try_fold(At::default(), |last, since| Some(last.max(since?))),
            };
            let together =
                RecordSize { since: together.since.filter(|_| !all.is_empty()), ..together };
            vec![(Vec::new(), together)]
        }));
        records
    }

    /// Adds the record of a machine.
    pub fn add(&self, record: Arc<dyn Record>) {
        self.all.lock().push(record);
    }

    /// Writes the records one after the other.
    pub fn write(&self, asked: &RecordQuery, to: &mut dyn Write) -> io::Result<()> {
        let all = self.all.lock().clone();
        all.iter().try_for_each(|record| record.write(asked, to))
    }

    /// Returns the body, written while the client reads.
    pub(crate) fn body(
        &self,
        asked: RecordQuery,
    ) -> Result<impl Body<Data = Bytes, Error = Infallible> + Send + use<>, Unread> {
        if self.all.lock().is_empty() {
            return Err(Unread::None);
        }
        let records = self.clone();
        let permit = Arc::clone(&self.at_once).try_acquire_owned().map_err(|_| Unread::Busy)?;
        let begin = move || {
            let (pieces, received) = mpsc::channel(WAITING);
            drop(spawn_blocking(move || {
                let mut to = Pieces { pieces, piece: Vec::new() };
                // A client that disconnects misses the rest. A client that stays can see from the
                // last line if the record is complete.
                let written = records.write(&asked, &mut to);
                if let Err(error) = written.and_then(|()| to.flush()) {
                    tracing::debug!(%error, "a client did not get the whole record");
                }
                drop(permit);
            }));
            received
        };
        // Nothing is written before the client reads.
        let pieces = stream::once(async move { begin() }).flat_map(|received| {
            stream::unfold(received, async |mut received| {
                let piece = received.recv().await?;
                Some((Ok(Frame::data(piece)), received))
            })
        });
        Ok(StreamBody::new(pieces))
    }
}

/// Sends what is written in pieces.
struct Pieces {
    pieces: mpsc::Sender<Bytes>,
    piece: Vec<u8>,
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.piece.extend_from_slice(bytes);
        if self.piece.len() >= PIECE {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let piece = Bytes::from(std::mem::take(&mut self.piece));
        if piece.is_empty() {
            return Ok(());
        }
        self.pieces.blocking_send(piece).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}
