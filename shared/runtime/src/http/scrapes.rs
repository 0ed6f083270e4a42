//! `/metrics`, however many ask for it.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::{
    sync::Mutex,
    time::{Instant, sleep_until},
};

use crate::metrics::{Format, Metrics};

/// The registry is encoded once in this time on average. Shorter than the time for which a young
/// connection is safe from a crowd, and than any probe's patience.
const PERIOD: Duration = Duration::from_millis(200);
/// As many times it may be encoded sooner, after a quiet time.
const BURST: u32 = 10;

/// The page of a registry. Encoding the registry takes milliseconds of the processor, so requests
/// in quick succession wait for the next encoding and share it. A page is never older than the
/// request that it answers. Clones share the page.
#[derive(Clone)]
pub struct Scrapes {
    metrics: Metrics,
    last: Arc<Mutex<Option<Encoded>>>,
}

struct Encoded {
    text: Bytes,
    since: Instant,
    /// The time that the encodings so far are worth, one [`PERIOD`] each.
    paid_until: Instant,
}

impl Scrapes {
    /// The page of this registry.
    pub fn new(metrics: Metrics) -> Self {
        Self { metrics, last: Arc::default() }
    }

    /// The page and its media type for a client that accepts this (header `Accept`).
    pub(super) async fn page(&self, accept: &str) -> Result<(&'static str, Bytes), fmt::Error> {
        let text = self.encoded().await?;
        let format = Format::accepted(accept);
        Ok((format.media_type(), format.page(text)))
    }

    async fn encoded(&self) -> Result<Bytes, fmt::Error> {
        let asked = Instant::now();
        let mut last = self.last.lock().await;
        if let Some(last) = last.as_ref().filter(|last| last.since > asked) {
            return Ok(last.text.clone());
        }
        let paid_until = last.as_ref().map_or(asked, |last| last.paid_until);
        sleep_until(paid_until.checked_sub(PERIOD * BURST).unwrap_or(asked)).await;
        let now = Instant::now();
        let text = Bytes::from(self.metrics.encode()?);
        let paid_until = paid_until.max(now) + PERIOD;
        *last = Some(Encoded { text: text.clone(), since: now, paid_until });
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use ccm_metrics::Gauge;
    use futures::future::join_all;

    use super::*;

    fn scrapes() -> (Scrapes, Gauge) {
        let (metrics, gauge) = (Metrics::new(), Gauge::default());
        metrics.with(|registry| registry.register("seen", "[ALPHA] Seen", gauge.clone()));
        (Scrapes::new(metrics), gauge)
    }

    #[tokio::test(start_paused = true)]
    async fn many_requests_share_an_encoding_and_none_gets_an_older_one() {
        let (scrapes, gauge) = scrapes();
        let start = Instant::now();
        for round in 0..100 {
            gauge.set(round);
            let pages = join_all((0..5).map(|_| scrapes.page(""))).await;
            for page in pages {
                let (_, page) = page.unwrap();
                let line = format!("seen {round}\n");
                assert!(String::from_utf8_lossy(&page).contains(&line), "{round}: {page:?}");
            }
        }
        let took = start.elapsed();
        assert!(took >= PERIOD * (99 - BURST), "{took:?} for 100 rounds");
        assert!(took <= PERIOD * 100, "{took:?} for 100 rounds");
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_after_a_quiet_time_does_not_wait() {
        let (scrapes, _) = scrapes();
        for _ in 0..5 {
            let start = Instant::now();
            for _ in 0..BURST {
                scrapes.page("").await.unwrap();
            }
            assert_eq!(start.elapsed(), Duration::ZERO);
            tokio::time::sleep(PERIOD * BURST).await;
        }
    }

    /// A client that leaves while it waits leaves the page to others.
    #[tokio::test(start_paused = true)]
    async fn a_client_that_leaves_does_not_block_others() {
        let (scrapes, _) = scrapes();
        for _ in 0..=BURST {
            scrapes.page("").await.unwrap();
        }
        let brief = tokio::time::timeout(PERIOD / 10, scrapes.page("")).await;
        assert!(brief.is_err(), "it waits");
        scrapes.page("").await.unwrap();
    }
}
