//! Replicas whose watches do not work.

use std::time::Duration;

use ccm_kube::{
    informer::{Informer, InformerMetrics},
    store::Store,
};
use ccm_objects::Node;
use ccm_runtime::leadership::{Eligibility, eligibility::BLIND_LIMIT};
use ccm_testing::Log;
use futures::{Stream, StreamExt as _, stream};
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use kube::{Client, client::Body};
use serde_json::json;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use tower::{BoxError, service_fn};
use tracing::Level;

use crate::{
    lease_api::{Answer, LeaseApi, NAMESPACE, answer, refusal},
    replicas::{Replica, until},
};

const SECOND: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_mins(10);

/// How an API server meets watches. Other kinds are written three times a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Watches {
    /// Each one shows a bookmark.
    Work,
    /// The right is missing.
    Refused,
    /// They are accepted, and show nothing.
    Silent,
}

/// An informer of nodes.
struct Eyes {
    watches: watch::Sender<Watches>,
    eligibility: Eligibility,
    _informer: JoinSet<()>,
}

impl Eyes {
    fn new(watches: Watches) -> Self {
        let watches = watch::Sender::new(watches);
        let (seen, start) = (watches.subscribe(), Instant::now());
        let service = service_fn(move |request: Request<Body>| {
            let watches = *seen.borrow();
            let version = move || (100 + start.elapsed().as_millis() / 333).to_string();
            async move {
                let is_watch = request.uri().query().unwrap_or_default().contains("watch=true");
                Ok::<_, BoxError>(match watches {
                    _ if !is_watch => {
                        let metadata = json!({"resourceVersion": version()});
                        answer(StatusCode::OK, &json!({"metadata": metadata, "items": []}))
                    }
                    Watches::Refused => refusal(StatusCode::FORBIDDEN, "Forbidden", "no right"),
                    Watches::Silent => streamed(stream::pending()),
                    Watches::Work => streamed(stream::once(async move {
                        sleep(SECOND).await;
                        let metadata = json!({"resourceVersion": version()});
                        let object =
                            json!({"kind": "Node", "apiVersion": "v1", "metadata": metadata});
                        format!("{}\n", json!({"type": "BOOKMARK", "object": object}))
                    })),
                })
            }
        });
        let client = Client::new(service, NAMESPACE);
        let metrics = InformerMetrics::default();
        let informer = Informer::<Node>::new(client, Store::new(), Box::new(drop), &metrics);
        let eligibility = Eligibility::default();
        eligibility.require(informer.state());
        let mut tasks = JoinSet::new();
        tasks.spawn(informer.run(CancellationToken::new()));
        Self { watches, eligibility, _informer: tasks }
    }

    fn replica(&self, api: &LeaseApi) -> Replica {
        Replica::eligible(api, self.eligibility.clone())
    }
}

fn streamed(lines: impl Stream<Item = String> + Send + 'static) -> Response<Answer> {
    let frames = lines.map(|line| Ok::<_, BoxError>(Frame::data(line.into_bytes().into())));
    Response::new(StreamBody::new(frames).boxed_unsync())
}

#[tokio::test(start_paused = true)]
async fn a_replica_is_a_candidate_only_while_its_watches_work() {
    for fault in [Watches::Refused, Watches::Silent] {
        let log = Log::new();
        let _listening = log.listen(Level::INFO);
        let (api, eyes) = (LeaseApi::default(), Eyes::new(fault));
        let replica = eyes.replica(&api);
        // After 40 s a list without changes proves a silent watch, because some API servers are
        // silent.
        let time = if fault == Watches::Silent { 39 * SECOND } else { LONG };
        assert_eq!(until(&[&replica], time, || replica.leads()).await, None, "{fault:?}");
        assert_eq!(api.record(), None, "{fault:?}: it does not touch the Lease");
        let is_warned = log.lines_with("not a candidate for the lease") == 1;
        assert_eq!(is_warned, fault == Watches::Refused, "{}", log.text());
        eyes.watches.send_replace(Watches::Work);
        let took = until(&[&replica], LONG, || replica.leads()).await.unwrap();
        assert!(took <= 20 * SECOND, "{fault:?}: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_goes_to_a_replica_that_sees() {
    let api = LeaseApi::default();
    let eyes = [Eyes::new(Watches::Refused), Eyes::new(Watches::Work)];
    let (blind, sees) = (eyes[0].replica(&api), eyes[1].replica(&api));
    let both = [&blind, &sees];
    assert!(until(&both, 10 * SECOND, || sees.leads()).await.is_some());
    sees.release();
    assert_eq!(until(&both, LONG, || blind.leads()).await, None, "free, but not for it");
}

#[tokio::test(start_paused = true)]
async fn a_leader_may_be_blind_for_two_minutes() {
    let eyes = Eyes::new(Watches::Work);
    sleep(10 * SECOND).await;
    assert_eq!(eyes.eligibility.obstacle(), None);
    eyes.watches.send_replace(Watches::Refused);
    let start = Instant::now();
    let lost = eyes.eligibility.lost().await;
    let took = start.elapsed();
    // Counted from the last proof, which is up to one watch older.
    assert!((BLIND_LIMIT - 31 * SECOND..=BLIND_LIMIT + SECOND).contains(&took), "{took:?}");
    assert!(
        lost.to_string().contains("the watch of nodes has not worked for 2m0s: forbidden"),
        "{lost}"
    );
}
