//! The layers of each client, and their order.

use std::sync::Arc;

use http::{HeaderValue, Uri, header::USER_AGENT};
use kube::client::{ConfigExt as _, middleware::AuthLayer};
use strum::Display;
use tower::Layer as _;

use super::{
    ClientConfig, Unlimited,
    attempt::Attempts,
    deadline::bounded,
    denials::Denials,
    encoding::decompressed,
    middleware::{InnerService, around},
    problem::ConfigProblem,
    retry::retry,
    server_clock::ServerClock,
    watch_status::refuse,
};
use crate::metrics::Recorder;

/// The purpose of a client. Its text is the suffix of the user agent, which API
/// priority-and-fairness rules and audit logs use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
#[strum(serialize_all = "lowercase")]
pub(super) enum Role {
    Main,
    Watch,
    Events,
    #[strum(to_string = "leader-election")]
    Lease,
}

impl Role {
    /// Returns the number of idle connections to keep: the usual number of concurrent requests.
    pub(super) const fn idle_connections(self) -> usize {
        match self {
            Self::Main => 40,
            Self::Watch => 8,
            Self::Events | Self::Lease => 2,
        }
    }
}

/// The parts that the stacks of all clients of a process share.
pub(super) struct Layers<'a> {
    config: &'a ClientConfig,
    kube: &'a kube::Config,
    auth: Option<&'a AuthLayer>,
    recorder: Recorder,
    pub(super) clock: ServerClock,
    pub(super) denials: Denials,
    pub(super) server: String,
}

impl<'a> Layers<'a> {
    pub(super) fn new(
        config: &'a ClientConfig,
        kube: &'a kube::Config,
        auth: Option<&'a AuthLayer>,
    ) -> Self {
        let server = host_and_port(&kube.cluster_url);
        let recorder = Recorder::new(Arc::clone(&config.metrics), server.as_str().into());
        let clock = ServerClock::new(&config.metrics);
        Self { config, kube, auth, recorder, clock, denials: Denials::default(), server }
    }

    /// Wraps a transport in the layers of a client; the layer added last sees a request first.
    pub(super) fn around(
        &self,
        role: Role,
        transport: InnerService,
    ) -> Result<InnerService, ConfigProblem> {
        let mut next = self.with_headers(role, transport)?;
        if let Some(auth) = self.auth {
            next = InnerService::new(auth.layer(next));
        }
        let (lease, recorder) = (role == Role::Lease, self.recorder.clone());
        let attempts = self.attempts(lease);
        next = around(next, move |request, next| attempts.clone().send(request, next));
        if !lease {
            next = around(next, move |request, next| retry(recorder.clone(), request, next));
        }
        next = decompressed(!self.kube.disable_compression, next);
        let denials = self.denials.clone();
        next = around(next, move |request, next| refuse((lease, denials.clone()), request, next));
        let timeout = self.config.request_timeout;
        next = around(next, move |request, next| bounded(timeout, request, next));
        Ok(InnerService::new(self.kube.base_uri_layer().layer(next)))
    }

    /// Returns the attempts of a client. Lease requests never wait.
    pub(super) fn attempts(&self, lease: bool) -> Attempts {
        let limiter = if lease { Arc::new(Unlimited) } else { Arc::clone(&self.config.limiter) };
        Attempts { limiter, recorder: self.recorder.clone(), clock: self.clock.clone() }
    }

    /// Adds the user agent and impersonation headers.
    fn with_headers(
        &self,
        role: Role,
        transport: InnerService,
    ) -> Result<InnerService, ConfigProblem> {
        let agent = format!("{}/{role}", self.config.user_agent);
        let header = HeaderValue::try_from(&agent).map_err(|_| {
            ConfigProblem::new(
                format!("the user agent {agent:?} cannot be sent"),
                "use visible ASCII",
            )
        })?;
        let mut kube = self.kube.clone();
        kube.headers.push((USER_AGENT, header));
        let headers = kube.extra_headers_layer().map_err(|_| {
            ConfigProblem::new(
                "the user or group to impersonate cannot be sent",
                "use visible ASCII in users[].user.as",
            )
        })?;
        Ok(InnerService::new(headers.layer(transport)))
    }
}

/// Returns the server's address with an explicit port.
fn host_and_port(server: &Uri) -> String {
    let port =
        server.port_u16().unwrap_or(if server.scheme_str() == Some("http") { 80 } else { 443 });
    format!("{}:{port}", server.host().unwrap_or_default())
}
