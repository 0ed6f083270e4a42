//! The policy for the taint of a node whose machine is shut down: pure.
//!
//! Because of the taint, the cluster can move volumes and pods away from a machine that is
//! certainly off. Upstream removes it only when the node is Ready again; lifecycle-ccm follows the
//! cloud, because a running machine may need its volumes to become Ready.

use ccm_cloud::PowerState;
use ccm_objects::{Taint, node_keys};
use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantNames};

/// The key of the taint; its effect is [`EFFECT`], and it has no value.
pub const KEY: &str = node_keys::SHUTDOWN;
/// The effect of the taint.
pub const EFFECT: &str = "NoSchedule";

/// When the taint is removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Removal {
    /// When the cloud says that the machine runs.
    #[default]
    Cloud,
    /// When the node is Ready, as upstream does.
    Ready,
}

/// The change of the taint.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr, VariantNames,
)]
#[strum(serialize_all = "snake_case")]
pub enum TaintStep {
    /// The node gets it.
    Add,
    /// The node loses it.
    Remove,
}

/// Decides from the node and, if it was looked up, from the state of its machine in the cloud.
pub(crate) fn plan(
    ready: bool,
    taints: &[Taint],
    power: Option<PowerState>,
    removal: Removal,
) -> Option<TaintStep> {
    let tainted = taints.iter().any(|taint| taint.is(KEY, EFFECT));
    match (tainted, ready, power) {
        (true, true, _) => Some(TaintStep::Remove),
        (true, false, Some(PowerState::Running)) if removal == Removal::Cloud => {
            Some(TaintStep::Remove)
        }
        (false, false, Some(PowerState::Stopped)) => Some(TaintStep::Add),
        _ => None,
    }
}

/// Returns the complete new list of taints.
pub(crate) fn apply(taints: &[Taint], step: TaintStep) -> Vec<Taint> {
    Taint::set(taints, KEY, EFFECT, step == TaintStep::Add)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taint(key: &str, effect: &str) -> Taint {
        Taint { key: key.into(), effect: effect.into(), ..Taint::default() }
    }

    #[test]
    fn the_taint_follows_the_machine() {
        use PowerState::{Changing, Running, Stopped, Unknown};
        let shutdown = [taint(KEY, EFFECT)];
        let check = |tainted: bool, ready, power, removal, expect| {
            let taints = if tainted { &shutdown[..] } else { &[] };
            assert_eq!(
                plan(ready, taints, power, removal),
                expect,
                "{tainted} {ready} {power:?} {removal:?}"
            );
        };
        let (add, remove) = (Some(TaintStep::Add), Some(TaintStep::Remove));
        for removal in [Removal::Cloud, Removal::Ready] {
            check(false, false, Some(Stopped), removal, add);
            check(true, false, Some(Stopped), removal, None);
            // A Ready node is never looked up, so the cloud's state is ignored.
            check(false, true, Some(Stopped), removal, None);
            check(true, true, Some(Stopped), removal, remove);
            check(true, true, None, removal, remove);
            for unclear in [Some(Changing), Some(Unknown), None] {
                check(true, false, unclear, removal, None);
                check(false, false, unclear, removal, None);
            }
        }
        check(true, false, Some(Running), Removal::Cloud, remove);
        check(true, false, Some(Running), Removal::Ready, None);
    }

    #[test]
    fn other_taints_stay_as_they_are() {
        let other = Taint { value: Some("x".into()), ..taint("other", "NoExecute") };
        let same_key = taint(KEY, "NoExecute");
        let before = [other.clone(), same_key.clone()];
        let tainted = apply(&before, TaintStep::Add);
        assert_eq!(tainted, [other.clone(), same_key.clone(), taint(KEY, EFFECT)]);
        assert_eq!(apply(&tainted, TaintStep::Add), tainted, "twice is once");
        assert_eq!(apply(&tainted, TaintStep::Remove), before);
        assert_eq!(
            plan(false, &before, Some(PowerState::Stopped), Removal::Cloud),
            Some(TaintStep::Add)
        );
    }
}
