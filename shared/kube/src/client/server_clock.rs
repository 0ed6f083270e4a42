//! Measures how this machine's clock differs from the API server's. The `Date` of each answer shows
//! it, so this does not cost a request.
//!
//! A date has whole seconds, and the server has written it at any time between the request and the
//! answer. The difference that these bounds prove counts.

use std::sync::Arc;

use ccm_base::{LogThrottle, clock};
use http::{HeaderMap, header::DATE};
use jiff::{SignedDuration, Timestamp, fmt::rfc2822::DateTimeParser};
use parking_lot::Mutex;

use crate::metrics::RestMetrics;

/// A difference above this is reported.
const LIMIT: SignedDuration = SignedDuration::from_secs(10);
/// The resolution of a date.
const SECOND: SignedDuration = SignedDuration::from_secs(1);
/// An answer that took longer shows no clock: its bounds are too wide.
const SLOW: SignedDuration = SignedDuration::from_secs(5);

/// The difference that the API server's last answer has shown. Clones share it.
#[derive(Clone)]
pub struct ServerClock {
    state: Arc<Mutex<ClockState>>,
    metrics: Arc<RestMetrics>,
}

#[derive(Default)]
struct ClockState {
    ahead: Option<SignedDuration>,
    throttle: LogThrottle,
}

impl ServerClock {
    pub(super) fn new(metrics: &Arc<RestMetrics>) -> Self {
        Self { state: Arc::default(), metrics: Arc::clone(metrics) }
    }

    /// Reads the date of the answer to a request that was sent at this time.
    pub(super) fn read_answer(&self, headers: &HeaderMap, sent: Timestamp) {
        let Some(ahead) = date(headers).and_then(|date| ahead(sent, clock::wall(), date)) else {
            return;
        };
        self.metrics.clock_differs(ahead.as_secs_f64());
        let mut state = self.state.lock();
        let was_off = state.ahead.is_some_and(is_off);
        state.ahead = Some(ahead);
        // Several API servers with different clocks may answer in turn.
        if is_off(ahead) && !was_off && state.throttle.allow() {
            tracing::warn!(ahead = ahead.as_secs(), "{}", text(ahead));
        }
    }

    /// Returns the known part of the difference.
    ///
    /// # Errors
    ///
    /// It is too large.
    pub fn verdict(&self) -> Result<String, String> {
        match self.state.lock().ahead {
            None => Ok("no answer has shown the API server's clock yet".to_owned()),
            Some(ahead) if is_off(ahead) => Err(text(ahead)),
            Some(ahead) => {
                Ok(format!("differs from the API server's by {} s", ahead.as_secs().abs()))
            }
        }
    }
}

fn is_off(ahead: SignedDuration) -> bool {
    ahead.abs() > LIMIT
}

fn text(ahead: SignedDuration) -> String {
    let side = if ahead.is_negative() { "behind" } else { "ahead of" };
    let seconds = ahead.as_secs().abs();
    format!(
        "the clock of this machine is {seconds} s {side} the API server's: ages of nodes and times of \
         events and conditions are wrong by as much; synchronise both clocks"
    )
}

fn date(headers: &HeaderMap) -> Option<Timestamp> {
    DateTimeParser::new().parse_timestamp(headers.get(DATE)?.to_str().ok()?).ok()
}

/// Returns by how much this machine's clock is at least ahead of the server's, negative if it is
/// behind. Returns `None` if the answer does not show it.
fn ahead(sent: Timestamp, received: Timestamp, date: Timestamp) -> Option<SignedDuration> {
    let took = received.duration_since(sent);
    if took.is_negative() || took > SLOW {
        return None;
    }
    let least = sent.duration_since(date) - SECOND;
    let most = received.duration_since(date);
    Some(least.max(SignedDuration::ZERO) + most.min(SignedDuration::ZERO))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_trip_and_whole_seconds_are_no_difference() {
        let at = |millis: i64| Timestamp::from_millisecond(1_700_000_000_000 + millis).unwrap();
        let shown = |sent, received, date| {
            ahead(at(sent), at(received), at(date)).map(|ahead| ahead.as_millis())
        };
        for (sent, received, date, expect) in [
            (0, 20, 0, Some(0)),
            (900, 920, 0, Some(0)),
            (0, 4_000, 3_000, Some(0)),
            (0, 4_000, 5_000, Some(-1_000)),
            (20_000, 20_020, 0, Some(19_000)),
            (0, 20, 20_000, Some(-19_980)),
            (0, 5_001, 60_000, None),
            // The clock was set back in between.
            (20, 0, 60_000, None),
        ] {
            assert_eq!(shown(sent, received, date), expect, "{sent} {received} {date}");
        }
        assert!(!is_off(LIMIT) && is_off(-LIMIT - SECOND));
    }
}
