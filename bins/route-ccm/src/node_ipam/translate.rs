//! Makes events of what node IPAM hears.

pub(crate) mod intake;
pub(crate) mod lookups;
pub(crate) mod time;
pub(crate) mod turns;

/// How many nodes are written at once: as many as the rate limit of the API server's client may let
/// pass while one write is under way.
const WRITERS: usize = 64;
