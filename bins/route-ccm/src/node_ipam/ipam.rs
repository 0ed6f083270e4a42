//! Node IPAM: which node gets which pod CIDRs.
//!
//! Pure: no clock, no client, no `async`. The caller passes what was written and read, and the time, as values.
//!
//! | module | what it holds |
//! |---|---|
//! | `allocator` | who holds which blocks: reservations, what nodes show, what is held after their end |
//! | `blocks`, `intervals` | the blocks of one cluster CIDR |
//! | `networks` | networks that overlap |
//! | `rival` | pod CIDRs of other clients, and another allocator |
//! | `cloud` | what the cloud has assigned to an instance |
//! | `problem` | what is wrong, one line each |

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
