//! Replicas whose watches do not work.

use std::time::Duration;

use ccm_kube::{
    informer::{Informer, InformerMetrics},
    store::Store,
};
use ccm_objects::Node;
use ccm_runtime::leadership::{Eligibility, eligibility::BLIND_LIMIT};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use kube::{Client, client::Body};
use serde_json::json;
use tokio::{sync::watch, task::JoinSet, time::sleep};
use tokio_util::sync::CancellationToken;
use tower::{BoxError, service_fn};

use crate::{
    lease_api::{LeaseApi, NAMESPACE, answer, refusal},
    replicas::{Replica, until},
};

const SECOND: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_mins(10);

/// An informer of nodes. Its watches work while the switch is on.
struct Eyes {
    open: watch::Sender<bool>,
    eligibility: Eligibility,
    _informer: JoinSet<()>,
}

impl Eyes {
    fn new(open: bool) -> Self {
        let open = watch::Sender::new(open);
        let seen = open.subscribe();
        let service = service_fn(move |request: Request<Body>| {
            let is_open = *seen.borrow();
            async move {
                let is_watch = request.uri().query().unwrap_or_default().contains("watch=true");
                let list = json!({"metadata": {"resourceVersion": "1"}, "items": []});
                Ok::<_, BoxError>(match (is_watch, is_open) {
                    (true, false) => refusal(StatusCode::FORBIDDEN, "Forbidden", "no right"),
                    (true, true) => {
                        Response::new(Empty::new().map_err(|never| match never {}).boxed_unsync())
                    }
                    (false, _) => answer(StatusCode::OK, &list),
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
        Self { open, eligibility, _informer: tasks }
    }

    fn replica(&self, api: &LeaseApi) -> Replica {
        Replica::eligible(api, self.eligibility.clone())
    }
}

#[tokio::test(start_paused = true)]
async fn a_replica_is_a_candidate_only_while_its_watches_work() {
    let (api, eyes) = (LeaseApi::default(), Eyes::new(false));
    let replica = eyes.replica(&api);
    assert_eq!(until(&[&replica], LONG, || replica.leads()).await, None);
    assert_eq!(api.record(), None, "it does not touch the Lease");
    eyes.open.send_replace(true);
    let took = until(&[&replica], LONG, || replica.leads()).await.unwrap();
    assert!(took <= 20 * SECOND, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lease_goes_to_a_replica_that_sees() {
    let (api, eyes) = (LeaseApi::default(), [Eyes::new(false), Eyes::new(true)]);
    let (blind, sees) = (eyes[0].replica(&api), eyes[1].replica(&api));
    let both = [&blind, &sees];
    assert!(until(&both, 10 * SECOND, || sees.leads()).await.is_some());
    sees.release();
    assert_eq!(until(&both, LONG, || blind.leads()).await, None, "free, but not for it");
}

#[tokio::test(start_paused = true)]
async fn a_leader_may_be_blind_for_two_minutes() {
    let eyes = Eyes::new(true);
    sleep(10 * SECOND).await;
    assert_eq!(eyes.eligibility.obstacle(), None);
    eyes.open.send_replace(false);
    let start = tokio::time::Instant::now();
    let lost = eyes.eligibility.lost().await;
    let took = start.elapsed();
    // Counted from the last proof, which is up to one watch older.
    assert!((BLIND_LIMIT - 31 * SECOND..=BLIND_LIMIT + SECOND).contains(&took), "{took:?}");
    assert!(
        lost.to_string().contains("the watch of nodes has not worked for 2m0s: forbidden"),
        "{lost}"
    );
}
