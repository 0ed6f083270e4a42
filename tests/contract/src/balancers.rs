//! The promises of every provider about load balancers.

mod adoption;
mod batches;
mod deletion;
mod failures;
mod lists;
mod members;
mod ownership;
mod pools;
mod progress;
mod repair;

pub(crate) use self::{
    adoption::*, batches::*, deletion::*, failures::*, lists::*, members::*, ownership::*,
    pools::*, progress::*, repair::*,
};
