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
        event::Written,
    },
    plan::Step,
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
