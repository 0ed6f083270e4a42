//! Measures many nodes that get routes on Neutron, and leave.

use anyhow::Result;
use ccm_tests::openstack::{many_routes, rig::Rig};

/// The number of nodes.
const NODES: usize = 300;

/// Prints the calls when 300 nodes get routes and one node leaves: with port security off, and with
/// address pairs.
pub async fn measure(rig: &Rig) -> Result<()> {
    for is_secure in [false, true] {
        let figures = many_routes::measure(rig, NODES, is_secure).await?;
        figures.print(NODES);
        figures.check(NODES)?;
    }
    Ok(())
}
