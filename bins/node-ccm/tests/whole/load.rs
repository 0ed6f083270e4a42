//! Many nodes at once: a slow cloud, one bad node, a change of the whole fleet.

use ccm_cloud::{CloudError, ErrorKind};
use tokio::time::Instant;

use super::*;

impl Whole {
    /// Waits until all of these nodes are initialised. Returns the time of each.
    async fn all_initialised(&self, names: &[String]) -> Vec<Duration> {
        let began = Instant::now();
        let (mut left, mut times): (Vec<_>, _) = (names.iter().collect(), Vec::new());
        while !left.is_empty() && began.elapsed() < Duration::from_mins(20) {
            sleep(Duration::from_millis(100)).await;
            left.retain(|name| self.is_tainted(name));
            times.resize(names.len() - left.len(), began.elapsed());
        }
        assert_eq!(left, [""; 0]);
        times
    }

    /// Returns the lookups that the controller made, by their number of nodes.
    fn lookups(&self) -> u64 {
        self.metric("ccm_node_lookup_batch_size_count ")
    }

    /// Adds initialised nodes that agree with their instances.
    async fn settled(&self, count: usize) -> Vec<String> {
        let names: Vec<_> = (0..count).map(|number| self.add_node(number)).collect();
        self.all_initialised(&names).await;
        sleep(Duration::from_millis(100)).await;
        names
    }

    /// Changes the instances of these nodes, and waits for the first write that follows.
    async fn change_fleet(&self, count: usize) {
        let before = self.writes().len();
        for number in 0..count {
            let id = SimInstance::numbered(number).id;
            self.cloud.update(&id, |instance| instance.zone = Some("elsewhere".to_owned()));
        }
        while self.writes().len() == before {
            sleep(Duration::from_millis(100)).await;
        }
    }

    fn zone(&self, name: &str) -> Option<String> {
        self.node(name)["metadata"]["labels"][ZONE].as_str().map(str::to_owned)
    }
}

