//! The promises about load balancers, one function each.

mod batches;
mod failures;
mod lists;
mod losses;
mod members;
mod ownership;
mod pools;
mod progress;
pub mod world;

pub use batches::*;
pub use failures::*;
pub use lists::*;
pub use losses::*;
pub use members::*;
pub use ownership::*;
pub use pools::*;
pub use progress::*;
