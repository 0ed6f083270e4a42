//! Streams of answers that are forwarded as they arrive.

use std::collections::BTreeSet;

use ccm_cloud::CloudError;
use futures::{
    FutureExt as _, Stream, StreamExt as _,
    channel::mpsc::{self, UnboundedSender},
    stream,
};

use super::convert::malformed;

/// The stream of the values that `work` sends; `work` runs while the stream is read. The size
/// of the request limits the number of values.
pub(super) fn flowing<T, F: Future<Output = ()>>(
    work: impl FnOnce(UnboundedSender<T>) -> F,
) -> impl Stream<Item = T> {
    let (sender, answers) = mpsc::unbounded();
    let working = work(sender).into_stream().filter_map(|()| std::future::ready(None));
    stream::select(answers, working)
}

/// The place that the next answer of a stream is about, which leaves `left`. `asked` were asked
/// about. An answer that was not asked for, or a second one, ends the stream: one that repeats
/// itself may have no end.
pub(super) fn next(
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
