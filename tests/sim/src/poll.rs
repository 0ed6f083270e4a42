//! Polls for conditions, with a reason on failure.

use std::{future::Future, time::Duration};

use anyhow::{Context as _, Result, bail};
use tokio::time::{Instant, sleep};

/// The polling interval.
const STEP: Duration = Duration::from_millis(20);

/// Repeats `look` until it returns `Ok(Some(_))` or `limit` has passed. The failure contains
/// the last error or "not yet", so that a failed test shows what it saw.
pub async fn until<T, F, Fut>(what: &str, limit: Duration, mut look: F) -> Result<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<Option<T>>>,
{
    let start = Instant::now();
    loop {
        let seen = look().await;
        match seen {
            Ok(Some(value)) => return Ok(value),
            Ok(None) if start.elapsed() > limit => {
                bail!("after {limit:?} still waiting for: {what}")
            }
            Err(error) if start.elapsed() > limit => {
                return Err(error)
                    .with_context(|| format!("after {limit:?} still waiting for: {what}"));
            }
            Ok(None) | Err(_) => sleep(STEP).await,
        }
    }
}

/// Checks during all of `time` that `look` returns no error.
pub async fn always<F, Fut>(what: &str, time: Duration, mut look: F) -> Result<()>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<()>>,
{
    let start = Instant::now();
    while start.elapsed() < time {
        look().await.with_context(|| format!("not all the time: {what}"))?;
        sleep(STEP).await;
    }
    Ok(())
}
