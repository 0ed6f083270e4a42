//! Answers that are passed on as they come.

use futures::{
    FutureExt as _, Stream, StreamExt as _,
    channel::mpsc::{self, UnboundedSender},
    stream,
};

/// The stream of what `work` sends, which goes on while somebody reads. What is sent is
/// bounded by what was asked.
pub(super) fn flowing<T, F: Future<Output = ()>>(
    work: impl FnOnce(UnboundedSender<T>) -> F,
) -> impl Stream<Item = T> {
    let (sender, answers) = mpsc::unbounded();
    let working = work(sender).into_stream().filter_map(|()| std::future::ready(None));
    stream::select(answers, working)
}
