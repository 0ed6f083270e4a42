//! The response for each path.

use std::{borrow::Cow, convert::Infallible, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use bytes::Bytes;
use ccm_base::{clock, duration::in_words};
use http::{
    HeaderValue, Method, Request, Response, StatusCode, Uri,
    header::{ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS},
};
use http_body_util::{BodyExt as _, Either, Full, combinators::UnsyncBoxBody};
use serde::Serialize;

use super::{host::Host, scrapes::Scrapes, settings::OPENED_BY};
use crate::{
    explain::Explanations,
    health::{Finding, Health, Scope},
    plans::Plans,
    records::{RecordQuery, Records, Unread},
};

/// The content of a page: whole, or written while the client reads.
pub(super) type Content = Either<Full<Bytes>, UnsyncBoxBody<Bytes, Infallible>>;

/// The data behind the pages. Clones share it.
#[derive(Clone)]
pub struct Pages {
    /// The checks.
    pub health: Health,
    /// The page `/metrics`.
    pub scrapes: Scrapes,
    /// The text of `/configz`, JSON.
    pub configz: Arc<ArcSwap<String>>,
    /// The plans for `/plan`.
    pub plans: Plans,
    /// The explanations for `/explain`.
    pub explanations: Explanations,
    /// The records for `/record`.
    pub records: Records,
    /// The pages that are open to any peer: `configz`, `plan`.
    pub open: Vec<String>,
}

/// All pages, at `/`.
const INDEX: &str = "\
/healthz            whether the process works, as upstream has it
/livez?verbose      the same, with reasons
/readyz?verbose     all checks; /readyz?format=json
/metrics            for Prometheus
/configz            the settings in force, JSON; on loopback
/plan               steps that are not executed yet; /plan?format=json; on loopback
/plan?name=NAME     the same of one object; of a Service NAMESPACE/NAME
/explain?name=NAME  why an object is as it is, and how to fix it; also kind=KIND and format=json
/record             the last events and what was decided on each; on loopback
/record?name=NAME   the same of one object; with anonymous=true without names
";

/// At most this many characters of an unknown parameter are shown.
const LONGEST_KEY: usize = 40;

/// The age of a younger state is not shown.
const OLD: Duration = Duration::from_mins(1);

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
/// Lines of JSON.
const LINES: &str = "application/jsonl";

/// A health page: one of three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HealthPage {
    /// True if readiness checks count.
    readiness: bool,
    /// True if the response includes reasons. Upstream's `/healthz` omits them.
    reasons: bool,
}

