//! Makes requests to the cloud and to the API server. Their answers are events again.

pub(crate) mod audit;
mod calls;
pub(crate) mod lanes;
pub(crate) mod orphans;
pub(crate) mod poll;
mod writes;

use ccm_cloud::{CloudError, Depth, LoadBalancers, Scope};
use ccm_objects::Shared as Name;

use crate::{machine::event::Polled, translate::Translator};

/// The number of Services of one batch that are written to the API server concurrently.
const WRITES: usize = 16;

/// Reads load balancers by their IDs.
async fn read(
    translator: &Translator,
    balancers: &dyn LoadBalancers,
    asked: &[(String, Name)],
    depth: Depth,
    is_urgent: bool,
) -> Result<Polled, CloudError> {
    let started = translator.performer.door.now();
    let scope = Scope::Ids(asked.iter().map(|(id, _)| id.clone()).collect());
    let (cluster, call) = (&translator.performer.cluster, translator.call(is_urgent));
    let list = balancers.list(cluster, scope, depth, call).await?;
    let services = asked.iter().filter_map(|(_, name)| translator.services.get(name)).collect();
    Ok(Polled { started, asked: asked.to_vec(), list, services })
}
