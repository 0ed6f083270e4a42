//! Providers that start, stop and change.

use std::{sync::Arc, time::Duration};

use ccm_cloud::{Call, Claim, CloudError, Detail, ErrorKind, Lookup, NodeIdentity};
use ccm_sim::{
    cloud::{Operation, SimCloud, SimInstance},
    faults::{Fault, FaultEffect, Trouble},
};
use futures::StreamExt as _;
use tokio::time::Instant;

use crate::{
    calls::unwanted,
    place::{Place, Served, Stub, call, instances, skip, until},
};

#[tokio::test]
async fn a_provider_that_is_down_at_start_is_waited_for() {
    let place = Place::new();
    place.configure(&place.socket("s"));
    let cloud = place.client().await.expect("building makes no call");
    until("the first failure is known", || {
        cloud.instances().err().filter(|error| error.message.contains("yet:"))
    })
    .await;
    let error = cloud.instances().err().unwrap();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(error.message.contains(&place.socket("s")), "{error}");
    assert_eq!(
        cloud.claim(Some("sim://x")),
        Claim::Foreign,
        "nothing is ours until the provider says so"
    );
    let error = cloud.health(call()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(error.message.contains("No such file"), "{error}");

    let sim = SimCloud::new();
    sim.add_many(0, 1);
    let _served = Served::start(sim.clone(), &place.socket("s"), None).await;
    assert_eq!(cloud.health(call()).await, Ok(()), "health finds out at once");
    assert_eq!(cloud.claim(Some("sim://x")), Claim::Ours);
    assert_eq!(instances(&cloud).await.list(call()).await.unwrap().instances.len(), 1);
}

#[tokio::test]
async fn a_late_provider_is_discovered_in_the_background() {
    let place = Place::new();
    place.configure(&place.socket("s"));
    let cloud = place.client().await.unwrap();
    until("a failure", || cloud.instances().err().filter(|error| error.message.contains("yet:")))
        .await;
    let _served = Served::start(SimCloud::new(), &place.socket("s"), None).await;
    until("found", || cloud.instances().ok()).await;
}

#[tokio::test]
async fn a_crash_fails_calls_at_once_and_a_restart_heals() {
    let place = Place::new();
    place.configure(&place.socket("s"));
    let sim = SimCloud::new();
    sim.add_many(0, 3);
    let served = Served::start(sim.clone(), &place.socket("s"), None).await;
    let cloud = place.client().await.unwrap();
    let instances = instances(&cloud).await;

    let hang = sim.faults().add(Fault::new(FaultEffect::Hang).on(Operation::Lookup));
    let node = [NodeIdentity::named("node-00001")];
    let started = Instant::now();
    let (answers, ()) = tokio::join!(instances.lookup(&node, Detail::Everything, call()), async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        served.crash().await;
    });
    assert_eq!(answers[0].as_ref().unwrap_err().kind, ErrorKind::Unavailable, "{answers:?}");
    assert!(
        started.elapsed() < Duration::from_secs(8),
        "the crash ends the call, not its deadline"
    );
    assert_eq!(instances.list(call()).await.unwrap_err().kind, ErrorKind::Unavailable);
    assert_eq!(cloud.claim(Some("sim://x")), Claim::Ours, "what was known stays known");
    let unwanted = [unwanted("web")];
    let balancers = cloud.load_balancers().unwrap().unwrap();
    let (_, answer) = balancers.delete(&unwanted, call()).next().await.unwrap();
    let error = answer.unwrap_err();
    assert!(!error.maybe_done, "a refused connection carries no call: {error}");

    sim.faults().remove(hang);
    let _served = Served::start(sim.clone(), &place.socket("s"), None).await;
    let answers = instances.lookup(&node, Detail::Everything, call()).await;
    assert_eq!(answers, [Ok(Lookup::Found(Box::new(SimInstance::numbered(1).describe())))]);
}

