//! The page `/plan`: one entry per destination and per node whose condition changes.

use ccm_cloud::Cloud;
use ccm_controller::instances;
use ccm_objects::ObjectRef;
use ccm_runtime::plans::{Plans, Step};

use crate::routes::{
    machine::{Blocked, Effect, Page},
    plan::{condition::NETWORK_UNAVAILABLE, wanted::LeftOut},
};

/// The kind of the entries of a part of the page. The entry of the node itself shows the pod CIDRs that it gets.
const fn kind(page: Page) -> &'static str {
    match page {
        Page::Routes => "Route",
        Page::Conditions => "NodeCondition",
        Page::Blocked => "NodeRoutes",
    }
}

fn object(page: Page, name: String) -> ObjectRef {
    ObjectRef { kind: kind(page), name, ..ObjectRef::default() }
}

/// Shows an entry, or removes one.
pub(super) fn show(plans: &Plans, cloud: &dyn Cloud, effect: Effect) {
    match effect {
        Effect::ShowRoute(planned) => {
            let step = Step {
                step: planned.kind(),
                changes: vec![planned.words()],
                held: planned.held.as_ref().map(ToString::to_string),
                reason: planned.why,
            };
            let name = planned.change.destination().to_string();
            plans.set(&object(Page::Routes, name), vec![step]);
        }
        Effect::ShowCondition(name, wanted) => {
            let step = Step {
                step: "condition",
                changes: vec![format!("{NETWORK_UNAVAILABLE}={}", wanted.status.as_str())],
                reason: wanted.message,
                held: None,
            };
            plans.set(&object(Page::Conditions, name.to_string()), vec![step]);
        }
        Effect::ShowBlocked(name, why) => {
            let why = match why {
                Blocked::LeftOut(node, left_out) => {
                    instances::why_left_out(cloud, &node, left_out != LeftOut::NotSelected)
                }
                Blocked::Because(why) => why,
            };
            plans.block(&object(Page::Blocked, name.to_string()), &why);
        }
        Effect::Hide(page, name) => plans.clear(kind(page), &name),
        _ => {}
    }
}
