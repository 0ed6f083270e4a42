//! Helpers of the tests, and random histories.

mod answers;
mod histories;

use ccm_controller::brake::{Budget, Limit};
use ccm_kube::selector::NodeSelector;

use super::*;
use crate::plan::{Classes, shown};

/// Returns a machine that has heard of nothing.
pub(super) fn machine() -> Machine {
    let cluster = ClusterId { name: "c".to_owned(), uid: "uid-c".to_owned() };
    let parameters = Parameters {
        classes: Classes { classless: true, ..Classes::default() },
        budget: Budget { limit: Limit::Percent(10), window: Duration::from_hours(6) },
        shown: shown::ShownRules::default(),
        scale_down_taints: Vec::new(),
        foreign_nodes: false,
        node_selector: NodeSelector::default(),
        member_update_interval: Duration::from_secs(10),
        adopts: false,
        most_per_namespace: 0,
        look_period: Duration::from_hours(24),
        call_timeout: Duration::from_secs(30),
    };
    Machine::new(cluster, parameters, false)
}