/// The calls are as large as the cloud answers in time, for a cloud that answers each node at once and
/// for one that answers all nodes at the end of a call. The cloud alone takes 20 s.
#[tokio::test(start_paused = true)]
async fn a_cloud_that_works_node_by_node_gets_smaller_calls() {
    const NODES: usize = 400;
    for streams in [false, true] {
        let whole = Whole::start(&["--cloud-call-timeout=3s"]).await;
        let each = Duration::from_millis(50);
        let slow =
            whole.cloud.faults().add(faults::Fault::new(FaultEffect::OneByOne { each, streams }));
        let names: Vec<_> = (0..NODES).map(|number| whole.add_node(number)).collect();
        let took = *whole.all_initialised(&names).await.last().unwrap();
        eprintln!("{NODES} nodes, streams {streams}: {took:?}, {} calls", whole.lookups());
        assert!(took < Duration::from_secs(40), "streams {streams}: {took:?}");
        assert!(whole.metric("ccm_node_lookup_batch_limit ") < 30, "streams {streams}");
        let waited = names.iter().flat_map(|name| whole.events(name));
        let waited = waited.filter(|(reason, _)| reason == "WaitingForCloud").count();
        assert!(waited < NODES / 20, "{waited} nodes report that they wait");

        // A fast cloud gets large calls again.
        whole.cloud.faults().remove(slow);
        let before = whole.lookups();
        let more: Vec<_> = (NODES..NODES + 1000).map(|number| whole.add_node(number)).collect();
        whole.all_initialised(&more).await;
        assert!(whole.lookups() - before < 30, "{} calls", whole.lookups() - before);
        assert!(whole.metric("ccm_node_lookup_batch_limit ") > 200);
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_spoils_its_calls_delays_no_other_for_long() {
    for kind in [ErrorKind::Invalid, ErrorKind::Malformed] {
        let whole = Whole::start(&[]).await;
        let bad = SimInstance::numbered(123).name;
        let error = CloudError::new(kind, "what is this?");
        let effect = FaultEffect::FailCalls(vec![bad.clone()], error);
        whole.cloud.faults().add(faults::Fault::new(effect));
        let mut names: Vec<_> = (0..200).map(|number| whole.add_node(number)).collect();
        names.retain(|name| *name != bad);
        let took = *whole.all_initialised(&names).await.last().unwrap();
        assert!(took < Duration::from_secs(5), "{kind}: {took:?}");
        sleep(Duration::from_secs(5)).await;
        assert!(whole.lookups() < 60, "{kind}: {} calls", whole.lookups());
        let [(reason, message)] = whole.events(&bad).try_into().unwrap();
        assert!(reason == "WaitingForCloud" && message.contains("what is this?"), "{message}");
    }
}

/// A hanging cloud is reported for each node, and large calls come back with it.
#[tokio::test(start_paused = true)]
async fn a_cloud_that_hangs_is_reported_and_recovers() {
    let whole = Whole::start(&["--cloud-call-timeout=3s"]).await;
    let hang = whole.cloud.faults().add(faults::Fault::new(FaultEffect::Hang));
    let names: Vec<_> = (0..200).map(|number| whole.add_node(number)).collect();
    sleep(Duration::from_mins(1)).await;
    for name in &names {
        let reasons: Vec<_> = whole.events(name).into_iter().map(|(reason, _)| reason).collect();
        assert_eq!(reasons, ["WaitingForCloud"], "{name}");
    }
    sleep(Duration::from_mins(10)).await;
    whole.cloud.faults().remove(hang);
    let took = *whole.all_initialised(&names).await.last().unwrap();
    assert!(took < Duration::from_secs(70), "{took:?}");
}

/// A node that is created again under the same name is another object.
#[tokio::test(start_paused = true)]
async fn a_node_that_is_created_again_inherits_no_wait() {
    let pause = FaultEffect::Throttle { retry_after: Some(Duration::from_mins(5)) };
    for effect in [pause, FaultEffect::Unavailable] {
        let whole = Whole::start(&[]).await;
        let fault = whole.cloud.faults().add(faults::Fault::new(effect.clone()));
        let name = whole.add_node(0);
        sleep(Duration::from_mins(4)).await;
        whole.cloud.faults().remove(fault);
        whole.api.delete("nodes", &name).unwrap();
        sleep(Duration::from_millis(10)).await;
        whole.register(&name, None);
        let took = *whole.all_initialised(&[name]).await.last().unwrap();
        assert!(took < Duration::from_millis(500), "{effect:?}: {took:?}");
    }
}

/// The node does not wait either if its predecessor was deleted during a write that the API server
/// then refused for minutes.
#[tokio::test(start_paused = true)]
async fn a_node_that_is_created_again_inherits_no_refusal() {
    let whole = Whole::start(&[]).await;
    let pause = Action::Status { code: 429, retry_after: Some(300) };
    let delay = Action::Delay(Duration::from_secs(2));
    let faults: Vec<_> = [delay, pause]
        .map(|action| Fault::new(action).verb(Verb::Patch).resource("nodes"))
        .map(|fault| whole.api.faults().add(fault))
        .into();
    let name = whole.add_node(0);
    sleep(Duration::from_secs(1)).await;
    whole.api.delete("nodes", &name).unwrap();
    sleep(Duration::from_secs(4)).await;
    for fault in faults {
        whole.api.faults().remove(fault);
    }
    whole.register(&name, None);
    let took = *whole.all_initialised(&[name]).await.last().unwrap();
    assert!(took < Duration::from_secs(1), "{took:?}");
}

/// A change of the whole fleet is written at the rate of corrections. New nodes do not wait for
/// that. Neither do a node that is created again while its predecessor waits, and the drain.
#[tokio::test(start_paused = true)]
async fn corrections_of_the_whole_fleet_have_a_rate_of_their_own() {
    const NODES: usize = 1000;
    let whole = Whole::before_start(&["--node-status-update-frequency=10s"]);
    let program = Arc::new(NodeCcm::prepare(whole.context()).await.unwrap());
    Arc::clone(&program).lead(whole.context());
    let names = whole.settled(NODES).await;
    let before = whole.writes().len();
    whole.change_fleet(NODES).await;
    let began = Instant::now();
    sleep(Duration::from_secs(5)).await;
    let written = whole.writes().len() - before;
    assert!((200..=350).contains(&written), "{written} writes in the first 5 s");
    let waiting = whole.metric("ccm_node_corrections_waiting ");
    assert!((600..=800).contains(&waiting), "{waiting} wait");

    let new = whole.add_node(NODES);
    let last = names.iter().rev().find(|name| whole.zone(name).as_deref() != Some("elsewhere"));
    let last = last.unwrap().clone();
    whole.api.delete("nodes", &last).unwrap();
    whole.register(&last, None);
    let took = *whole.all_initialised(&[new, last]).await.last().unwrap();
    assert!(took < Duration::from_secs(1), "{took:?}");

    while whole.metric("ccm_node_corrections_waiting ") > 300 {
        sleep(Duration::from_millis(100)).await;
    }
    let took = began.elapsed().as_secs();
    assert!((12..=16).contains(&took), "{took} s for 700 writes");
    timeout(Duration::from_millis(100), program.drain()).await.expect("nothing is in work");
}

/// The rate is live, also for nodes that wait already.
#[tokio::test(start_paused = true)]
async fn the_rate_of_corrections_may_change_while_nodes_wait() {
    const NODES: usize = 300;
    let arguments = ["--node-status-update-frequency=10s", "--node-correction-qps=1"];
    let whole = Whole::start(&arguments).await;
    whole.settled(NODES).await;
    let before = whole.writes().len();
    let written = || whole.writes().len() - before;
    whole.change_fleet(NODES).await;
    sleep(Duration::from_secs(20)).await;
    assert!((18..=23).contains(&written()), "{} at 1/s", written());
    let set = |rate: Option<f64>| {
        whole.process.settings.send_modify(|settings| {
            Arc::make_mut(settings).node_correction_qps = rate;
        });
    };
    set(Some(10.0));
    sleep(Duration::from_secs(10)).await;
    assert!((110..=135).contains(&written()), "{} at 10/s", written());
    set(Some(0.01));
    sleep(Duration::from_secs(60)).await;
    assert!(written() <= 140, "{} at 0.01/s", written());
    set(None);
    sleep(Duration::from_secs(5)).await;
    assert_eq!(written(), NODES);
}

/// Registers new nodes, one each `every`. Returns the longest time that 99 % of them took.
async fn p99_of_new_nodes(whole: &Whole, first: usize, count: usize, every: Duration) -> Duration {
    let mut left = Vec::new();
    let mut times = Vec::new();
    let began = Instant::now();
    let mut added = 0;
    while times.len() < count {
        if added < count && began.elapsed() >= every * u32::try_from(added).unwrap() {
            left.push((whole.add_node(first + added), Instant::now()));
            added += 1;
        }
        sleep(Duration::from_millis(5)).await;
        left.retain(|(name, at)| {
            let waits = whole.is_tainted(name);
            if !waits {
                times.push(at.elapsed());
            }
            waits
        });
    }
    times.sort_unstable();
    times[(count - 1) * 99 / 100]
}

/// New nodes do not wait behind 2000 corrections, which take 40 s.
#[tokio::test(start_paused = true)]
async fn corrections_do_not_delay_new_nodes() {
    const NODES: usize = 2000;
    let whole = Whole::start(&["--node-status-update-frequency=10s"]).await;
    whole.settled(NODES).await;
    let (single, stream) = (Duration::from_millis(700), Duration::from_millis(90));
    let measure = async |first: usize| {
        sleep(Duration::from_secs(5)).await;
        let one_by_one = p99_of_new_nodes(&whole, first, 20, single).await;
        [one_by_one, p99_of_new_nodes(&whole, first + 20, 120, stream).await]
    };
    let without = measure(NODES).await;
    whole.change_fleet(NODES).await;
    let with = measure(NODES + 200).await;
    assert!(whole.metric("ccm_node_corrections_waiting ") > 0, "the corrections go on");
    eprintln!("p99 of new nodes, quiet: {without:?}, during corrections: {with:?}");
    for (with, without) in with.into_iter().zip(without) {
        // The resolution of the measurement is 5 ms.
        assert!(with <= without * 6 / 5 + Duration::from_millis(5), "{with:?}, quiet {without:?}");
    }
}
