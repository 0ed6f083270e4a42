//! lifecycle-ccm: the controller that takes nodes out of the cluster whose instances
//! are gone for good, and nobody else.
//!
//! | module | what it holds |
//! |---|---|
//! | [`court`] | who is looked at, what counts as evidence, who is deleted: pure |

pub mod court;
