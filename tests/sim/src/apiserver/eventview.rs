//! Events in the form of `events.k8s.io/v1`. They are stored as core/v1.

use serde_json::{Map, Value};

/// Names that differ: stored, shown, and whether the shown form omits an empty value.
const NAMES: &[(&str, &str, bool)] = &[
    ("involvedObject", "regarding", false),
    ("message", "note", true),
    ("source", "deprecatedSource", false),
    ("firstTimestamp", "deprecatedFirstTimestamp", false),
    ("lastTimestamp", "deprecatedLastTimestamp", false),
    ("count", "deprecatedCount", true),
    ("reportingComponent", "reportingController", true),
    ("reportingInstance", "reportingInstance", true),
];

/// Converts the stored form to `events.k8s.io/v1`.
pub(super) fn shown(event: Value) -> Value {
    rename(event, |(stored, shown, omit)| (*stored, *shown, *omit))
}

/// Converts `events.k8s.io/v1` to the stored form.
pub(super) fn stored(event: Value) -> Value {
    rename(event, |(stored, shown, _)| (*shown, *stored, false))
}

fn rename(
    event: Value,
    names: impl Fn(&'static (&str, &str, bool)) -> (&'static str, &'static str, bool),
) -> Value {
    let Value::Object(mut map) = event else { return event };
    let mut renamed = Map::new();
    for (from, to, omit) in NAMES.iter().map(names) {
        if let Some(value) = map.remove(from)
            && !(omit && value.as_str().is_some_and(str::is_empty))
        {
            renamed.insert(to.to_owned(), value);
        }
    }
    map.extend(renamed);
    Value::Object(map)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn there_and_back() {
        let event =
            json!({ "involvedObject": { "name": "a" }, "message": "m", "count": 2, "reason": "R" });
        let view = shown(event.clone());
        assert_eq!(
            view,
            json!({ "regarding": { "name": "a" }, "note": "m", "deprecatedCount": 2, "reason": "R" })
        );
        assert_eq!(stored(view), event);
    }
}
