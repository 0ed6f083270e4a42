//! The `Retry-After` header. It comes from the network and can hold anything.

use std::time::Duration;

use jiff::{Timestamp, fmt::rfc2822::DateTimeParser};

/// Returns the wait that a `Retry-After` header asks for: seconds, or a date relative to `now` (RFC
/// 9110, 10.2.3). `None` for anything else. It may exceed what a clock can hold: callers cap it.
pub fn retry_after(value: &str, now: Timestamp) -> Option<Duration> {
    let value = value.trim();
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number that overflows is still a very long time.
        return Some(Duration::from_secs(value.parse().unwrap_or(u64::MAX)));
    }
    let date = DateTimeParser::new().parse_timestamp(value).ok()?;
    Some(Duration::try_from(date.duration_since(now)).unwrap_or(Duration::ZERO))
}
