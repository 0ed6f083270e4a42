//! The response for each path.

use std::{fmt::Write as _, sync::Arc};

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{
    HeaderValue, Method, Request, Response, StatusCode,
    header::{ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS},
};
use http_body_util::Full;

use super::settings::LOCAL_PAGES;
use crate::{
    health::{Finding, Health, Scope},
    metrics::Metrics,
    plans::Plans,
};

/// The data behind the pages. Clones share it.
#[derive(Clone)]
pub struct Pages {
    /// The checks.
    pub health: Health,
    /// The registry behind `/metrics`.
    pub metrics: Metrics,
    /// The text of `/configz`, JSON.
    pub configz: Arc<ArcSwap<String>>,
    /// The plans for `/plan`.
    pub plans: Plans,
    /// The [`LOCAL_PAGES`] that are open to any peer.
    pub open: Vec<String>,
}

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

/// One of the three health pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HealthPage {
    name: &'static str,
    /// Whether readiness checks count.
    readiness: bool,
    /// Whether the response includes reasons. Upstream's `/healthz` omits them.
    reasons: bool,
}

const HEALTH_PAGES: [HealthPage; 3] = [
    HealthPage { name: "healthz", readiness: false, reasons: false },
    HealthPage { name: "livez", readiness: false, reasons: true },
    HealthPage { name: "readyz", readiness: true, reasons: true },
];

impl Pages {
    /// The response to a request; `is_local` for a peer on loopback.
    pub fn answer<B>(&self, request: &Request<B>, is_local: bool) -> Response<Full<Bytes>> {
        let (method, path) = (request.method(), request.uri().path());
        if let Some(name) = self.closed(path, is_local) {
            let why = format!(
                "/{name} answers on loopback only: use kubectl port-forward, or --open-pages={name}\n"
            );
            return reply(StatusCode::FORBIDDEN, TEXT, why);
        }
        let mut query = Query::parse(request.uri().query().unwrap_or_default());
        let accept = request.headers().get(ACCEPT).and_then(|value| value.to_str().ok());
        query.accept = accept.unwrap_or_default();
        query.json |= query.accept.contains(JSON);
        let Some(page) = self.page(path, &query) else {
            return reply(StatusCode::NOT_FOUND, TEXT, "404 page not found\n".to_owned());
        };
        if method != Method::GET && method != Method::HEAD {
            let mut answer =
                reply(StatusCode::METHOD_NOT_ALLOWED, TEXT, "use GET or HEAD\n".to_owned());
            answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return answer;
        }
        page
    }

