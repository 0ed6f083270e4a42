//! `/metrics`, which many clients may ask for at the same time.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::metrics::{Metrics, classic};

/// On average, the registry is encoded at most once in this time. So no page is older.
const PERIOD: Duration = Duration::from_secs(1);
/// After a quiet time, the registry may be encoded this many times at once.
const BURST: u32 = 10;
/// OpenMetrics, which Prometheus asks for.
const OPEN: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The older text format, which every tool reads.
const CLASSIC: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The page of a registry. Encoding the registry takes milliseconds of the processor, so requests
/// in quick succession share a page, which is at most a second old. None of them waits: a crowd
/// could close its connection in the meantime. Clones share the page.
#[derive(Clone)]
pub struct Scrapes {
    metrics: Metrics,
    last: Arc<Mutex<Option<Encoded>>>,
}

struct Encoded {
    text: Bytes,
    /// The time that the encodings so far are worth, one [`PERIOD`] each.
    paid_until: Instant,
}

impl Scrapes {
    /// Creates the page of this registry.
    pub fn new(metrics: Metrics) -> Self {
        Self { metrics, last: Arc::default() }
    }

    /// Returns the page and its media type for a client that accepts this (header `Accept`).
    pub(super) fn page(&self, accept: &str) -> Result<(&'static str, Bytes), fmt::Error> {
        let text = self.encoded()?;
        Ok(match accept.contains("application/openmetrics-text") {
            true => (OPEN, text),
            false => (CLASSIC, classic(&String::from_utf8_lossy(&text)).into()),
        })
    }

    fn encoded(&self) -> Result<Bytes, fmt::Error> {
        let mut last = self.last.lock();
        let now = Instant::now();
        let paid_until = match &*last {
            Some(last) if last.paid_until > now + PERIOD * (BURST - 1) => {
                return Ok(last.text.clone());
            }
            last => last.as_ref().map_or(now, |last| last.paid_until.max(now)),
        };
        let text = Bytes::from(self.metrics.encode()?);
        *last = Some(Encoded { text: text.clone(), paid_until: paid_until + PERIOD });
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use ccm_metrics::Gauge;
    use tokio::time::sleep;

    use super::*;

    fn scrapes() -> (Scrapes, Gauge) {
        let (metrics, gauge) = (Metrics::new(), Gauge::default());
        metrics.with(|registry| registry.register("seen", "[ALPHA] Seen", gauge.clone()));
        (Scrapes::new(metrics), gauge)
    }

    #[tokio::test]
    async fn the_format_is_one_that_the_client_accepts() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let cases = [
            (prometheus, "application/openmetrics-text; version=1.0.0; charset=utf-8", true),
            ("text/plain", "text/plain; version=0.0.4; charset=utf-8", false),
            ("*/*", "text/plain; version=0.0.4; charset=utf-8", false),
            ("", "text/plain; version=0.0.4; charset=utf-8", false),
        ];
        for (accept, media_type, ends_with_mark) in cases {
            let (shown, page) = scrapes().0.page(accept).unwrap();
            let found = (shown, page.ends_with(b"# EOF\n"));
            assert_eq!(found, (media_type, ends_with_mark), "{accept}");
        }
    }

    /// Returns the value on the page.
    fn seen(scrapes: &Scrapes) -> i64 {
        let (_, page) = scrapes.page("").unwrap();
        let text = String::from_utf8_lossy(&page).into_owned();
        let value = text.lines().find_map(|line| line.strip_prefix("seen "));
        value.and_then(|value| value.parse().ok()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn many_requests_share_an_encoding_that_is_at_most_a_second_old() {
        let (scrapes, gauge) = scrapes();
        let (start, mut pages) = (Instant::now(), std::collections::BTreeSet::new());
        while start.elapsed() < Duration::from_secs(60) {
            let now = i64::try_from(start.elapsed().as_millis()).unwrap();
            gauge.set(now);
            let page = seen(&scrapes);
            assert!(now - page < 1000, "the page of {page} at {now}");
            pages.insert(page);
            sleep(Duration::from_millis(10)).await;
        }
        let most = 60 + usize::try_from(BURST).unwrap();
        assert!(pages.len() <= most, "{} encodings in 60 s", pages.len());
    }

    #[tokio::test(start_paused = true)]
    async fn requests_after_a_quiet_time_get_pages_of_their_own() {
        let (scrapes, gauge) = scrapes();
        for round in 0..5 {
            for request in 0..BURST.into() {
                gauge.set(round * 100 + request);
                assert_eq!(seen(&scrapes), round * 100 + request);
            }
            sleep(PERIOD * BURST).await;
        }
    }
}
