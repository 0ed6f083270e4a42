//! What the log says of a lost Lease: which of the two ways it was.

use std::{io, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tracing_subscriber::fmt::MakeWriter;

use crate::{
    lease_api::LeaseApi,
    line::Fault,
    replicas::{Replica, until},
};

const LONG: Duration = Duration::from_mins(2);

/// What was logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// The line about the loss that comes of what is done to a leader.
async fn line_of(harm: impl FnOnce(&LeaseApi, &Replica)) -> String {
    let log = Log::default();
    let logger = tracing_subscriber::fmt().with_writer(log.clone()).with_ansi(false).finish();
    // A call site that another test passes first, with nobody listening, stays silent for
    // the whole process; so somebody always listens.
    let everybody = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(std::io::sink)
        .finish();
    drop(tracing::subscriber::set_global_default(everybody));
    let _guard = tracing::subscriber::set_default(logger);
    let api = LeaseApi::default();
    let leader = Replica::start(&api);
    assert!(until(&[&leader], LONG, || leader.leads()).await.is_some());
    harm(&api, &leader);
    let said = || String::from_utf8(log.0.lock().clone()).unwrap();
    until(&[], LONG, || said().contains("lost the lease")).await.expect("a line");
    let said = said();
    said.lines().find(|line| line.contains("lost the lease")).unwrap().to_owned()
}

#[tokio::test(start_paused = true)]
async fn the_log_says_how_the_lease_was_lost() {
    let cut_off = line_of(|_, leader| leader.line.set(Fault::Silent)).await;
    assert!(cut_off.contains("it was not renewed within 10s"), "{cut_off}");
    assert!(!cut_off.contains("holder"), "nobody has taken it: {cut_off}");
    let taken = line_of(|api, _| api.put_held("another", 0)).await;
    assert!(taken.contains("another replica took it"), "{taken}");
    assert!(taken.contains("holder=\"another\""), "{taken}");
}
