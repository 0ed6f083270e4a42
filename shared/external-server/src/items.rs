//! The items of a call, and their answers one by one.

use std::collections::BTreeSet;

use ccm_cloud::{Answers, Call, CloudError, ErrorKind};
use ccm_external::MAX_BATCH;
use futures::{StreamExt as _, stream::BoxStream};
use tokio::time::timeout_at;
use tonic::Status;

use super::{convert::to_status, service::too_late};

/// A stream of answers.
pub type Items<I> = BoxStream<'static, Result<I, Status>>;

/// Reads all items of a request, or fails.
pub fn read<W, T>(
    what: &str,
    wire: Vec<W>,
    item: impl Fn(W) -> Result<T, CloudError>,
) -> Result<Vec<T>, Status> {
    if wire.len() > MAX_BATCH {
        let what = format!("{} {what} in one call; at most {MAX_BATCH} are taken", wire.len());
        return Err(to_status(&CloudError::new(ErrorKind::Invalid, what)));
    }
    wire.into_iter().map(item).collect::<Result<_, _>>().map_err(invalid)
}

/// Returns the status of an unreadable item, which is the caller's mistake.
pub fn invalid(error: CloudError) -> Status {
    to_status(&CloudError { kind: ErrorKind::Invalid, ..error })
}

/// Sends each answer when the cloud returns it, and an error for each late one. `writes`: what
/// has no answer may be done.
pub async fn pass_on<T>(
    what: &str,
    count: usize,
    mut answers: Answers<'_, T>,
    call: Call,
    writes: bool,
    send: impl Fn(usize, Result<T, CloudError>),
) {
    let mut left: BTreeSet<usize> = (0..count).collect();
    let each = async {
        while let Some((place, answer)) = answers.next().await {
            if left.remove(&place) {
                send(place, answer);
            }
        }
        let what = format!("the cloud gave no answer about this {what}");
        CloudError::new(ErrorKind::Malformed, what)
    };
    let missing = timeout_at(call.end, each).await.unwrap_or_else(|_| too_late(call));
    let missing = if writes { missing.that_may_be_done() } else { missing };
    for place in left {
        send(place, Err(missing.clone()));
    }
}

/// Returns an index on the wire.
pub fn place(place: usize) -> Option<u32> {
    u32::try_from(place).ok()
}
