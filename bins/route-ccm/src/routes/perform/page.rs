//! The page `/plan`: one entry per destination and per node whose condition changes.

use std::collections::BTreeSet;

use ccm_cloud::Cloud;
use ccm_controller::instances;
use ccm_objects::ObjectRef;
use ccm_runtime::plans::{Plans, Step};

use crate::routes::{
    machine::{Blocked, Page},
    plan::{condition::NETWORK_UNAVAILABLE, wanted::LeftOut},
};

/// Shows these entries, and no others of their kind. The entry of the node itself shows the pod CIDRs that it gets.
pub(super) fn show(plans: &Plans, cloud: &dyn Cloud, page: Page) {
    let mut shown = BTreeSet::new();
    let mut object = |kind, name: String| {
        shown.insert(name.clone());
        ObjectRef { kind, name, ..ObjectRef::default() }
    };
    let kind = match page {
        Page::Routes(changes) => {
            for planned in changes {
                let step = Step {
                    step: planned.kind(),
                    changes: vec![planned.words()],
                    held: planned.held.as_ref().map(ToString::to_string),
                    reason: planned.why,
                };
                let name = planned.change.destination().to_string();
                plans.set(&object("Route", name), vec![step]);
            }
            "Route"
        }
        Page::Conditions(due) => {
            for (name, wanted) in due {
                let step = Step {
                    step: "condition",
                    changes: vec![format!("{NETWORK_UNAVAILABLE}={}", wanted.status.as_str())],
                    reason: wanted.message,
                    held: None,
                };
                plans.set(&object("NodeCondition", name.to_string()), vec![step]);
            }
            "NodeCondition"
        }
        Page::Blocked(nodes) => {
            for (name, why) in nodes {
                let why = match why {
                    Blocked::LeftOut(node, left_out) => {
                        instances::why_left_out(cloud, &node, left_out != LeftOut::NotSelected)
                    }
                    Blocked::Because(why) => why,
                };
                plans.block(&object("NodeRoutes", name.to_string()), &why);
            }
            "NodeRoutes"
        }
    };
    plans.keep(kind, &shown);
}
