//! Errors, lost answers, defects, and answers that never come.

use std::time::Duration;

use ccm_cloud::{Call, CloudError, Cure, ErrorKind, RouteTarget};
use ccm_sim::{
    cloud::routes::{Defect, RouteWriteKind},
    faults::{Effect, Fault, Trouble},
};
use futures::StreamExt as _;
use tokio::time::Instant;

use super::world::{cluster, create, delete, hop, kinds, net};
use crate::{
    rig::{Rig, Way},
    suite::call,
};

pub async fn a_lost_answer_may_be_done(way: Way) {
    let rig = Rig::new(way).await;
    let lost = rig.route_trouble(1, Trouble::LoseAnswer);
    let error = rig.one(create(1)).await.unwrap_err();
    assert!(error.maybe_done, "{error}");
    assert_eq!(rig.sim.router().len(), 1, "it was done");
    rig.sim.faults().remove(lost);
    let made = rig.made(create(1)).await;
    assert_eq!(rig.sim.router().written(RouteWriteKind::Create), 1, "it may be repeated");
    rig.route_trouble(1, Trouble::LoseAnswer);
    assert!(rig.one(delete(&made)).await.unwrap_err().maybe_done);
    assert!(rig.sim.router().is_empty());
    rig.sim.faults().clear();

    let after = Duration::from_secs(2);
    let late = rig.route_trouble(2, Trouble::Late(after));
    let error = rig.one(create(2)).await.unwrap_err();
    assert!(error.maybe_done && rig.sim.router().is_empty(), "{error}");
    tokio::time::sleep(after).await;
    assert_eq!(rig.sim.router().len(), 1, "a process that was frozen");
    rig.sim.faults().remove(late);

    // A call that is never answered, as a whole or for one route.
    let soon = || Call::waiting(Duration::from_millis(300));
    for effect in [Effect::Routes(Vec::new(), Trouble::Hang), Effect::Hang] {
        let fault = rig.sim.faults().add(Fault::new(effect));
        let error = rig.apply_in(&[create(3)], None, soon()).await.remove(0).unwrap_err();
        assert_eq!((error.kind, error.maybe_done), (ErrorKind::Timeout, true));
        rig.sim.faults().remove(fault);
    }
    // A refusal changes nothing, and says so.
    rig.sim.faults().add(Fault::new(Effect::Throttle { retry_after: None }));
    let error = rig.one(create(3)).await.unwrap_err();
    assert_eq!((error.kind, error.maybe_done), (ErrorKind::Throttled, false));
    let error = rig.routes().list(&cluster(), call()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Throttled);
}

pub async fn a_route_affects_no_others(way: Way) {
    let rig = Rig::new(way).await;
    rig.route_trouble(2, Trouble::Fail(CloudError::new(ErrorKind::Unavailable, "out of luck")));
    rig.route_trouble(4, Trouble::Hang);
    let all = [1, 2, 3, 4, 5].map(create);
    let (started, time) = (Instant::now(), Duration::from_secs(3));
    let (routes, cluster) = (rig.routes(), cluster());
    let mut answers = routes.apply(&cluster, &all, None, Call::waiting(time));
    let mut seen = Vec::new();
    while let Some((place, answer)) = answers.next().await {
        let took = started.elapsed();
        match place {
            1 => assert_eq!(answer.unwrap_err().kind, ErrorKind::Unavailable),
            3 => {
                let error = answer.unwrap_err();
                assert_eq!((error.kind, error.maybe_done), (ErrorKind::Timeout, true));
                assert!(took > time / 2, "{took:?}");
            }
            _ => {
                assert_eq!(answer.unwrap().route.unwrap().destination, all[place].destination());
                assert!(took < time / 2, "{place} waited {took:?}");
            }
        }
        seen.push(place);
    }
    seen.sort_unstable();
    assert_eq!(seen, [0, 1, 2, 3, 4]);
    let there: Vec<_> = rig.sim.router().all().iter().map(|it| it.destination).collect();
    assert_eq!(there, [1, 3, 5].map(net));
}

pub async fn errors_about_routes_arrive_whole(way: Way) {
    let rig = Rig::new(way).await;
    for kind in ErrorKind::ALL {
        let error = CloudError::new(*kind, format!("words about {kind}"))
            .about("routes")
            .with_request_id("req-7")
            .with_retry_after(Duration::from_secs(7))
            .that_may_be_done();
        let fault = rig.route_trouble(1, Trouble::Fail(error.clone()));
        assert_eq!(rig.one(create(1)).await.unwrap_err(), error);
        rig.sim.faults().remove(fault);
        let fault = rig.sim.faults().add(Fault::new(Effect::Error(error.clone())));
        assert_eq!(rig.one(create(1)).await.unwrap_err(), error);
        assert_eq!(rig.routes().list(&cluster(), call()).await.unwrap_err().kind, *kind);
        rig.sim.faults().remove(fault);
    }
    assert!(rig.sim.router().is_empty());
}

/// A route that carries no traffic is listed with its defect.
pub async fn defects_are_shown_and_repaired(way: Way) {
    let rig = Rig::new(way).await;
    let broken = rig.route_trouble(1, Trouble::Break(Cure::Ensure));
    let made = rig.made(create(1)).await;
    let why = "the port of 10.0.0.1 does not allow 10.244.1.0/24";
    assert_eq!(made.defect.as_deref(), Some(why));
    assert_eq!(rig.table().await.routes, [made]);
    rig.sim.faults().remove(broken);
    assert_eq!(rig.made(create(1)).await.defect, None);
    assert_eq!(rig.route_writes(), [RouteWriteKind::Create, RouteWriteKind::Repair]);
    // A person has to repair this one: a creation succeeds and changes nothing.
    rig.sim.router().update(net(1), |route| {
        route.defect = Some(Defect { why: why.to_owned(), cure: Cure::Person, until: None });
    });
    assert_eq!(rig.made(create(1)).await.defect.as_deref(), Some(why));
    assert!(rig.route_writes().is_empty());
    rig.one(delete(&rig.table().await.routes[0])).await.expect("a defect does not prevent it");
    // No call waits for the cloud.
    let create_time = Duration::from_secs(2);
    rig.sim.router().configure(|it| it.create = create_time);
    let started = Instant::now();
    let made = rig.made(create(2)).await;
    assert!(made.defect.is_some_and(|why| why.contains("still making")));
    assert!(started.elapsed() < create_time, "{:?}", started.elapsed());
    tokio::time::sleep(create_time).await;
    assert_eq!(rig.table().await.routes[0].defect, None);
}

/// A person changes the table between the controller's look and its change.
pub async fn an_overtaken_change_is_busy(way: Way) {
    let rig = Rig::new(way).await;
    let seen = rig.made(create(1)).await;
    rig.route_trouble(1, Trouble::Overtake);
    rig.route_trouble(2, Trouble::Overtake);
    let answers = rig.apply(&[delete(&seen), create(2), create(3)]).await;
    assert_eq!(kinds(answers), [Some(ErrorKind::Busy), Some(ErrorKind::Conflict), None]);
    let stranger = RouteTarget::Address([192, 0, 2, 1].into());
    let targets: Vec<_> = rig.table().await.routes.into_iter().map(|it| it.target).collect();
    assert_eq!(targets, [Some(stranger.clone()), Some(stranger), Some(hop(3))]);
}
