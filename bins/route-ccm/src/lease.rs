//! The data that this leader leaves to the next one, as one annotation of the Lease: the deletions
//! of routes that count for the limit, the blocks of nodes that are gone, the cluster CIDRs, and
//! the sizes of blocks.

use ccm_controller::{brake::Window, handover};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::{networks::BlockSizes, node_ipam::ipam::HeldBlocks};

/// The data that a leader leaves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Left {
    /// The routes that were deleted recently.
    #[serde(default)]
    pub(crate) deleted: Window,
    /// The nodes that are gone and hold their blocks, those that went last.
    #[serde(default)]
    pub(crate) held: Vec<HeldBlocks>,
    /// The cluster CIDRs.
    #[serde(default)]
    pub(crate) networks: Vec<IpNet>,
    /// Since when blocks have had their sizes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sizes: Option<BlockSizes>,
}

impl handover::Shorten for Left {
    fn shorten(&mut self) -> bool {
        if self.deleted.sum_up() {
            return true;
        }
        // The next leader frees a block a little earlier if the route is gone by then.
        let half = self.held.len() / 2;
        self.held.truncate(half);
        half > 0
    }
}

/// All parts of the data.
pub(crate) type Handover = handover::Handover<Left>;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ccm_base::At;
    use ccm_runtime::leadership::Leadership;

    use super::*;

    #[test]
    fn all_parts_reach_the_next_leader() {
        let at = At(Duration::from_secs(7));
        let first = Leadership::for_a_term(Duration::from_secs(1));
        let (handover, found) = Handover::take_over(first.annotations());
        assert_eq!(found, Left::default());
        let deleted = Window::from_iter([(at, "10.0.1.0/24".into())]);
        handover.change(|left| left.deleted.clone_from(&deleted));
        let held = vec![HeldBlocks {
            uid: "u".into(),
            cidrs: vec!["10.0.1.0/24".parse().expect("a network")],
            since: at,
        }];
        handover.change(|left| left.held.clone_from(&held));
        let networks: Vec<IpNet> = vec!["10.0.0.0/16".parse().expect("a network")];
        handover.change(|left| left.networks.clone_from(&networks));
        let config = crate::networks::Config::default();
        let sizes = Some(config.sizes(None, at));
        handover.change(|left| left.sizes = sizes);
        let next = Leadership::for_a_term(Duration::from_secs(1)).after(&first);
        let (_, found) = Handover::take_over(next.annotations());
        assert_eq!(found, Left { deleted, held, networks, sizes });
    }
}
