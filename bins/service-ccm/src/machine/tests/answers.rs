//! Answers to writes and calls.

use std::sync::Arc;

use ccm_base::{At, RetryClass};
use ccm_kube::ApiError;
use ccm_objects::Service;

use super::machine;
use crate::{
    machine::{
        Machine,
        effect::{Effect, Lane, Tell, Turn},
        entry::Asked,
        event::Written,
    },
    plan::{CallKind, Inputs, Step, members::Decision},
};

fn service() -> Arc<Service> {
    Arc::new(Service { key: "shop/web".into(), uid: "uid-1".into(), ..Service::default() })
}

fn written(machine: &mut Machine, answer: Result<Arc<Service>, Option<ApiError>>) -> Vec<Effect> {
    let written = Written { lane: Lane::Normal, service: service(), step: Step::Protect, answer };
    machine.written(&written, At::default())
}

#[test]
fn many_conflicts_in_a_row_are_a_failure_that_is_told() {
    let mut machine = machine();
    for _ in 0..2 {
        for _ in 0..8 {
            let effects = written(&mut machine, Err(Some(ApiError::Conflict)));
            let [Effect::Queue(_, Lane::Normal, Turn::After(..))] = effects[..] else {
                panic!("{effects:?}")
            };
        }
        let effects = written(&mut machine, Err(Some(ApiError::Conflict)));
        let failed = Turn::Failed(RetryClass::Retry);
        let [Effect::Queue(_, Lane::Normal, turn), Effect::Tell(_, tell)] = &effects[..] else {
            panic!("{effects:?}")
        };
        assert_eq!(*turn, failed);
        assert!(matches!(tell, Tell::NotWritten { what: "protect", .. }), "{tell:?}");
        // A write ends the row.
        written(&mut machine, Ok(service()));
    }
}

#[test]
fn each_lane_has_the_answer_to_its_own_call() {
    for lanes in [[Lane::Normal, Lane::Slow], [Lane::Slow, Lane::Normal]] {
        let mut machine = machine();
        let entry = machine.balancers.entry(&service());
        for (lane, call) in [(Lane::Slow, CallKind::Ensure), (Lane::Normal, CallKind::Delete)] {
            entry.ask(lane, asked(call));
        }
        for lane in lanes {
            let (call, other) = match lane {
                Lane::Slow => (CallKind::Ensure, CallKind::Delete),
                Lane::Normal => (CallKind::Delete, CallKind::Ensure),
            };
            let taken = entry.take_asked(lane, call);
            assert_eq!(taken.map(|taken| taken.call), Some(call), "{lane:?}");
            assert!(entry.take_asked(lane, call).is_none(), "{lane:?} has it once");
            assert!(entry.take_asked(lane, other).is_none(), "{lane:?}");
        }
    }
}

fn asked(call: CallKind) -> Asked {
    Asked {
        service: service(),
        call,
        step: Step::Protect,
        members: Decision::default(),
        digest: None,
        sent: None,
        inputs: Inputs::default(),
        may_replace: false,
        began: At::default(),
    }
}
