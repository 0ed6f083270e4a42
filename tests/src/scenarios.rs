//! What must happen, told as scenarios that run on any cluster.