#[tokio::test]
async fn a_stop_finishes_calls_and_accepts_no_connections() {
    let place = Place::new();
    place.configure(&place.socket("s"));
    let sim = SimCloud::new();
    sim.add_many(0, 1);
    let served = Served::start(sim.clone(), &place.socket("s"), None).await;
    let cloud = place.client().await.unwrap();
    let instances = instances(&cloud).await;
    sim.faults().add(Fault::new(FaultEffect::Latency(Duration::from_millis(300))).times(1));
    let (list, ()) = tokio::join!(instances.list(call()), async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        served.stop().await;
    });
    assert_eq!(list.unwrap().instances.len(), 1, "the call under way ended well");
    assert!(!place.path("s").exists(), "the socket file is removed");
    assert_eq!(instances.list(call()).await.unwrap_err().kind, ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_replaced_provider_is_noticed_with_the_new_connection() {
    let place = Place::new();
    place.configure(&place.socket("s"));
    let served = Served::start(SimCloud::new(), &place.socket("s"), None).await;
    let cloud = place.client().await.unwrap();
    let old = instances(&cloud).await;
    served.crash().await;
    let _served = Served::start(Stub::offering("other", Ok(None)), &place.socket("s"), None).await;
    // The next calls open the new connection.
    let mut answer = old.list(call()).await;
    for _ in 0..100 {
        if answer.as_ref().is_err_and(|error| error.kind == ErrorKind::Unsupported) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        answer = old.list(call()).await;
    }
    assert_eq!(answer.unwrap_err().kind, ErrorKind::Unsupported);
    until("the new schemes are known", || (cloud.schemes() == ["other"]).then_some(())).await;
    assert!(matches!(cloud.instances(), Ok(None)), "it offers no instances");
    assert_eq!(cloud.claim(Some("sim://x")), Claim::Foreign);
}

#[tokio::test]
async fn a_change_without_a_new_connection_is_noticed_within_a_minute() {
    let place = Place::new();
    place.configure(&place.socket("s"));
    let stub = Stub::offering("stub", Ok(None));
    let _served = Served::start(stub.clone(), &place.socket("s"), None).await;
    let cloud = place.client().await.unwrap();
    until("known", || cloud.instances().ok()).await;
    *stub.instances.lock() = Some(Ok(Some(Arc::new(SimCloud::new()))));
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert!(matches!(cloud.instances(), Ok(None)), "not asked all the time");
    skip(Duration::from_secs(67)).await;
    until("instances are offered now", || cloud.instances().ok().flatten()).await;
}

#[tokio::test]
async fn a_provider_that_is_still_discovering_is_not_ready() {
    let place = Place::new();
    place.configure(&place.socket("s"));
    let discovering = CloudError::new(ErrorKind::Unauthorized, "no token yet");
    let stub = Stub::offering("stub", Err(discovering));
    let _served = Served::start(stub.clone(), &place.socket("s"), None).await;
    let cloud = place.client().await.unwrap();
    let error = until("the reason is known", || {
        cloud.instances().err().filter(|error| error.message.contains("yet:"))
    })
    .await;
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(error.message.contains("unauthorized: no token yet"), "{error}");
    *stub.instances.lock() = Some(Ok(Some(Arc::new(SimCloud::new()))));
    instances(&cloud).await;
    assert_eq!(cloud.schemes(), ["stub"]);
}

#[tokio::test]
async fn every_call_passes_the_gate() {
    let place = Place::new();
    place.configure(&place.socket("s"));
    let sim = SimCloud::new();
    let known = sim.add_many(0, 1001);
    let _served = Served::start(sim.clone(), &place.socket("s"), None).await;
    let cloud = place.client().await.unwrap();
    let instances = instances(&cloud).await;
    place.gate.take();
    place.gate.admitted.lock().clear();
    sim.reset_calls();

    let nodes: Vec<_> = known.iter().map(|instance| NodeIdentity::named(&instance.name)).collect();
    instances.lookup(&nodes, Detail::Everything, Call::routine(Duration::from_secs(10))).await;
    instances.list(call()).await.unwrap();
    cloud.health(call()).await.unwrap();
    let wait = Duration::from_secs(9);
    sim.faults().add(Fault::new(FaultEffect::Throttle { retry_after: Some(wait) }).times(1));
    instances.list(call()).await.unwrap_err();

    let reported = place.gate.take();
    let count = |name: &str| reported.iter().filter(|(operation, _)| *operation == name).count();
    assert_eq!((count("lookup_instances"), count("list_instances"), count("health")), (3, 4, 1));
    assert_eq!(reported.len(), 8);
    let (_, last) = reported.last().unwrap();
    assert_eq!((last.error, last.retry_after), (Some(ErrorKind::Throttled), Some(wait)));
    assert!(reported.iter().take(7).all(|(_, report)| report.error.is_none()));
    let admitted = std::mem::take(&mut *place.gate.admitted.lock());
    assert_eq!(admitted.len(), 8, "each is admitted once: {admitted:?}");
    assert!(admitted.iter().all(|(class, admitted)| class.service == "external"
        && !class.write
        && admitted.timeout <= call().timeout));
    let calls = sim.reset_calls();
    assert_eq!(
        (calls.lookup, calls.list, calls.health),
        (3, 4, 1),
        "the gate counts what the cloud counts"
    );

    // A cloud may also throttle when the call succeeds and only the results for nodes report it.
    sim.faults().add(Fault::new(FaultEffect::Throttle { retry_after: Some(wait) }).times(1));
    instances.lookup(&nodes[..2], Detail::Everything, call()).await;
    let reported = place.gate.take();
    let [(_, report)] = reported.as_slice() else { panic!("{reported:?}") };
    assert_eq!((report.error, report.retry_after), (Some(ErrorKind::Throttled), Some(wait)));
    sim.reset_calls();

    // A call that the gate refuses is not sent.
    let refusal = CloudError::new(ErrorKind::Throttled, "budget used up").with_retry_after(wait);
    *place.gate.refuse.lock() = Some(refusal.clone());
    assert_eq!(instances.list(call()).await, Err(refusal.clone()));
    assert_eq!(
        instances.lookup(&nodes[..2], Detail::Everything, call()).await,
        [Err(refusal.clone()), Err(refusal)]
    );
    assert_eq!(sim.calls().total(), 0);
    assert_eq!(place.gate.take().len(), 0, "what was not sent is not reported");
}

/// The client counts the errors of single items. An error of the whole cloud is the call's error.
#[tokio::test]
async fn each_item_is_reported_and_what_concerns_the_cloud_fails_the_call() {
    use ErrorKind::{Forbidden, QuotaExceeded, Unauthorized};
    let place = Place::new();
    place.configure(&place.socket("s"));
    let sim = SimCloud::new();
    let _served = Served::start(sim.clone(), &place.socket("s"), None).await;
    let cloud = place.client().await.unwrap();
    instances(&cloud).await;
    let balancers = cloud.load_balancers().unwrap().unwrap();
    for (kind, failing, of, expect) in [
        (Unauthorized, 1, 2, None),
        (Unauthorized, 2, 2, Some(Unauthorized)),
        (Unauthorized, 1, 1, Some(Unauthorized)),
        (Forbidden, 1, 1, None),
        (Forbidden, 2, 2, Some(Forbidden)),
        (QuotaExceeded, 2, 2, None),
    ] {
        let names = ["a", "b"];
        let failing_names: Vec<_> =
            names.iter().take(failing).map(|name| format!("default/{name}")).collect();
        let trouble = Trouble::Fail(CloudError::new(kind, "no"));
        sim.faults().add(Fault::new(FaultEffect::LoadBalancers(failing_names, trouble)));
        let all: Vec<_> = names.iter().take(of).map(|name| unwanted(name)).collect();
        place.gate.take();
        place.gate.items.lock().clear();
        let answers: Vec<_> = balancers.delete(&all, call()).collect().await;
        assert_eq!(answers.iter().filter(|(_, one)| one.is_err()).count(), failing);
        let reported = place.gate.take();
        let [(_, report)] = reported.as_slice() else { panic!("{reported:?}") };
        let case = format!("{failing} of {of} are {kind}");
        assert_eq!(report.error, expect, "{case}");
        let items = std::mem::take(&mut *place.gate.items.lock());
        let failed = items.iter().filter(|one| **one == Some(kind)).count();
        assert_eq!((items.len(), failed), (of, failing), "{case}");
        sim.faults().clear();
    }
}

/// The socket may lead to another process, with the credentials of another project.
#[tokio::test]
async fn a_new_connection_says_first_which_cloud_it_leads_to() {
    let place = Place::new();
    place.configure(&place.socket("s"));
    let sim = SimCloud::new();
    let served = Served::start(sim.clone(), &place.socket("s"), None).await;
    let cloud = place.client().await.unwrap();
    assert_eq!(cloud.identity(), None, "not described yet");
    let instances = instances(&cloud).await;
    assert_eq!(cloud.identity(), sim.identity(), "known before instances are offered");

    served.crash().await;
    let other = SimCloud::new();
    other.set_identity(Some(" another\nproject "));
    let _served = Served::start(other.clone(), &place.socket("s"), None).await;
    while instances.list(call()).await.is_err() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_ne!(cloud.identity(), sim.identity(), "with the first answer");
    until("described again", || cloud.identity()).await;
    assert_eq!(cloud.identity().as_deref(), Some("another project"), "in one line");
}
