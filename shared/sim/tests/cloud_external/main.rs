//! The external provider's life: what comes up late, breaks, is replaced, is
//! configured wrongly, or cannot be trusted.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail by panic")]

mod configuration;
mod life;
mod place;
mod serving;
mod transport;
