//! What the API server can answer when it does not do what was asked.

/// An answer of the API server that is not the wanted one.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {}
