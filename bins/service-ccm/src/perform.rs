//! Makes requests to the cloud and to the API server. Their answers are events again.

pub(crate) mod audit;
mod calls;
pub(crate) mod lanes;
pub(crate) mod orphans;
pub(crate) mod poll;
mod writes;
