//! Compares the access rules that the provider's page lists for each program with the requests of
//! the program.

use ccm_openstack_client::{api::Service, scripted::Scripted};
use serde::Deserialize;

/// The page with the rules.
const PAGE: &str = include_str!("../../../../docs/reference/openstack-rights.md");

/// An access rule of Keystone.
#[derive(Debug, Deserialize)]
struct Rule {
    service: String,
    method: String,
    path: String,
}

impl Rule {
    /// Returns true if it allows a request, as keystonemiddleware decides: `*` is one segment, `**`
    /// all that follow.
    fn allows(&self, service: &str, method: &str, path: &str) -> bool {
        let (mut rule, mut parts) = (self.path.split('/'), path.split('/'));
        let fits = loop {
            match (rule.next(), parts.next()) {
                (Some("**"), Some(_)) | (None, None) => break true,
                (Some(wanted), Some(part)) if wanted == part => {}
                (Some("*"), Some(part)) if !part.is_empty() => {}
                _ => break false,
            }
        };
        fits && self.service == service && self.method == method
    }
}

/// Fails unless the rules of a program allow each request that these services have seen, and each
/// rule is needed for one.
pub fn are_exactly_enough(program: &str, services: &[&Scripted]) {
    let (_, text) = PAGE.split_once(&format!("\n### {program}\n")).expect("a heading");
    let block = text.split_once("```json").and_then(|(_, text)| text.split_once("```"));
    let rules: Vec<Rule> = serde_json::from_str(block.expect("a list of rules").0).unwrap();
    let mut used = vec![false; rules.len()];
    let worlds = services.iter().map(|scripted| scripted.world.lock());
    let seen: Vec<_> = worlds.flat_map(|world| world.seen.clone()).collect();
    for (service, method, path) in seen {
        let path = path.trim_start_matches('/');
        let path = match service {
            // Documents of versions do not need a rule.
            Service::LoadBalancer if path.is_empty() => continue,
            Service::LoadBalancer => format!("/{path}"),
            Service::Network => format!("/v2.0/{path}"),
            Service::Compute => format!("/v2.1/{path}"),
            Service::Identity => panic!("a login is not a program's request: {path}"),
        };
        let mut is_allowed = false;
        for (rule, used) in rules.iter().zip(&mut used) {
            let allows = rule.allows(service.name(), method.as_str(), &path);
            (*used, is_allowed) = (*used || allows, is_allowed || allows);
        }
        assert!(is_allowed, "{program} lacks a rule: {} {method} {path}", service.name());
    }
    let needless: Vec<&Rule> =
        rules.iter().zip(used).filter(|(_, used)| !used).map(|(rule, _)| rule).collect();
    assert!(needless.is_empty(), "{program} needs none of these: {needless:#?}");
}

#[test]
fn rules_match_by_segment() {
    let rule = |path: &str| Rule {
        service: "network".to_owned(),
        method: "GET".to_owned(),
        path: path.to_owned(),
    };
    for (rule_path, path, expect) in [
        ("/v2.0/ports", "/v2.0/ports", true),
        ("/v2.0/ports", "/v2.0/ports/5", false),
        ("/v2.0/ports/*", "/v2.0/ports/5", true),
        ("/v2.0/ports/*", "/v2.0/ports", false),
        ("/v2.0/ports/*", "/v2.0/ports/5/tags", false),
        ("/v2.0/ports/**", "/v2.0/ports/5/tags", true),
    ] {
        assert_eq!(rule(rule_path).allows("network", "GET", path), expect, "{rule_path} {path}");
    }
    assert!(!rule("/v2.0/ports").allows("network", "PUT", "/v2.0/ports"));
    assert!(!rule("/v2.0/ports").allows("compute", "GET", "/v2.0/ports"));
}
