//! Turns the news for node IPAM into events.

pub(crate) mod intake;
pub(crate) mod lookups;
pub(crate) mod time;
pub(crate) mod turns;

/// How many nodes are written at once: as many as the rate limit of the API server's client may
/// admit during one write.
const WRITERS: usize = 64;
