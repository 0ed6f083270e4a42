//! The simulated cloud, served to the programs over the external protocol.
