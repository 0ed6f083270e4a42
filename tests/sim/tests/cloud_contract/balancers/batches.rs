//! The items that a call may consist of.

use std::sync::Arc;

use ccm_cloud::{CloudError, ErrorKind, MemberChange, OpenGate, Progress, Unwanted};
use ccm_sim::cloud::SimCloud;

use super::world::{changed, gather, members, namesake, owner, unwanted, wanted, with};
use crate::{
    rig::{Rig, Way},
    suite::call,
};

/// True for each item that was carried out. The others must be refused for their owner.
fn done<T>(answers: Vec<Result<T, CloudError>>) -> Vec<bool> {
    let each = answers.into_iter().map(|answer| match answer {
        Ok(_) => true,
        Err(error) => {
            let (kind, about) = (error.kind, error.subject.as_deref());
            assert_eq!((kind, about), (ErrorKind::Invalid, Some("owner")), "{error}");
            assert!(!error.maybe_done, "{error}");
            false
        }
    });
    each.collect()
}

/// The order of two items of one owner would decide.
pub async fn an_owner_has_one_item_in_a_call(way: Way) {
    let rig = Rig::new(way).await;
    let web = wanted("web");
    let elsewhere = changed(&web, |front_end| front_end.owner = namesake("web"));
    let other = changed(&web, |front_end| front_end.ports.truncate(1));
    let all = [web.clone(), other, wanted("api"), web, elsewhere];
    assert_eq!(done(rig.ensure_all(&all, call()).await), [true, false, true, false, true]);
    assert_eq!(rig.only("web").configuration.listeners.len(), 2, "the first one counts");

    let id = rig.only("web").id;
    let change = |number| MemberChange {
        owner: owner("web"),
        id: id.clone(),
        members: members(&[number], &[1, 2, 3, 4, 5]),
        front_end: None,
        settings: std::collections::BTreeMap::new(),
    };
    let changes = [change(4), change(5)];
    let answers = gather(rig.balancers().set_members(&changes, call()), 2).await;
    assert_eq!(done(answers), [true, false]);
    assert_eq!(rig.nodes("web"), ["node-4"]);

    // A preview changes nothing, so each has its answer.
    let answers = gather(rig.balancers().preview(&all, call()), all.len()).await;
    assert_eq!(done(answers), [true; 5]);
    // A duplicate and the whole are two items of one owner, too.
    let duplicate = Unwanted { duplicate: true, ..unwanted("web", Some(&id)) };
    let both = [unwanted("web", None), duplicate];
    let answers = gather(rig.balancers().delete(&both, call()), 2).await;
    assert_eq!(done(answers), [true, false]);
}

/// The parts of a large call are sent at the same time: no part sees the items of another one.
#[tokio::test]
async fn an_owner_has_one_item_in_all_parts_of_a_call() {
    let sim = SimCloud::new();
    sim.balancers().configure(|settings| settings.traits.max_batch = 1);
    let rig = Rig::of(sim, Way::Unix, Arc::new(OpenGate)).await;
    let all = ["web", "api", "web", "db", "api"].map(wanted);
    rig.sim.reset_calls();
    assert_eq!(done(rig.ensure_all(&all, call()).await), [true, true, false, true, false]);
    assert_eq!(rig.sim.reset_calls().load_balancers.items, 3);
    assert_eq!(rig.sim.balancers().all().len(), 3);
}

pub async fn what_a_provider_writes_is_no_configuration(way: Way) {
    let rig = Rig::new(way).await;
    let traits = rig.balancers().traits();
    assert_eq!(traits.own_annotations, ["sim/load-balancer-id"]);
    assert_eq!(traits.id_annotation.as_deref(), Some("sim/load-balancer-id"));
    let web = wanted("web");
    let written = rig.settle(&web).await.annotations;
    assert!(written.contains_key("sim/load-balancer-id"), "{written:?}");
    for key in written.keys() {
        assert!(!traits.configures(key), "{key}");
        let with_it = with(&web, key, "x");
        assert_eq!(rig.ensure(&with_it).await.unwrap_err().kind, ErrorKind::Invalid, "{key}");
    }
    // A key is not the beginning of other keys.
    let longer = with(&web, "sim/load-balancer-id-format", "short");
    assert!(matches!(rig.ensure(&longer).await, Ok(Progress::Done(_) | Progress::InProgress(_))));
}