impl Pages {
    /// Returns the response to a request; `is_local` for a peer on loopback.
    pub fn answer(&self, request: &Request<()>, is_local: bool) -> Response<Content> {
        let (method, path) = (request.method(), request.uri().path());
        let host = match Host::from_request(request) {
            Ok(host) => host,
            Err(why) => return reply(StatusCode::BAD_REQUEST, TEXT, format!("{why}\n")),
        };
        if let Some((name, opened_by)) = self.local_page(path) {
            let why = if !is_local {
                "use kubectl port-forward"
            } else if !host.may_read_details() {
                "ask for it at 127.0.0.1 or localhost, not under another name"
            } else {
                ""
            };
            if !why.is_empty() {
                let text = format!(
                    "/{name} is served on loopback only: {why}, or --open-pages={opened_by}\n"
                );
                return reply(StatusCode::FORBIDDEN, TEXT, text);
            }
        }
        let accept = request.headers().get(ACCEPT).and_then(|value| value.to_str().ok());
        let query = Query::parse(request.uri());
        let Some(page) = self.page(path, &query, accept.unwrap_or_default()) else {
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

    /// Returns the page's name and the name that opens it, if the page is for loopback only.
    fn local_page(&self, path: &str) -> Option<(&'static str, &'static str)> {
        let page = OPENED_BY.into_iter().find(|(page, _)| path.strip_prefix('/') == Some(page))?;
        (!self.open.iter().any(|open| open == page.1)).then_some(page)
    }

    fn page(&self, path: &str, query: &Query<'_>, accept: &str) -> Option<Response<Content>> {
        let path = path.strip_prefix('/')?;
        let (first, check) = match path.split_once('/') {
            Some((first, check)) => (first, Some(check)),
            None => (path, None),
        };
        let page = match (first, check) {
            ("", None) => return Some(reply(StatusCode::OK, TEXT, INDEX.to_owned())),
            ("healthz", _) => HealthPage { readiness: false, reasons: false },
            ("livez", _) => HealthPage { readiness: false, reasons: true },
            ("readyz", _) => HealthPage { readiness: true, reasons: true },
            ("metrics", None) => {
                return Some(match self.scrapes.page(accept) {
                    Ok((media_type, text)) => reply(StatusCode::OK, media_type, text),
                    Err(error) => {
                        let text = format!("cannot encode metrics: {error}\n");
                        reply(StatusCode::INTERNAL_SERVER_ERROR, TEXT, text)
                    }
                });
            }
            ("configz", None) => {
                return Some(reply(StatusCode::OK, JSON, String::clone(&self.configz.load())));
            }
            ("plan", None) => {
                if let Some(refusal) = query.refuse_others("plan", &["name", "format"]) {
                    return Some(refusal);
                }
                let name = query.last("name");
                return Some(match query.is_for_json() || accept.contains(JSON) {
                    true => reply(StatusCode::OK, JSON, self.plans.json(name)),
                    false => reply(StatusCode::OK, TEXT, self.plans.text(name)),
                });
            }
            ("explain", None) => return Some(self.explain(query, accept)),
            ("record", None) => return Some(self.record(query)),
            _ => return None,
        };
        match check {
            None => Some(self.all_checks(first, page, query)),
            Some(name) => self.one_check(page, name),
        }
    }

    fn explain(&self, query: &Query<'_>, accept: &str) -> Response<Content> {
        if let Some(refusal) = query.refuse_others("explain", &["kind", "name", "format"]) {
            return refusal;
        }
        let (kind, name) = (query.last("kind"), query.last("name"));
        let is_json = query.is_for_json() || accept.contains(JSON);
        let explained = match is_json {
            true => self.explanations.json(kind, name),
            false => self.explanations.text(kind, name),
        };
        match explained {
            Ok(text) => reply(StatusCode::OK, if is_json { JSON } else { TEXT }, text),
            Err(why) => reply(StatusCode::BAD_REQUEST, TEXT, format!("{why}\n")),
        }
    }

    fn record(&self, query: &Query<'_>) -> Response<Content> {
        // If a misspelt parameter were ignored, the page would show names that should be hidden.
        if let Some(refusal) = query.refuse_others("record", &["name", "anonymous"]) {
            return refusal;
        }
        // A client that misspells the value does not want names either.
        let anonymous = query.last("anonymous").is_some_and(|text| text != "false");
        let asked = RecordQuery { name: query.last("name").map(str::to_owned), anonymous };
        match self.records.body(asked) {
            Ok(body) => answer(StatusCode::OK, LINES, Either::Right(body.boxed_unsync())),
            Err(Unread::None) => {
                let text = "no record is kept: see --record-bytes\n";
                reply(StatusCode::NOT_FOUND, TEXT, text.to_owned())
            }
            Err(Unread::Busy) => {
                let text = "others read the record: try again\n";
                reply(StatusCode::TOO_MANY_REQUESTS, TEXT, text.to_owned())
            }
        }
    }

    fn all_checks(&self, name: &str, page: HealthPage, query: &Query<'_>) -> Response<Content> {
        let findings: Vec<Finding> =
            self.health.findings().into_iter().filter(|finding| page.shows(finding)).collect();
        let excluded: Vec<&str> = query.all("exclude").filter(|name| !name.is_empty()).collect();
        let is_excluded = |finding: &Finding| excluded.contains(&finding.name.as_str());
        let good = findings.iter().all(|finding| is_excluded(finding) || !fails(finding));
        let (status, outcome) = match good {
            true => (StatusCode::OK, "passed"),
            false => (StatusCode::INTERNAL_SERVER_ERROR, "failed"),
        };
        if query.is_for_json() {
            let checks = findings.iter().map(|finding| page.entry(finding, is_excluded(finding)));
            let all = CheckPage { page: name, passed: good, checks: checks.collect() };
            let text = serde_json::to_string_pretty(&all).unwrap_or_default() + "\n";
            return reply(status, JSON, text);
        }
        let mut lines: Vec<String> =
            findings.iter().map(|finding| page.line(finding, is_excluded(finding))).collect();
        let unmatched: Vec<String> = excluded
            .iter()
            .filter(|name| !findings.iter().any(|finding| finding.name == **name))
            .map(|name| format!("{name:?}"))
            .collect();
        if !unmatched.is_empty() {
            let names = unmatched.join(",");
            lines.push(format!(
                "warn: some health checks cannot be excluded: no matches for {names}"
            ));
        }
        if good && query.all("verbose").next().is_none() {
            return reply(StatusCode::OK, TEXT, "ok".to_owned());
        }
        lines.push(format!("{name} check {outcome}\n"));
        reply(status, TEXT, lines.join("\n"))
    }

    fn one_check(&self, page: HealthPage, name: &str) -> Option<Response<Content>> {
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

/// Returns true if a finding fails its page.
fn fails(finding: &Finding) -> bool {
    finding.scope != Scope::Information && !finding.verdict.is_passed()
}

impl HealthPage {
    /// Returns true if a finding belongs on this page.
    fn shows(self, finding: &Finding) -> bool {
        self.readiness || finding.scope == Scope::Liveness
    }

    /// Returns the finding's line. It starts as upstream's does, for `kubectl get --raw` and probe
    /// logs; the details follow.
    fn line(self, finding: &Finding, excluded: bool) -> String {
        let name = &finding.name;
        let detail = finding.verdict.detail();
        let line = if excluded {
            return format!("[+]{name} excluded: ok");
        } else if fails(finding) {
            let reason = if self.reasons { detail } else { "reason withheld" };
            format!("[-]{name} failed: {reason}")
        } else if !finding.verdict.is_passed() {
            format!("[!]{name}: {detail}")
        } else if self.reasons && !detail.is_empty() {
            format!("[+]{name} ok: {detail}")
        } else {
            format!("[+]{name} ok")
        };
        let is_old = self.reasons && finding.lasts >= OLD;
        if is_old { format!("{line} (for {})", in_words(finding.lasts)) } else { line }
    }

    /// Returns the finding in the page's JSON.
    fn entry(self, finding: &Finding, excluded: bool) -> CheckEntry<'_> {
        let since = jiff::SignedDuration::try_from(finding.lasts).unwrap_or_default();
        CheckEntry {
            name: &finding.name,
            passed: finding.verdict.is_passed(),
            fails_page: fails(finding) && !excluded,
            detail: if self.reasons { finding.verdict.detail() } else { "" },
            since: format!("{:.0}", clock::wall() - since),
        }
    }
}

/// A health page as JSON.
#[derive(Serialize)]
struct CheckPage<'a> {
    page: &'a str,
    passed: bool,
    checks: Vec<CheckEntry<'a>>,
}

#[derive(Serialize)]
struct CheckEntry<'a> {
    name: &'a str,
    passed: bool,
    fails_page: bool,
    detail: &'a str,
    /// Since when the check has passed, or failed.
    since: String,
}

/// The parameters of a URL, decoded.
struct Query<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> Query<'a> {
    fn parse(url: &'a Uri) -> Self {
        Self(form_urlencoded::parse(url.query().unwrap_or_default().as_bytes()).collect())
    }

