//! The `Retry-After` header. It comes from the network and can hold anything.

use std::time::Duration;

use http::{HeaderMap, header::RETRY_AFTER};
use jiff::Timestamp;

use crate::error::RETRY_AFTER_LIMIT;

/// Returns the wait that the server asked for: seconds, or a date relative to `now`. `None` for
/// anything else.
pub(super) fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let wait = ccm_base::retry_after(headers.get(RETRY_AFTER)?.to_str().ok()?, now)?;
    Some(wait.min(RETRY_AFTER_LIMIT))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn parse(value: &[u8]) -> Option<Duration> {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, HeaderValue::from_bytes(value).unwrap());
        retry_after(&headers, "2026-11-20T12:00:00Z".parse().unwrap())
    }

    #[test]
    fn seconds_and_dates_are_understood_and_clamped() {
        let check = |value: &str, expect: Option<u64>| {
            assert_eq!(parse(value.as_bytes()), expect.map(Duration::from_secs), "{value:?}");
        };
        check("0", Some(0));
        check("1", Some(1));
        check(" 7 ", Some(7));
        check("60", Some(60));
        check("61", Some(60));
        check("18446744073709551615", Some(60));
        check("99999999999999999999999999", Some(60));
        check("Fri, 20 Nov 2026 12:00:09 GMT", Some(9));
        check("Fri, 20 Nov 2026 11:00:00 GMT", Some(0));
        check("Mon, 20 Nov 2099 12:00:00 GMT", None);
        check("Fri, 20 Nov 2122 12:00:00 GMT", Some(60));
        check("-1", None);
        check("1.5", None);
        check("", None);
        check("soon", None);
        assert_eq!(retry_after(&HeaderMap::new(), Timestamp::UNIX_EPOCH), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn no_value_is_too_long_or_panics(value in "[ -~]{0,40}", date in any::<i32>()) {
            prop_assert!(parse(value.as_bytes()).is_none_or(|wait| wait <= RETRY_AFTER_LIMIT));
            let date = Timestamp::from_second(i64::from(date)).unwrap();
            let date = jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&date).unwrap();
            prop_assert!(parse(date.as_bytes()).is_some_and(|wait| wait <= RETRY_AFTER_LIMIT));
        }
    }
}
