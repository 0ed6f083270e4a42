//! Slows down watches that end immediately.
//!
//! kube's watcher restarts a watch that has ended at once and without a log line. A server
//! or proxy that closes every watch would get thousands of requests per second.

use std::{sync::Arc, time::Duration};

use http::Request;
use kube::{Client, client::Body};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};
use tower::service_fn;

/// The least time between the starts of two watches.
const BETWEEN_WATCHES: Duration = Duration::from_secs(1);

/// A client for one informer, with its watches spaced out.
pub(super) fn paced(client: Client) -> Client {
    let namespace = client.default_namespace().to_owned();
    let next = Arc::new(Mutex::new(Instant::now()));
    let service = service_fn(move |request: Request<Body>| {
        let (client, next) = (client.clone(), Arc::clone(&next));
        async move {
            if is_watch(&request) {
                let start = {
                    let mut next = next.lock();
                    let start = (*next).max(Instant::now());
                    *next = start + BETWEEN_WATCHES;
                    start
                };
                sleep_until(start).await;
            }
            client.send(request).await
        }
    });
    Client::new(service, namespace)
}

/// kube marks each request with its verb.
fn is_watch(request: &Request<Body>) -> bool {
    request.extensions().get::<&'static str>() == Some(&"watch")
}
