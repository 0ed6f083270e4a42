//! Helpers for all other crates: time, durations as text, back-off, files that change, and
//! text for messages.
//! Nothing here depends on Kubernetes, a cloud or an HTTP client; of tokio it uses the clock,
//! which tests can pause, and the threads for blocking reads.
//!
//! | module | what it holds |
//! |---|---|
//! | [`clock`], `at`, `steps` | the only module that reads clocks; a moment as a value; by how much the wall clock was set |
//! | [`duration`] | Go's durations as text |
//! | `backoff`, `retry_class` | exponential back-off and random waits; how a caller should react to an error, and how long it waits |
//! | `fair_order`, `later` | the order of urgent and routine work; times in the future, by a clock that tests can pause |
//! | `files` | files that are read again when they change |
//! | `log_throttle` | log lines about a failure that repeats |
//! | [`message`] | sanitises external text for logs, events and errors |
//! | `nearest` | "did you mean ...?" for misspelt names |
//! | `loopback`, `retry_after` | loopback hosts; `Retry-After` headers |

mod at;
mod backoff;
pub mod clock;
pub mod duration;
mod fair_order;
mod files;
mod later;
mod log_throttle;
mod loopback;
pub mod message;
mod nearest;
mod retry_after;
mod retry_class;
mod steps;

pub use at::At;
pub use backoff::{Backoff, jittered};
pub use fair_order::FairOrder;
pub use files::Files;
pub use later::later;
pub use log_throttle::LogThrottle;
pub use loopback::is_loopback;
pub use nearest::nearest;
pub use retry_after::retry_after;
pub use retry_class::{RetryClass, Waits};
pub use tokio::time::Instant;
