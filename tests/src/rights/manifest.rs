//! The roles that the manifests of one program make.

use std::{collections::BTreeSet, fmt, path::Path};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use serde_json::Value;

use crate::cluster::repository;

/// One verb on one resource: read from a role, or printed by a program.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct Grant {
    /// The verb.
    pub verb: String,
    /// The API group; empty for the core.
    pub group: String,
    /// The resource, in the plural.
    pub resource: String,
    /// Such as `status`, or empty.
    pub subresource: String,
    /// The namespace, or empty for all.
    pub namespace: String,
    /// The object's name, or empty for all.
    pub name: String,
}

impl Grant {
    /// Returns true if it is about the objects of the controller's work: not about leadership,
    /// events or the program's own rights.
    pub fn is_of_work(&self) -> bool {
        self.namespace == "kube-node-lease"
            || !["leases", "events", "selfsubjectaccessreviews"].contains(&self.resource.as_str())
                && !self.is_optional()
    }

    /// Returns true if the program works without it, and says so: it shows the account's admission
    /// policy.
    pub fn is_optional(&self) -> bool {
        self.group == "admissionregistration.k8s.io"
    }
}

/// Formats it in the words of the programs.
impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        for (sign, part) in [("/", &self.subresource), (".", &self.group), (" ", &self.name)] {
            if !part.is_empty() {
                write!(f, "{sign}{part}")?;
            }
        }
        if !self.namespace.is_empty() {
            write!(f, " in namespace {}", self.namespace)?;
        }
        Ok(())
    }
}

/// The service account, the roles, the bindings and the flow of one program.
#[derive(Clone)]
pub struct Manifest {
    /// The program.
    pub program: &'static str,
    /// The objects.
    pub objects: Vec<Value>,
}

