//! A cloud that gives the answers of the input.
//!
//! The first line of an input is JSON: settings. Each other line is one answer: the name of the
//! request as metrics have it, the status, and the body. Requests of a name get its answers in
//! their order, and the last one again and again.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    path::Path,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use ccm_base::Files;
use ccm_cloud::{Call, CloudError};
use ccm_openstack_client::{
    api::{Answer, Api, Microversion, Request, Service, scripted_answer},
    config::Environment,
};
use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::config::Config;

/// The maximum number of requests for one input. Correct code needs far fewer, with any
/// answers.
const MOST: usize = 2_000;
/// How long each answer takes.
const DELAY: Duration = Duration::from_millis(10);
/// The beginning of all configurations.
const LOGIN: &str = "[Global]\nauth-url=https://keystone:5000/v3\nuser-id=u\ntenant-id=t\n\
                     password=hush\nregion=one\n";

/// The first line.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Settings {
    /// The text after `[Global]` in `cloud.conf`.
    pub conf: String,
    /// The annotations of the Service.
    pub annotations: BTreeMap<String, String>,
    /// The minor number of Nova's microversion, if it has any.
    pub microversion: Option<u32>,
    /// The Service wants UDP as well.
    pub udp: bool,
    /// The Service wants members with local endpoints only.
    pub local: bool,
}

impl Settings {
    /// Returns the configuration, or the smallest one if this input does not have a valid one.
    pub fn config(&self) -> Option<Config> {
        let parsed = |rest: &str| {
            let (path, text) = (Path::new("/nowhere/cloud.conf"), format!("{LOGIN}{rest}"));
            Config::parse(path, &text, &Environment::default(), &mut Files::default()).ok()
        };
        Some(parsed(&self.conf).or_else(|| parsed(""))?.config)
    }
}

/// The answers from the lines of an input.
pub struct Played {
    microversion: Option<Microversion>,
    answers: Mutex<HashMap<String, VecDeque<(StatusCode, Bytes)>>>,
    asked: Mutex<usize>,
}

impl Played {
    /// Splits an input.
    pub fn split(data: &[u8]) -> (Settings, Arc<Self>) {
        let text = String::from_utf8_lossy(data);
        let (first, rest) = text.split_once('\n').unwrap_or((&text, ""));
        let settings: Settings = serde_json::from_str(first).unwrap_or_default();
        let mut answers: HashMap<String, VecDeque<_>> = HashMap::new();
        for (operation, answer) in rest.split('\n').filter_map(parsed) {
            answers.entry(operation.to_owned()).or_default().push_back(answer);
        }
        let microversion = settings.microversion.map(|minor| Microversion { major: 2, minor });
        let (answers, asked) = (Mutex::new(answers), Mutex::new(0));
        (settings, Arc::new(Self { microversion, answers, asked }))
    }

    fn next(&self, operation: &str) -> (StatusCode, Bytes) {
        let mut answers = self.answers.lock();
        let Some(all) = answers.get_mut(operation) else {
            return (StatusCode::NOT_FOUND, Bytes::new());
        };
        let next = if all.len() > 1 { all.pop_front() } else { all.front().cloned() };
        next.unwrap_or((StatusCode::NOT_FOUND, Bytes::new()))
    }
}

/// Returns the name of the request, and its answer.
fn parsed(line: &str) -> Option<(&str, (StatusCode, Bytes))> {
    let (operation, rest) = line.split_once(' ')?;
    let (status, body) = rest.split_once(' ').unwrap_or((rest, ""));
    let status = StatusCode::from_bytes(status.as_bytes()).ok()?;
    Some((operation, (status, Bytes::copy_from_slice(body.as_bytes()))))
}

#[async_trait]
impl Api for Played {
    async fn send(&self, request: Request<'_>, call: Call) -> Result<Answer, CloudError> {
        let path = request.path;
        assert!(path.len() < 32 << 10, "{} has {} bytes of path", request.operation, path.len());
        // With an empty ID, a request about one object is about all of its kind.
        let place = path.split('?').next().unwrap_or_default();
        let has_gap = place.contains("//") || place.ends_with('/');
        assert!(!has_gap, "{} has an empty segment: {path:?}", request.operation);
        *self.asked.lock() += 1;
        assert!(*self.asked.lock() <= MOST, "more than {MOST} requests");
        tokio::time::sleep(DELAY).await;
        if call.left().is_zero() {
            return Err(call.late());
        }
        let (status, body) = self.next(request.operation);
        scripted_answer(&request, status, HeaderMap::new(), body)
    }

    async fn offers(&self, _: Service, _: Call) -> Result<bool, CloudError> {
        Ok(true)
    }

    async fn project_id(&self, _: Call) -> Result<String, CloudError> {
        Ok("p1".to_owned())
    }

    fn microversion(&self) -> Option<Microversion> {
        self.microversion
    }
}

/// Runs this to its end, in a time that stands still while it waits.
pub fn paused(work: impl Future<Output = ()>) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    if let Ok(runtime) = runtime.enable_time().start_paused(true).build() {
        runtime.block_on(work);
    }
}

/// Returns a call with the time of a controller's.
pub fn call() -> Call {
    Call::waiting(Duration::from_secs(60))
}
