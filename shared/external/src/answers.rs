//! Streams of answers that are forwarded as they arrive.

use std::collections::BTreeSet;

use ccm_cloud::{CloudError, ErrorKind};
use futures::{
    FutureExt as _, Stream, StreamExt as _,
    channel::mpsc::{self, UnboundedSender},
    stream,
};

use super::convert::malformed;

/// Returns the stream of the values that `work` sends; `work` runs while the stream is read. The
/// size of the request limits the number of values.
pub fn flowing<T, F: Future<Output = ()>>(
    work: impl FnOnce(UnboundedSender<T>) -> F,
) -> impl Stream<Item = T> {
    let (sender, answers) = mpsc::unbounded();
    let working = work(sender).into_stream().filter_map(|()| std::future::ready(None));
    stream::select(answers, working)
}

/// Returns the place that the next answer of a stream is about, which leaves `left`. `asked` were
/// asked about. An answer that was not asked for, or a second one, ends the stream: one that
/// repeats itself may have no end.
pub fn next(
    place: Option<u32>,
    asked: usize,
    left: &mut BTreeSet<usize>,
) -> Result<usize, CloudError> {
    match place.and_then(|place| usize::try_from(place).ok()) {
        Some(place) if left.remove(&place) => Ok(place),
        Some(place) if place < asked => {
            Err(malformed(format!("the provider gave a second answer about place {place}")))
        }
        _ => Err(malformed("the provider gave an answer that was not asked for")),
    }
}

/// Returns the error of the whole call, derived from the errors of its items. One throttled item counts
/// for the whole call. Another error counts only if all items failed with its kind and this kind
/// concerns the whole cloud.
pub fn error_of_all(results: &[Option<CloudError>]) -> Option<CloudError> {
    let throttled = results.iter().flatten().filter(|error| error.kind == ErrorKind::Throttled);
    throttled.max_by_key(|error| error.retry_after).cloned().or_else(|| {
        let all: Option<Vec<&CloudError>> = results.iter().map(Option::as_ref).collect();
        let (first, others) = all.as_deref()?.split_first()?;
        let is_same = others.iter().all(|other| other.kind == first.kind);
        (is_same && !first.unsent && concerns_all(first.kind, !others.is_empty()))
            .then(|| CloudError::clone(first))
    })
}

/// Returns true if an error of this kind concerns the whole cloud. Some kinds count only if several
/// objects have it.
fn concerns_all(kind: ErrorKind, several: bool) -> bool {
    match kind {
        ErrorKind::Unauthorized | ErrorKind::Unavailable => true,
        ErrorKind::Forbidden | ErrorKind::Timeout | ErrorKind::Malformed => several,
        _ => false,
    }
}