const KINDS: [&str; 6] =
    ["ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "FlowSchema"];
/// The kinds of the account's admission policy.
const POLICY: [&str; 2] = ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"];

impl Manifest {
    /// Reads what `kubectl kustomize manifests/<program>` printed.
    pub fn rendered(program: &'static str, text: &str) -> Result<Self> {
        let mut objects = documents(text)?;
        objects.retain(|object| {
            let (kind, name) =
                (self::text(&object["kind"]), self::text(&object["metadata"]["name"]));
            KINDS.contains(&kind) || POLICY.contains(&kind) && name == program
        });
        Ok(Self { program, objects })
    }

    /// Reads the files of the roles themselves, with the names that kustomize would give.
    pub fn source(program: &'static str) -> Result<Self> {
        let read = |path: &Path| {
            std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
        };
        let manifests = repository().join("manifests");
        let mut objects = documents(&read(&manifests.join("common/role.yaml"))?)?;
        let own = documents(&read(&manifests.join(program).join("clusterrole.yaml"))?)?;
        if own.iter().flat_map(rules).any(is_of_events) {
            // Its kustomization removes the events of single namespaces from the common roles.
            objects.retain(|object| object["metadata"]["namespace"] != "default");
            for rules in objects.iter_mut().filter_map(|object| object["rules"].as_array_mut()) {
                rules.retain(|rule| !is_of_events(rule));
            }
        }
        objects.extend(own);
        for object in &mut objects {
            for name in names(object) {
                let own = name.as_str().and_then(|name| name.strip_prefix("ccm"));
                if let Some(rest) = own {
                    *name = Value::from(format!("{program}{rest}"));
                }
            }
        }
        Ok(Self { program, objects })
    }

    /// Returns the admission policy and its binding.
    pub fn policy(&self) -> Vec<&Value> {
        self.objects.iter().filter(|object| POLICY.contains(&text(&object["kind"]))).collect()
    }

    /// Returns everything that the roles grant. Each grant must be removable on its own, and must
    /// be written out exactly.
    pub fn grants(&self) -> Result<BTreeSet<Grant>> {
        let mut all = BTreeSet::new();
        for role in self.roles() {
            self.check_bound(role)?;
            for rule in rules(role) {
                for verb in texts(&rule["verbs"]) {
                    let grant = grant(role, rule, &verb)?;
                    ensure!(all.insert(grant.clone()), "{grant} is granted twice");
                }
            }
        }
        Ok(all)
    }

    /// Returns the role that grants this, without it.
    pub fn without(&self, grant: &Grant) -> Result<Value> {
        for role in self.roles() {
            let mut left = role.clone();
            let rules = left["rules"].as_array_mut().context("a role has rules")?;
            let mut found = false;
            for rule in rules.iter_mut() {
                let same = |verb: &Value| {
                    let verb = verb.as_str().unwrap_or_default();
                    verb == grant.verb && self::grant(role, rule, verb).is_ok_and(|it| it == *grant)
                };
                let verbs: Vec<Value> =
                    rule["verbs"].as_array().into_iter().flatten().cloned().collect();
                let kept: Vec<Value> = verbs.iter().filter(|verb| !same(verb)).cloned().collect();
                found |= kept.len() < verbs.len();
                rule["verbs"] = Value::from(kept);
            }
            rules.retain(|rule| !texts(&rule["verbs"]).is_empty());
            if found {
                return Ok(left);
            }
        }
        anyhow::bail!("no role of {} grants {grant}", self.program)
    }

    fn roles(&self) -> impl Iterator<Item = &Value> {
        self.objects
            .iter()
            .filter(|object| ["Role", "ClusterRole"].contains(&text(&object["kind"])))
    }

    /// Checks the bindings. A role counts for the account only by a binding of its own kind.
    fn check_bound(&self, role: &Value) -> Result<()> {
        let kind = format!("{}Binding", text(&role["kind"]));
        let subject = serde_json::json!([
            {"kind": "ServiceAccount", "name": self.program, "namespace": "kube-system"}
        ]);
        let bound = self.objects.iter().any(|object| {
            object["kind"] == kind.as_str()
                && object["metadata"]["namespace"] == role["metadata"]["namespace"]
                && object["roleRef"]["kind"] == role["kind"]
                && object["roleRef"]["name"] == role["metadata"]["name"]
                && object["subjects"] == subject
        });
        let name = text(&role["metadata"]["name"]);
        ensure!(
            bound,
            "no {kind} binds {name} to the account {} and no other account",
            self.program
        );
        Ok(())
    }
}

fn grant(of: &Value, rule: &Value, verb: &str) -> Result<Grant> {
    let one = |part: &str| {
        let all = texts(&rule[part]);
        ensure!(all.len() == 1, "a rule names one of {part} each, not {all:?}");
        Ok(all.into_iter().next().unwrap_or_default())
    };
    ensure!(rule["nonResourceURLs"].is_null(), "paths of the server are not needed: {rule}");
    let full = one("resources")?;
    let (resource, subresource) = full.split_once('/').unwrap_or((&full, ""));
    let name = if rule["resourceNames"].is_null() { String::new() } else { one("resourceNames")? };
    let grant = Grant {
        verb: verb.to_owned(),
        group: one("apiGroups")?,
        resource: resource.to_owned(),
        subresource: subresource.to_owned(),
        namespace: text(&of["metadata"]["namespace"]).to_owned(),
        name,
    };
    let parts = [&grant.verb, &grant.group, &full, &grant.name];
    ensure!(!parts.iter().any(|part| part.contains('*')), "a wildcard: {grant}");
    ensure!(grant.resource != "secrets", "access to Secrets: {grant}");
    Ok(grant)
}

/// Returns all places of a name in an object of these kinds.
fn names(object: &mut Value) -> Vec<&mut Value> {
    let mut all = Vec::new();
    let Some(object) = object.as_object_mut() else { return all };
    for (key, value) in object {
        match (key.as_str(), value) {
            ("metadata" | "roleRef", value) => all.extend(value.get_mut("name")),
            ("subjects", Value::Array(subjects)) => {
                all.extend(subjects.iter_mut().filter_map(|subject| subject.get_mut("name")));
            }
            ("rules", Value::Array(rules)) => {
                let named = rules.iter_mut().filter_map(|rule| rule.get_mut("resourceNames"));
                all.extend(named.filter_map(Value::as_array_mut).flatten());
            }
            _ => {}
        }
    }
    all
}

fn documents(text: &str) -> Result<Vec<Value>> {
    serde_yaml_ng::Deserializer::from_str(text)
        .map(|document| Ok(Value::deserialize(document)?))
        .filter(|document| !matches!(document, Ok(Value::Null)))
        .collect()
}

fn is_of_events(rule: &Value) -> bool {
    texts(&rule["resources"]) == ["events"]
}

fn rules(role: &Value) -> impl Iterator<Item = &Value> {
    role["rules"].as_array().into_iter().flatten()
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().map(|text| self::text(text).to_owned()).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROLE: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: node-ccm, namespace: kube-system}
rules:
- {apiGroups: [coordination.k8s.io], resources: [leases], resourceNames: [node-ccm], verbs: [get, update]}
- {apiGroups: [''], resources: [nodes/status], verbs: [patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: node-ccm, namespace: kube-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: node-ccm}
subjects: [{kind: ServiceAccount, name: node-ccm, namespace: kube-system}]
";

    #[test]
    fn a_verb_is_taken_out_by_itself() {
        let manifest = Manifest::rendered("node-ccm", ROLE).unwrap();
        let grants: Vec<_> =
            manifest.grants().unwrap().into_iter().map(|grant| grant.to_string()).collect();
        let lease =
            |verb| format!("{verb} leases.coordination.k8s.io node-ccm in namespace kube-system");
        let status = "patch nodes/status in namespace kube-system".to_owned();
        assert_eq!(grants, [lease("get"), status.clone(), lease("update")]);
        for grant in manifest.grants().unwrap() {
            let role = manifest.without(&grant).unwrap();
            let objects = vec![role, manifest.objects[1].clone()];
            let left = Manifest { objects, ..manifest.clone() }.grants().unwrap();
            let mut expect = manifest.grants().unwrap();
            expect.remove(&grant);
            assert_eq!(left, expect);
        }
    }

    #[test]
    fn what_grants_too_much_or_nothing_is_refused() {
        let check = |from: &str, to: &str, expect: &str| {
            assert!(ROLE.contains(from), "{from}");
            let manifest = Manifest::rendered("node-ccm", &ROLE.replace(from, to)).unwrap();
            let error = manifest.grants().unwrap_err().to_string();
            assert!(error.contains(expect), "{error}");
        };
        check("[nodes/status]", "[secrets]", "access to Secrets");
        check("[nodes/status]", "['*']", "a wildcard");
        check("[nodes/status]", "[nodes, secrets]", "one of resources each");
        check("verbs: [patch]", "verbs: ['*']", "a wildcard");
        check("verbs: [patch]", "verbs: [patch, patch]", "granted twice");
        check("[{kind: ServiceAccount, name: node-ccm", "[{kind: User, name: node-ccm", "binds");
        check("kind: Role, name: node-ccm", "kind: Role, name: other", "no RoleBinding binds");
    }
}
