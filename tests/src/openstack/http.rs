//! JSON over HTTP, for the tests' own calls to the services.

use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::Value;

/// The user agent of the tests. The fault proxy leaves it out of its counts.
pub const USER_AGENT: &str = "scenario";

/// Time limit of the tests' calls; Nova may be busy creating servers.
const LIMIT: Duration = Duration::from_secs(60);

/// A client. Clones share connections.
#[derive(Clone)]
pub struct Http(Client<HttpConnector, Full<Bytes>>);

/// An answer.
#[derive(Debug)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body's text.
    pub text: String,
}

impl Answer {
    /// Returns the body as JSON.
    pub fn json(&self) -> Result<Value> {
        serde_json::from_str(&self.text).with_context(|| format!("no JSON: {:?}", self.text))
    }
}

impl Http {
    /// Creates a client without open connections.
    pub fn new() -> Self {
        // The services close each connection after the answer.
        Self(Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build_http())
    }

    /// Sends a request and reads the whole answer, of any status.
    pub async fn send(
        &self,
        method: Method,
        url: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Result<Answer> {
        let bytes = body.map(Value::to_string).unwrap_or_default();
        let mut request = Request::builder()
            .method(method.clone())
            .uri(url)
            .header(header::USER_AGENT, USER_AGENT)
            .header(header::ACCEPT, "application/json")
            .body(Full::from(bytes))?;
        if body.is_some() {
            let json = HeaderValue::from_static("application/json");
            request.headers_mut().insert(header::CONTENT_TYPE, json);
        }
        for (name, value) in headers {
            request.headers_mut().insert(HeaderName::try_from(*name)?, value.parse()?);
        }
        let answer = async {
            let answer = self.0.request(request).await?;
            let (parts, body) = answer.into_parts();
            anyhow::Ok((parts, body.collect().await?.to_bytes()))
        };
        let (parts, bytes) = tokio::time::timeout(LIMIT, answer)
            .await
            .map_err(anyhow::Error::from)
            .and_then(|answer| answer)
            .with_context(|| format!("{method} {url}"))?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Ok(Answer { status: parts.status, headers: parts.headers, text })
    }
}

impl Default for Http {
    fn default() -> Self {
        Self::new()
    }
}
