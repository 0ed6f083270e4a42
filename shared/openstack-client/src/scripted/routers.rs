//! Plays routers with extra routes, and ports as their next hops.

use ccm_cloud::{CloudError, ErrorKind};
use http::Method;
use serde_json::{Value, json};

use super::{Request, World, answer, uuid};
use crate::api::Answer;

/// A router and what Neutron does with it.
pub struct Router {
    pub id: String,
    pub routes: Vec<Value>,
    pub revision: u64,
    pub extensions: Vec<&'static str>,
    pub max_routes: usize,
    /// The quota `router_route` of Neutron 29, whose refusal does not say how many routes it allows.
    pub route_quota: usize,
    pub max_pairs: usize,
}

impl Default for Router {
    fn default() -> Self {
        Self {
            id: uuid(9_000_000),
            routes: Vec::new(),
            revision: 1,
            extensions: vec!["extraroute", "extraroute-atomic", "allowed-address-pairs"],
            max_routes: 1_000,
            route_quota: 1_000,
            max_pairs: 10,
        }
    }
}

impl World {
    /// Answers a request about the router, or about one port; `None` for all others.
    pub fn routed(&mut self, request: &Request<'_>) -> Option<Result<Answer, CloudError>> {
        let (path, _) = request.path.split_once('?').unwrap_or((request.path, ""));
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let answered = match parts.as_slice() {
            ["extensions"] => {
                let known = self.router.extensions.iter().map(|alias| json!({ "alias": alias }));
                Ok(answer(200, &json!({ "extensions": known.collect::<Vec<_>>() })))
            }
            ["routers", id, rest @ ..] if *id == self.router.id => {
                self.router(request, rest.first().copied())
            }
            ["routers", _, ..] => Ok(missing("RouterNotFound")),
            ["ports", id] => self.port(request, id),
            _ => return None,
        };
        Some(answered)
    }

    fn router(
        &mut self,
        request: &Request<'_>,
        action: Option<&str>,
    ) -> Result<Answer, CloudError> {
        let router = &mut self.router;
        if request.method == Method::PUT {
            matches(request, router.revision)?;
            let body = request.body.as_ref().unwrap();
            let given = body["router"]["routes"].as_array().unwrap().clone();
            let mut table = router.routes.clone();
            match action {
                Some("add_extraroutes") => {
                    table.extend(given.into_iter().filter(|route| !router.routes.contains(route)));
                }
                Some("remove_extraroutes") => table.retain(|route| !given.contains(route)),
                Some(action) => panic!("no action {action}"),
                None => table = given,
            }
            let on_link = |route: &Value| route["nexthop"].as_str().unwrap().starts_with("10.");
            if !table.iter().all(on_link) {
                let what = "HTTP 400: the nexthop is not connected with router";
                return Err(CloudError::new(ErrorKind::Invalid, what));
            }
            if table.len() > router.max_routes {
                return Err(exhausted("routes", router.max_routes));
            }
            if table.len() > router.route_quota {
                let what = "HTTP 409: Quota exceeded for resources: ['router_route'].";
                return Err(CloudError::new(ErrorKind::QuotaExceeded, what).about("router_route"));
            }
            router.revision += u64::from(table != router.routes);
            router.routes = table;
        }
        let body = json!({ "routes": router.routes, "revision_number": router.revision });
        Ok(answer(200, &json!({ "router": body })))
    }

    fn port(&mut self, request: &Request<'_>, id: &str) -> Result<Answer, CloudError> {
        let most = self.router.max_pairs;
        let Some(port) = self.ports.iter_mut().find(|port| port["id"] == *id) else {
            return Ok(missing("PortNotFound"));
        };
        if request.method == Method::PUT {
            let revision = port["revision_number"].as_u64().unwrap();
            matches(request, revision)?;
            let pairs = request.body.as_ref().unwrap()["port"]["allowed_address_pairs"].clone();
            if pairs.as_array().unwrap().len() > most {
                return Err(exhausted("allowed address pairs of a port", most));
            }
            port["allowed_address_pairs"] = pairs;
            port["revision_number"] = json!(revision + 1);
        }
        Ok(answer(200, &json!({ "port": port })))
    }
}

fn missing(kind: &str) -> Answer {
    let fault = json!({ "type": kind, "message": "It could not be found.", "detail": "" });
    answer(404, &json!({ "NeutronError": fault }))
}

fn matches(request: &Request<'_>, revision: u64) -> Result<(), CloudError> {
    match request.revision {
        Some(wanted) if wanted != revision => {
            let what = format!("HTTP 412: Constrained to {wanted}, but it is {revision}");
            Err(CloudError::new(ErrorKind::Busy, what))
        }
        _ => Ok(()),
    }
}

fn exhausted(what: &str, most: usize) -> CloudError {
    let message = format!("HTTP 400: The number of {what} exceeds the maximum {most}.");
    CloudError::new(ErrorKind::QuotaExceeded, message).about(what)
}
