//! The simulated cloud's pages: its contents, counters, settings and faults over plain HTTP, for a
//! person with `curl`. Controllers use the external protocol instead.

mod contents;
mod faults;
mod fields;
mod requests;
mod routes;

use std::{convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use ccm_net::{Accepted, Incoming};
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{body::Body, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use self::{
    faults::{FaultRequest, Faults},
    requests::{InstanceRequest, SettingsRequest},
    routes::{PortRequest, RouteRequest},
};
use crate::cloud::SimCloud;

/// The largest request.
const MAX_BODY: usize = 64 * 1024;

/// The answer to `GET /`.
pub const HELP: &str = "\
GET    /contents            instances, load balancers, floating addresses, router
POST   /instances           add one, or replace the one with this ID, with any of
                            name, id, addresses, externalAddresses, podCidrs, zone, region, type,
                            labels, power (running, stopped, changing)
DELETE /instances/ID        delete it, by ID or name
DELETE /load-balancers/ID   delete it out of band; its floating address stays
POST   /routes              add one out of band, with destination (\"10.244.9.0/24\") and any of
                            target ({\"address\": IP}, {\"instance\": ID} or {\"node\": NAME}), id, owner
DELETE /routes/DESTINATION  delete all of this destination out of band: /routes/10.244.9.0/24
POST   /ports               add an address that exists and is no instance's: {\"address\": IP}
DELETE /ports/ADDRESS       delete it
GET    /counters            calls by operation, what they were about, accepted writes
DELETE /counters            start at zero
GET    /settings            which cloud it is, how long it works after a write, and what it can do
POST   /settings            change some, as GET shows them: {\"create\": \"30s\"},
                            {\"identity\": \"another project\"} (empty: it cannot tell),
                            {\"routes\": {\"quota\": 100, \"replaces\": true}}; what the cloud can do is
                            read by controllers once a minute
GET    /faults              those that are active
POST   /faults              add one: {\"effect\": \"hang\", \"owners\": [\"default/web\"]}
DELETE /faults              end all
DELETE /faults/ID           end one

Effects on whole calls:
  delay         with delay (\"5s\")
  throttle      with retryAfter (\"2s\"), if the cloud should ask for it
  error         with kind (\"unavailable\"), and message if you like
  hang          no answer
  empty_list, wrong_project
Effects on single load balancers, with owners ([\"namespace/name\"]; [] for all), or on single
routes, with routes (destinations, names of nodes, in a lookup targets; [] for all):
  error, hang   as above, for these alone
  lose_answer   the change is made, its answer is lost
  late          the answer is lost, and the change is made after delay
  break         the cloud fails to carry out the change; with person, only a person can repair it
                (a route exists with a defect)
  stick         the cloud never ends carrying out the change
  malformed     an entry of a list that cannot be read
  overtake      of routes only: just before the change, a person changes the route or makes one
Each may have operation (as in /counters), times, skip, lasting (\"1m\"), probability (0 to 1).
";

/// The reason why a request was refused, in one line.
struct Refusal(StatusCode, String);

impl Refusal {
    fn invalid(what: impl Into<String>) -> Self {
        Self(StatusCode::BAD_REQUEST, what.into())
    }

    fn missing(what: impl Into<String>) -> Self {
        Self(StatusCode::NOT_FOUND, what.into())
    }
}

/// The pages of one cloud.
struct Pages {
    cloud: SimCloud,
    faults: Mutex<Faults>,
}

/// Serves the pages on `listener` until `stop` is cancelled.
pub async fn serve(cloud: SimCloud, listener: TcpListener, stop: CancellationToken) {
    let pages = Arc::new(Pages { cloud, faults: Mutex::default() });
    let converse = move |stream: Accepted<TcpStream>, _| {
        let pages = Arc::clone(&pages);
        let service = service_fn(move |request| {
            let pages = Arc::clone(&pages);
            async move { Ok::<_, Infallible>(pages.respond(request).await) }
        });
        http1::Builder::new()
            .timer(TokioTimer::new())
            .serve_connection(TokioIo::new(stream), service)
    };
    let incoming = Incoming { listener, tls: None, most: 64, grace: Duration::ZERO };
    incoming.serve(&stop, converse).await;
}

impl Pages {
    async fn respond<B>(&self, request: Request<B>) -> Response<Full<Bytes>>
    where
        B: Body,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (head, body) = request.into_parts();
        let answer = match Limited::new(body, MAX_BODY).collect().await {
            Ok(body) => self.answer(&head.method, head.uri.path(), &body.to_bytes()),
            Err(error) => Err(Refusal::invalid(format!("the body cannot be read: {error}"))),
        };
        let (status, kind, text) = match answer {
            Ok(Value::String(text)) => (StatusCode::OK, "text/plain", text),
            Ok(value) => (StatusCode::OK, "application/json", format!("{value:#}\n")),
            Err(Refusal(status, what)) => (status, "text/plain", format!("{what}\n")),
        };
        let mut response = Response::new(Full::from(text));
        *response.status_mut() = status;
        let kind = header::HeaderValue::from_static(kind);
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        response
    }

    fn answer(&self, method: &Method, path: &str, body: &[u8]) -> Result<Value, Refusal> {
        let (page, name) = match path.trim_start_matches('/').split_once('/') {
            Some((page, name)) => (page, Some(name)),
            None => (path.trim_start_matches('/'), None),
        };
        let (balancers, router) = (self.cloud.balancers(), self.cloud.router());
        match (method.as_str(), page, name) {
            ("GET", "", None) => Ok(HELP.into()),
            ("GET", "contents", None) => Ok(contents::contents(&self.cloud)),
            ("POST", "instances", None) => read::<InstanceRequest>(body)?.add(&self.cloud),
            ("DELETE", "instances", Some(name)) => self.remove_instance(name),
            ("DELETE", "load-balancers", Some(id)) => match balancers.remove(id) {
                Some(_) => Ok(json!({"deleted": id})),
                None => Err(Refusal::missing(format!("no load balancer has the ID {id:?}"))),
            },
            ("POST", "routes", None) => read::<RouteRequest>(body)?.add(router),
            ("DELETE", "routes", Some(destination)) => routes::remove(router, destination),
            ("POST", "ports", None) => read::<PortRequest>(body)?.add(router),
            ("DELETE", "ports", Some(address)) => routes::remove_port(router, address),
            ("GET", "counters", None) => Ok(contents::counters(&self.cloud)),
            ("DELETE", "counters", None) => {
                self.cloud.reset_calls();
                balancers.reset_writes();
                router.reset_writes();
                Ok(contents::counters(&self.cloud))
            }
            ("GET", "settings", None) => Ok(contents::settings(&self.cloud)),
            ("POST", "settings", None) => read::<SettingsRequest>(body)?.apply(&self.cloud),
            ("GET", "faults", None) => Ok(self.faults.lock().list(self.cloud.faults())),
            ("POST", "faults", None) => {
                let request = read::<FaultRequest>(body)?;
                self.faults.lock().add(self.cloud.faults(), &request, read(body)?)
            }
            ("DELETE", "faults", None) => Ok(self.faults.lock().clear(self.cloud.faults())),
            ("DELETE", "faults", Some(id)) => self.faults.lock().end(self.cloud.faults(), id),
            _ => Err(Refusal::missing(format!("no page {method} {path}; GET / lists them"))),
        }
    }

    fn remove_instance(&self, name: &str) -> Result<Value, Refusal> {
        let by_name = || self.cloud.find(name).and_then(|found| self.cloud.remove(&found.id));
        match self.cloud.remove(name).or_else(by_name) {
            Some(instance) => Ok(json!({"deleted": instance.id})),
            None => Err(Refusal::missing(format!("no instance has the ID or name {name:?}"))),
        }
    }
}

/// Returns a request in JSON. The error is one line that names the field.
fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body).map_err(|error| Refusal::invalid(format!("the body: {error}")))
}
