//! What every other crate may use and no other crate is the right place for: time,
//! durations as text, back-off, and text for messages. Nothing here knows Kubernetes, a
//! cloud or an HTTP client; of tokio only its clock, which tests can pause.
//!
//! | module | what it holds |
//! |---|---|
//! | [`clock`], [`At`] | the only module that reads clocks; a moment as a value |
//! | [`duration`] | Go's durations as text |
//! | [`Backoff`], [`RetryClass`] | waits that double from failure to failure; what a caller should do about an error |
//! | [`FairOrder`], [`later`] | who is next of urgent and routine; times in the future
//! | [`message`] | foreign text made fit for logs, events and errors |
//! | [`nearest()`] | "did you mean ...?" for misspelt names |
//! | [`is_loopback`], [`retry_after()`] | which hosts are this machine; `Retry-After` headers |

mod at;
mod backoff;
pub mod clock;
pub mod duration;
mod fair_order;
mod later;
mod loopback;
pub mod message;
mod nearest;
mod retry_after;
mod retry_class;

pub use at::At;
pub use backoff::Backoff;
pub use fair_order::FairOrder;
pub use later::later;
pub use loopback::is_loopback;
pub use nearest::nearest;
pub use retry_after::retry_after;
pub use retry_class::RetryClass;
