//! Errors, lost answers, and answers that never come.

use std::time::Duration;

use ccm_cloud::{Call, CloudError, ErrorKind, Progress};
use ccm_sim::faults::{Effect, Fault, Trouble};
use futures::StreamExt as _;
use tokio::time::Instant;

use super::world::{members, unwanted, wanted};
use crate::{
    rig::{Rig, Way},
    suite::call,
};

pub async fn lost_answers_say_that_they_may_be_done(way: Way) {
    let rig = Rig::new(way).await;
    let lost = rig.trouble(&["web"], Trouble::LoseAnswer);
    assert!(rig.ensure(&wanted("web")).await.unwrap_err().maybe_done);
    let id = rig.only("web").id;
    let change = members(&[4], &[]);
    assert!(rig.set_members("web", &id, change).await.unwrap_err().maybe_done);
    assert_eq!(rig.nodes("web").len(), 4, "it was done");
    assert!(rig.delete(&unwanted("web", None)).await.unwrap_err().maybe_done);
    assert_eq!(rig.sim.balancers().all(), []);
    assert!(rig.sim.faults().remove(lost));
    // A call that is never answered, as a whole or for one item.
    let soon = || Call::waiting(Duration::from_millis(300));
    for item in [true, false] {
        let effect = match item {
            true => Effect::LoadBalancers(Vec::new(), Trouble::Hang),
            false => Effect::Hang,
        };
        let fault = rig.sim.faults().add(Fault::new(effect));
        let error = rig.ensure_all(&[wanted("web")], soon()).await.remove(0).unwrap_err();
        assert_eq!((error.kind, error.maybe_done), (ErrorKind::Timeout, true));
        let (balancers, wanted) = (rig.balancers(), [wanted("web")]);
        let (_, answer) = balancers.preview(&wanted, soon()).next().await.unwrap();
        let error = answer.unwrap_err();
        assert_eq!((error.kind, error.maybe_done), (ErrorKind::Timeout, false), "it is a read");
        assert!(rig.sim.faults().remove(fault));
    }
    // A refusal changes nothing, and says so.
    rig.sim.faults().add(Fault::new(Effect::Throttle { retry_after: None }));
    let error = rig.ensure(&wanted("web")).await.unwrap_err();
    assert_eq!((error.kind, error.maybe_done), (ErrorKind::Throttled, false));
    assert_eq!(rig.sim.balancers().all(), []);
}

pub async fn an_item_affects_no_others(way: Way) {
    let rig = Rig::new(way).await;
    let names = ["a", "b", "c", "d", "e"];
    rig.trouble(&["b"], Trouble::Fail(CloudError::new(ErrorKind::Unavailable, "out of luck")));
    rig.trouble(&["d"], Trouble::Hang);
    let all = names.map(wanted);
    let (started, time) = (Instant::now(), Duration::from_secs(3));
    let balancers = rig.balancers();
    let mut answers = balancers.ensure(&all, Call::waiting(time));
    let mut seen = Vec::new();
    while let Some((item, answer)) = answers.next().await {
        let took = started.elapsed();
        match names[item] {
            "b" => assert_eq!(answer.unwrap_err().kind, ErrorKind::Unavailable),
            "d" => {
                let error = answer.unwrap_err();
                assert_eq!((error.kind, error.maybe_done), (ErrorKind::Timeout, true));
                assert!(took > time / 2, "{took:?}");
            }
            name => {
                assert!(matches!(answer, Ok(Progress::Done(_))), "{name}: {answer:?}");
                assert!(took < time / 2, "{name} waited {took:?}");
            }
        }
        seen.push(item);
    }
    seen.sort_unstable();
    assert_eq!(seen, [0, 1, 2, 3, 4]);
    assert_eq!(rig.sim.balancers().all().len(), 3);
}

pub async fn errors_of_items_arrive_whole(way: Way) {
    let rig = Rig::new(way).await;
    let id = rig.settle(&wanted("web")).await.id;
    rig.written();
    for kind in ErrorKind::ALL.iter().copied() {
        let bare = CloudError::new(kind, format!("the cloud's words about {kind}, ünïcödé"));
        let rich = bare
            .clone()
            .about("floatingip")
            .with_request_id("req-4711")
            .with_retry_after(Duration::from_millis(2500));
        let done = bare.clone().that_may_be_done();
        for error in [bare, rich, done] {
            let fault = rig.trouble(&["web"], Trouble::Fail(error.clone()));
            assert_eq!(rig.ensure(&wanted("web")).await, Err(error.clone()));
            assert_eq!(rig.preview(&wanted("web")).await, Err(error.clone()));
            let none = members(&[], &[]);
            assert_eq!(rig.set_members("web", &id, none).await, Err(error.clone()));
            assert_eq!(rig.delete(&unwanted("web", None)).await, Err(error.clone()));
            assert!(rig.sim.faults().remove(fault));
        }
    }
    assert_eq!(rig.written(), []);
    let all: Vec<_> = (0..3).map(|number| wanted(&format!("n{number}"))).collect();
    let refusal = CloudError::new(ErrorKind::Unavailable, "down");
    rig.sim.faults().add(Fault::new(Effect::Error(refusal.clone())).times(1));
    for answer in rig.ensure_all(&all, call()).await {
        assert_eq!(answer, Err(refusal.clone()), "an error of the whole call is each item's");
    }
}
