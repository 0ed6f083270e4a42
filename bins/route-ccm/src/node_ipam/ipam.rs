//! Decides which node gets which pod CIDRs.
//!
//! Pure: no clock, no client, no `async`. The caller passes writes, reads and the time as values.
//!
//! | module | what it holds |
//! |---|---|
//! | `allocator` | the holders of blocks: reservations, the pod CIDRs that nodes show, blocks that are held after their end |
//! | `blocks`, `intervals` | the blocks of one cluster CIDR |
//! | `networks` | networks that overlap |
//! | `rival` | pod CIDRs of other clients, and another allocator |
//! | `cloud` | the pod CIDRs that the cloud has assigned to an instance |
//! | `problem` | the problems, one line each |

mod allocator;
mod blocks;
mod cloud;
mod intervals;
mod networks;
mod problem;
mod rival;

pub use crate::networks::{AllocatorType, BlockSizes, ClusterRange, Config, Flags};
pub use allocator::{Allocator, HeldBlocks, HoldUntil, Reservation, Seen, Usage, Written};
pub use cloud::{Unusable, given};
pub use problem::{Exhausted, Problem, Refusal};
pub use rival::{Foreign, Rival};
