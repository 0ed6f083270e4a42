//! What every other crate may use and no other crate is the right place for: time,
//! durations as text, back-off, and text for messages. Nothing here knows Kubernetes, a
//! cloud, HTTP clients or an async runtime.
//!
//! | module | what it holds |
//! |---|---|
//! | [`clock`] | the only module that reads clocks |
//! | [`duration`] | Go's durations as text |
//! | [`Backoff`] | waits that double from failure to failure |
//! | [`message`] | foreign text made fit for logs, events and errors |
//! | [`nearest()`] | "did you mean ...?" for misspelt names |
//! | [`is_loopback`], [`retry_after()`] | which hosts are this machine; `Retry-After` headers |

mod backoff;
pub mod clock;
pub mod duration;
mod loopback;
pub mod message;
mod nearest;
mod retry_after;

pub use backoff::Backoff;
pub use loopback::is_loopback;
pub use nearest::nearest;
pub use retry_after::retry_after;
