//! Label and field selectors.

use super::{object::Object, resources::Resource, status::StatusError};

mod labels;

pub(super) use labels::LabelSelector;

/// The objects that a list, a watch or a delete of a collection selects.
#[derive(Clone, Debug, Default)]
pub(super) struct Selector {
    labels: LabelSelector,
    fields: Vec<FieldTerm>,
}

#[derive(Clone, Debug)]
struct FieldTerm {
    field: Field,
    equal: bool,
    value: String,
}

#[derive(Clone, Copy, Debug)]
enum Field {
    Name,
    Namespace,
    /// Index into the resource's fields.
    Other(usize),
}

impl Selector {
    /// Parses the two query parameters. Errors are the real server's: 400.
    pub(super) fn parse(
        resource: &Resource,
        labels: &str,
        fields: &str,
    ) -> Result<Self, StatusError> {
        let labels = LabelSelector::parse(labels)
            .map_err(|error| StatusError::bad_request(error.to_string()))?;
        let fields =
            split_terms(fields).map(|term| field_term(resource, term)).collect::<Result<_, _>>()?;
        Ok(Self { labels, fields })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(super) fn matches(&self, object: &Object) -> bool {
        self.labels.matches(&object.labels) && self.fields.iter().all(|term| term.matches(object))
    }
}

impl FieldTerm {
    fn matches(&self, object: &Object) -> bool {
        let have = match self.field {
            Field::Name => object.name.as_str(),
            Field::Namespace => object.namespace.as_str(),
            Field::Other(index) => object.fields.get(index).map_or("", String::as_str),
        };
        (have == self.value) == self.equal
    }
}

/// Splits at commas without a preceding backslash.
fn split_terms(text: &str) -> impl Iterator<Item = String> {
    let mut terms = vec![String::new()];
    let mut escaped = false;
    for character in text.chars() {
        if character == ',' && !escaped {
            terms.push(String::new());
        } else if let Some(last) = terms.last_mut() {
            last.push(character);
        }
        escaped = character == '\\' && !escaped;
    }
    terms.into_iter().filter(|term| !term.is_empty())
}

fn field_term(resource: &Resource, term: String) -> Result<FieldTerm, StatusError> {
    let (field, equal, value) = [("!=", false), ("==", true), ("=", true)]
        .into_iter()
        .filter_map(|(operator, equal)| Some((term.find(operator)?, operator, equal)))
        .min_by_key(|(at, operator, _)| (*at, std::cmp::Reverse(operator.len())))
        .and_then(|(at, operator, equal)| {
            Some((term.get(..at)?, equal, term.get(at + operator.len()..)?))
        })
        .ok_or_else(|| {
            StatusError::bad_request(format!(
                "invalid selector: '{term}'; can't understand '{term}'"
            ))
        })?;
    let value = value.replace("\\,", ",").replace("\\=", "=").replace("\\\\", "\\");
    let field = match field {
        "metadata.name" => Field::Name,
        "metadata.namespace" if resource.namespaced => Field::Namespace,
        other => {
            let other = if resource.is_events_view() { stored_event_field(other) } else { other };
            let index = resource.fields.iter().position(|known| *known == other);
            Field::Other(index.ok_or_else(|| {
                StatusError::bad_request(format!("field label not supported: {other}"))
            })?)
        }
    };
    Ok(FieldTerm { field, equal, value })
}

/// Returns the stored name of an event's field: `regarding.name` of `events.k8s.io` is
/// `involvedObject.name`.
fn stored_event_field(field: &str) -> &str {
    match field {
        "regarding.kind" => "involvedObject.kind",
        "regarding.namespace" => "involvedObject.namespace",
        "regarding.name" => "involvedObject.name",
        "regarding.uid" => "involvedObject.uid",
        "regarding.apiVersion" => "involvedObject.apiVersion",
        "regarding.resourceVersion" => "involvedObject.resourceVersion",
        "regarding.fieldPath" => "involvedObject.fieldPath",
        "reportingController" => "reportingComponent",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::resources, *};

    #[test]
    fn fields_of_events_and_nodes() {
        let events = resources::by_plural("events").unwrap();
        let event = Object::new(
            events,
            json!({ "metadata": { "name": "e", "namespace": "d" }, "type": "Normal",
                "involvedObject": { "name": "n", "uid": "u,1" }, "source": { "component": "c" } }),
            1,
        );
        let check = |fields: &str, expect: bool| {
            let selector = Selector::parse(events, "", fields).unwrap();
            assert_eq!(selector.matches(&event), expect, "{fields}");
        };
        check("involvedObject.name=n,type!=Warning", true);
        check("involvedObject.name==n,type=Warning", false);
        check("involvedObject.uid=u\\,1", true);
        check("metadata.name=e,metadata.namespace=d,source=c", true);
        check("reason=", true);
        check("", true);
        let refused = |resource: &str, fields: &str| {
            Selector::parse(resources::by_plural(resource).unwrap(), "", fields)
                .unwrap_err()
                .message
        };
        assert_eq!(refused("nodes", "foo=bar"), "field label not supported: foo");
        assert_eq!(
            refused("nodes", "metadata.namespace=x"),
            "field label not supported: metadata.namespace"
        );
        assert!(refused("nodes", "foo").starts_with("invalid selector"));
    }
}
