//! The settings of a history.

use std::time::Duration;

use lifecycle_ccm::{
    machine::Parameters,
    policy::{Ghosts, Limit, Policy, Replaced, shutdown::Removal},
};

use super::{
    Sabotage,
    objects::{LEAVES, LEFT_OUT},
};
use crate::dice::Dice;

/// Draws the settings.
pub fn draw(dice: &mut Dice) -> (Policy, Removal) {
    let limits = [Limit::Percent(10), Limit::Count(1), Limit::Count(2), Limit::Percent(0)];
    let policy = Policy {
        budget: dice.pick(&limits).unwrap_or(Limit::Percent(10)),
        replaced: dice.pick(&[Replaced::Report, Replaced::Delete]).unwrap_or_default(),
        confirmation_period: Duration::from_secs(20),
        grace_period: Duration::from_mins(2),
        monitor_period: Duration::from_secs(5),
        budget_window: Duration::from_mins(dice.one_of(&[1, 3, 10])),
        shrink_threshold: 50,
        ghosts: if dice.percent(80) { Ghosts::Uninitialised } else { Ghosts::Never },
        evidence_age: Duration::from_secs(30),
    };
    (policy, dice.one_of(&[Removal::Cloud, Removal::Ready]))
}

fn without_rule(policy: &Policy, sabotage: Option<Sabotage>) -> Policy {
    let mut told = policy.clone();
    match sabotage {
        Some(Sabotage::Answers) => told.confirmation_period /= 3,
        Some(Sabotage::Confirmation) => told.confirmation_period = Duration::ZERO,
        Some(Sabotage::Grace) => told.grace_period = Duration::ZERO,
        Some(Sabotage::Breaker) => told.shrink_threshold = 100,
        Some(Sabotage::Ghosts) => told.ghosts = Ghosts::Uninitialised,
        Some(Sabotage::Late) => told.evidence_age *= 10,
        Some(Sabotage::Stingy) => told.budget = Limit::Count(0),
        Some(Sabotage::Budget) => told.budget = Limit::Count(u32::MAX),
        _ => {}
    }
    told
}

/// Returns the settings that the machine has.
pub fn told(policy: &Policy, removal: Removal, sabotage: Option<Sabotage>) -> Parameters {
    let selects_all = sabotage == Some(Sabotage::Selector);
    let selector = if selects_all { String::new() } else { format!("!{LEFT_OUT}") };
    let is_early = sabotage == Some(Sabotage::Removal);
    Parameters {
        policy: without_rule(policy, sabotage),
        node_selector: selector.parse().unwrap(),
        scale_down_taints: vec![LEAVES.to_owned()],
        shutdown_taint_removal: if is_early { Removal::Cloud } else { removal },
    }
}
