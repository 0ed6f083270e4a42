//! How the answers of a batch of writes or questions are returned.

use ccm_cloud::{Answers, Call, CloudError, ErrorKind, Permit};
use futures::{StreamExt as _, stream};
use tokio::time::sleep_until;

use super::Operation;

/// The known answers of a batch, and the items that get no answer.
pub(super) struct Batch<A> {
    pub(super) answers: Vec<(usize, Result<A, CloudError>)>,
    pub(super) unanswered: Vec<usize>,
    pub(super) permit: Permit,
}

impl<A> Batch<A> {
    pub(super) const fn new(permit: Permit) -> Self {
        Self { answers: Vec::new(), unanswered: Vec::new(), permit }
    }
}

/// Returns the answers of a batch with `items` items, as they become known. All answers of a failed
/// call have its error. An item that is never answered gets an error at the end of the call.
pub(super) fn answers<'a, A: Send + 'static>(
    operation: Operation,
    items: usize,
    call: Call,
    work: impl Future<Output = Result<Batch<A>, CloudError>> + Send + 'a,
) -> Answers<'a, A> {
    let answers = async move {
        work.await.unwrap_or_else(|error| Batch {
            answers: (0..items).map(|item| (item, Err(error.clone()))).collect(),
            ..Batch::new(Permit::default())
        })
    };
    let answers = stream::once(answers).flat_map(move |batch| {
        let Batch { answers, unanswered, permit } = batch;
        let late = async move {
            if !unanswered.is_empty() {
                sleep_until(call.end).await;
            }
            permit.finish();
            let error = lost(operation, ErrorKind::Timeout, "took too long");
            stream::iter(unanswered.into_iter().map(move |item| (item, Err(error.clone()))))
        };
        stream::iter(answers).chain(stream::once(late).flatten())
    });
    answers.boxed()
}

/// Returns an error after which a write may have taken effect.
pub(super) fn lost(operation: Operation, kind: ErrorKind, why: &str) -> CloudError {
    let error = CloudError::new(kind, format!("{}: {why}", operation.as_str()));
    if operation.writes() { error.that_may_be_done() } else { error }
}