    fn is_for_json(&self) -> bool {
        self.all("format").any(|format| format == "json")
    }

    /// Returns the answer to a parameter that the page does not have: a misspelt one would be ignored, and
    /// the page would show something else.
    fn refuse_others(&self, page: &str, known: &[&str]) -> Option<Response<Content>> {
        let key = self.0.iter().map(|(key, _)| &**key).find(|key| !known.contains(key))?;
        let key: String = key.chars().take(LONGEST_KEY).collect();
        let known = match known {
            [others @ .., last] => format!("{} and {last}", others.join(", ")),
            [] => "none".to_owned(),
        };
        let text = format!("/{page} has the parameters {known}, not {key:?}\n");
        Some(reply(StatusCode::BAD_REQUEST, TEXT, text))
    }

    /// Returns the last value of a parameter.
    fn last(&self, name: &str) -> Option<&str> {
        self.all(name).last()
    }

    /// Returns all values of a parameter; the empty text for one without a value.
    fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| &**value)
    }
}

fn reply(
    status: StatusCode,
    content_type: &'static str,
    text: impl Into<Bytes>,
) -> Response<Content> {
    answer(status, content_type, Either::Left(Full::new(text.into())))
}

fn answer(status: StatusCode, content_type: &'static str, content: Content) -> Response<Content> {
    let mut answer = Response::new(content);
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}