    /// The page's name, if it is closed to this peer.
    fn closed(&self, path: &str, is_local: bool) -> Option<&'static str> {
        let page = LOCAL_PAGES.into_iter().find(|page| path.strip_prefix('/') == Some(page))?;
        (!is_local && !self.open.iter().any(|open| open == page)).then_some(page)
    }

    fn page(&self, path: &str, query: &Query<'_>) -> Option<Response<Full<Bytes>>> {
        let path = path.strip_prefix('/')?;
        let (first, check) = match path.split_once('/') {
            Some((first, check)) => (first, Some(check)),
            None => (path, None),
        };
        match (first, check) {
            ("metrics", None) => Some(match self.metrics.page(query.accept) {
                Ok((media_type, text)) => reply(StatusCode::OK, media_type, text),
                Err(error) => reply(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    TEXT,
                    format!("cannot encode metrics: {error}\n"),
                ),
            }),
            ("configz", None) => {
                let text = String::clone(&self.configz.load());
                Some(reply(StatusCode::OK, JSON, text))
            }
            ("plan", None) => Some(match query.json {
                true => reply(StatusCode::OK, JSON, self.plans.json(query.name)),
                false => reply(StatusCode::OK, TEXT, self.plans.text(query.name)),
            }),
            _ => {
                let page = HEALTH_PAGES.into_iter().find(|page| page.name == first)?;
                match check {
                    None => Some(self.all_checks(page, query)),
                    Some(name) => self.one_check(page, name),
                }
            }
        }
    }

    fn all_checks(&self, page: HealthPage, query: &Query<'_>) -> Response<Full<Bytes>> {
        let findings: Vec<Finding> =
            self.health.findings().into_iter().filter(|finding| page.shows(finding)).collect();
        let mut text = String::new();
        let mut good = true;
        for finding in &findings {
            let excluded = query.excluded.contains(&finding.name.as_str());
            good &= excluded || !fails(finding);
            page.line(&mut text, finding, excluded);
        }
        let unmatched: Vec<String> = query
            .excluded
            .iter()
            .filter(|name| !findings.iter().any(|finding| finding.name == **name))
            .map(|name| format!("{name:?}"))
            .collect();
        if !unmatched.is_empty() {
            let names = unmatched.join(",");
            add(
                &mut text,
                format_args!("warn: some health checks cannot be excluded: no matches for {names}"),
            );
        }
        match (good, query.verbose) {
            (true, false) => reply(StatusCode::OK, TEXT, "ok".to_owned()),
            (true, true) => {
                add(&mut text, format_args!("{} check passed", page.name));
                reply(StatusCode::OK, TEXT, text)
            }
            (false, _) => {
                add(&mut text, format_args!("{} check failed", page.name));
                reply(StatusCode::INTERNAL_SERVER_ERROR, TEXT, text)
            }
        }
    }

    fn one_check(&self, page: HealthPage, name: &str) -> Option<Response<Full<Bytes>>> {
        let finding = self
            .health
            .findings()
            .into_iter()
            .find(|finding| page.shows(finding) && finding.name == name)?;
        Some(if fails(&finding) {
            let reason = if page.reasons { finding.verdict.detail() } else { "reason withheld" };
            reply(
                StatusCode::INTERNAL_SERVER_ERROR,
                TEXT,
                format!("internal server error: {reason}\n"),
            )
        } else {
            reply(StatusCode::OK, TEXT, "ok".to_owned())
        })
    }
}

/// Whether a finding fails its page.
fn fails(finding: &Finding) -> bool {
    finding.scope != Scope::Information && !finding.verdict.is_passed()
}

impl HealthPage {
    /// Whether a finding belongs on this page.
    fn shows(self, finding: &Finding) -> bool {
        self.readiness || finding.scope == Scope::Liveness
    }

    /// The finding's line. It starts as upstream's does, for `kubectl get --raw` and probe logs;
    /// the details follow.
    fn line(self, text: &mut String, finding: &Finding, excluded: bool) {
        let name = &finding.name;
        let detail = finding.verdict.detail();
        if excluded {
            add(text, format_args!("[+]{name} excluded: ok"));
        } else if fails(finding) {
            let reason = if self.reasons { detail } else { "reason withheld" };
            add(text, format_args!("[-]{name} failed: {reason}"));
        } else if !finding.verdict.is_passed() {
            add(text, format_args!("[!]{name}: {detail}"));
        } else if self.reasons && !detail.is_empty() {
            add(text, format_args!("[+]{name} ok: {detail}"));
        } else {
            add(text, format_args!("[+]{name} ok"));
        }
    }
}

/// The query of a URL, and the media types that the client accepts.
#[derive(Debug, Default, PartialEq, Eq)]
struct Query<'a> {
    accept: &'a str,
    verbose: bool,
    excluded: Vec<&'a str>,
    json: bool,
    name: Option<&'a str>,
}

impl<'a> Query<'a> {
    fn parse(query: &'a str) -> Self {
        let mut parsed = Self::default();
        for part in query.split('&') {
            match part.split_once('=').unwrap_or((part, "")) {
                ("verbose", _) => parsed.verbose = true,
                ("format", "json") => parsed.json = true,
                ("name", name) => parsed.name = Some(name),
                ("exclude", name) if !name.is_empty() => parsed.excluded.push(name),
                _ => {}
            }
        }
        parsed
    }
}

/// Adds a line. Writing to a String cannot fail.
fn add(text: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(text, "{line}").unwrap_or_default();
}

fn reply(status: StatusCode, content_type: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::new(Bytes::from(text)));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}
