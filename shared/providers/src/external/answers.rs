//! Streams of answers that are forwarded as they arrive.

use futures::{
    FutureExt as _, Stream, StreamExt as _,
    channel::mpsc::{self, UnboundedSender},
    stream,
};

/// The stream of the values that `work` sends; `work` runs while the stream is read. The size
/// of the request limits the number of values.
pub(super) fn flowing<T, F: Future<Output = ()>>(
    work: impl FnOnce(UnboundedSender<T>) -> F,
) -> impl Stream<Item = T> {
    let (sender, answers) = mpsc::unbounded();
    let working = work(sender).into_stream().filter_map(|()| std::future::ready(None));
    stream::select(answers, working)
}
