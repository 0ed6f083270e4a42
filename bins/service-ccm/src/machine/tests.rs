//! Helpers of the tests, and random histories.

mod answers;
mod due;
mod histories;
mod losses;

use ccm_cloud::NodeSelector as NodeLabels;
use ccm_controller::brake::{Budget, Limit};
use ccm_kube::selector::NodeSelector;
use ccm_objects::Service;

use super::{effect::Lane, event::Due, *};
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

/// A machine of a leader that has compared a list.
fn leader() -> Machine {
    let mut machine = machine();
    machine.offered(Ok(offer("")), false);
    machine.leads = true;
    machine.balancers.list = crate::plan::List::Compared;
    machine
}

/// An offer of load balancers whose members have these labels by default.
fn offer(selector: &str) -> Offer {
    let selector = match selector {
        "" => NodeLabels::default(),
        labels => NodeLabels::parse(labels),
    };
    Offer { traits: LoadBalancerTraits::default(), selector }
}

/// This Service is due.
fn due(machine: &Machine, service: Service) -> Due {
    Due {
        lane: Lane::Normal,
        name: service.key.clone(),
        service: Some(Arc::new(service)),
        selector: NodeLabels::default(),
        is_default: true,
        is_read: true,
        changes: machine.changes(),
        is_same_cloud: true,
        neighbours: Vec::new(),
        may_call: true,
    }
}
