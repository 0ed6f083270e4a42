//! Makes requests to the cloud and to the API server. Their answers are events again.

pub(crate) mod audit;
mod calls;
pub(crate) mod lanes;
pub(crate) mod orphans;
pub(crate) mod poll;
mod writes;

/// The number of Services of one batch that are written to the API server concurrently.
const WRITES: usize = 16;
