//! Makes requests to the cloud and to the API server. Their answers are events again.

pub(crate) mod audit;
mod calls;
pub(crate) mod lanes;
pub(crate) mod orphans;
pub(crate) mod poll;
mod writes;

use ccm_cloud::Scope;
use ccm_objects::Shared as Name;

use crate::machine::effect::Effect;

/// The number of Services of one batch that are written to the API server concurrently.
const WRITES: usize = 16;

/// Selects the load balancers with these IDs.
fn by_id(asked: &[(String, Name)]) -> Scope {
    Scope::Ids(asked.iter().map(|(id, _)| id.clone()).collect())
}

/// Logs an effect that does not follow from the event that was just applied.
fn unexpected(effect: &Effect) {
    tracing::error!("an effect is not performed: {effect:?}");
}
