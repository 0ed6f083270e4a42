//! A load balancer that only a new one can follow.

use std::sync::Arc;

use ccm_cloud::{Cure, Loss, OpenGate, Progress, Wanted};
use ccm_sim::cloud::{
    SimCloud,
    balancers::{State, WriteKind},
};

use super::world::{changed, wanted};
use crate::rig::{Rig, Way};

/// A load balancer, and a Service that has it and must keep it.
async fn kept(rig: &Rig) -> (String, Wanted) {
    let id = rig.settle(&wanted("web")).await.id;
    rig.written();
    let keep = Wanted { known: Some(id.clone()), may_replace: false, ..wanted("web") };
    (id, keep)
}

fn fail(rig: &Rig, id: &str) {
    let state = State::Failed { why: "ERROR".to_owned(), cure: Cure::Ensure };
    rig.sim.balancers().update(id, |balancer| balancer.state = state);
}

pub async fn asks_before_it_replaces(way: Way) {
    let rig = Rig::new(way).await;
    assert!(rig.balancers().traits().asks_before_replacing);
    let (id, keep) = kept(&rig).await;
    // What exists is brought up to date as ever.
    let more = changed(&keep, |front_end| front_end.ports.truncate(1));
    assert_eq!(rig.settle(&more).await.id, id);
    rig.written();
    for is_gone in [false, true] {
        match is_gone {
            true => drop(rig.sim.balancers().remove(&id)),
            false => fail(&rig, &id),
        }
        for _ in 0..2 {
            let Ok(Progress::Lost(loss)) = rig.ensure(&more).await else { panic!("not lost") };
            let Loss { why, is_gone: gone } = loss;
            assert_eq!(gone, is_gone, "{why}");
            assert!(why.contains(&id) && why.contains(if is_gone { "404" } else { "ERROR" }));
            assert_eq!(rig.preview(&more).await, Ok(Vec::new()));
        }
        assert_eq!(rig.written(), []);
    }
    // A Service without a load balancer gets one, and so does a Service that may have another one.
    let new = Wanted { may_replace: false, ..wanted("new") };
    rig.settle(&new).await;
    let again = rig.settle(&Wanted { may_replace: true, ..more.clone() }).await;
    assert_ne!(again.id, id);
    assert_eq!(rig.sim.balancers().written(WriteKind::Create), 2);
    // The existing one is the owner's, whatever the Service says.
    assert_eq!(rig.settle(&more).await.id, again.id);
}

/// An older one: the controller calls it only if it may replace.
pub async fn a_provider_that_does_not_ask_replaces(way: Way) {
    let sim = SimCloud::new();
    sim.balancers().configure(|settings| settings.traits.asks_before_replacing = false);
    let rig = Rig::of(sim, way, Arc::new(OpenGate)).await;
    let (id, keep) = kept(&rig).await;
    assert!(!rig.balancers().traits().asks_before_replacing);
    rig.sim.balancers().remove(&id);
    assert_ne!(rig.settle(&keep).await.id, id);
}
